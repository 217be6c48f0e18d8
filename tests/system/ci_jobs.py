"""Jobs of CI systems, read from their YAML and run step by step as a runner runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

EXAMPLES = Path(__file__).parents[2] / "docs/examples"

_EXPRESSION = re.compile(r"\$\{\{\s*([\w.]+)\s*\}\}")


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a job ended: the code of the step that ended it, and what it printed."""

    code: int
    output: str


def github_job(
    job: str, *, checkout: Path, base: Path | None, context: Mapping[str, str], event: Mapping[str, str]
) -> Done:
    """Run the steps of a job of the workflow.

    Args:
        job: Its name.
        checkout: What ``actions/checkout`` fetches.
        base: What it fetches of another branch.
        context: Values of expressions, such as ``vars.AUTOTUNER_SERVER``.
        event: The runner's own variables.
    """
    workflow = yaml.safe_load((EXAMPLES / "github-action.yml").read_text())
    assert workflow["defaults"]["run"]["shell"] == "bash"
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]  # what GitHub makes of ``shell: bash``
    workspace = checkout / "workspace"
    variables = {name: _evaluated(str(value), context) for name, value in workflow["env"].items()}
    for step in workflow["jobs"][job]["steps"]:
        if step.get("uses", "").startswith("actions/checkout"):
            other = step.get("with", {}).get("path")
            source = checkout if other is None else base
            assert source is not None
            shutil.copytree(source / "train", workspace / (other or "") / "train", dirs_exist_ok=True)
        elif "run" in step:
            assert "${{" not in step["run"], "nothing that a pull request names is pasted into a script"
            done = _run([*shell, step["run"]], workspace, {**variables, **event})
            if done.code:
                return done
    return done


def _evaluated(text: str, context: Mapping[str, str]) -> str:
    """With its expressions evaluated; a secret that nobody set is empty text, as GitHub has it."""
    known = defaultdict(str) if text.startswith("${{ secrets.") else context
    return _EXPRESSION.sub(lambda found: known[found[1]], text)


def gitlab_job(job: str, *, checkout: Path, variables: Mapping[str, str]) -> Done:
    """Run the script of a job of the pipeline, line by line in one shell, as GitLab's runner does."""
    pipeline = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())
    script = "\n".join(["set -eo pipefail", *pipeline[job]["script"]])
    return _run(["bash", "-c", script], checkout, {**pipeline["variables"], **variables})


def _run(command: list[str], folder: Path, variables: Mapping[str, str]) -> Done:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**dict(_inherited()), "PATH": path, **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Done(code=done.returncode, output=done.stdout + done.stderr)


def _inherited() -> Iterator[tuple[str, str]]:
    """What a fresh machine has too; and where the code under test lies."""
    for name in ("HOME", "LANG", "TMPDIR", "PYTHONPATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        if name in os.environ:
            yield name, os.environ[name]
