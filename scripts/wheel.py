"""Build the wheel, install it alone into a new environment, and ask it what users ask most: `make wheel`.

It prints the size of the install, the seconds from `pip install` to the first answer, and the seconds of each answer.
It fails if two builds differ, if the metadata is wrong, if the wheel installs a name that others could own, or if a
question gets no answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

_ROOT = Path(__file__).parent.parent
_TOOLS = Path(sys.executable).parent
_JOB = ("--model", "llama-3-8b", "--cluster", "h100:8", "--global-batch-size", "64", "--seq-len", "8192")
_WORK = _JOB[4:]
_LAYOUT = "fsdp8 mb1 reshard recompute-selective"
_SCRIPT = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --bf16\n"
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
_NAMES = {"autotuner", "autotuner_report.py"}
"""What the wheel may install at the top level."""

_QUESTIONS: Sequence[tuple[str, Sequence[str]]] = (
    ("Which layouts are fastest?", ("predict", "--model", "llama-3-70b", "--cluster", "h100:64", *_WORK)),
    ("How fast is this layout?", ("predict", *_JOB, "--layout", _LAYOUT)),
    ("Which layout costs least?", ("predict", *_JOB, "--objective", "tokens_per_dollar")),
    ("What limits it, and what would help?", ("explain", *_JOB, "--layout", _LAYOUT)),
    ("What do communication options gain?", ("layers", *_JOB)),
    ("Which flags does my trainer need?", ("export", _LAYOUT, *_JOB, "--format", "torchtitan")),
    ("Which layout do I use today?", ("import", "launch.sh")),
    ("Which cluster should I rent?", ("plan", "--model", "llama-3-8b", "--tokens", "1e9", *_WORK)),
    ("Which accelerators and models are known?", ("catalog",)),
    ("Which training stacks are known?", ("stacks",)),
)
"""The ten most common questions of the guide, and the words that ask them."""


def main() -> None:
    """Build the wheel, check its contents, install it, and run a question with it."""
    with TemporaryDirectory() as folder:
        wheel = _built(Path(folder))
        environment = Path(folder, "env")
        started = time.monotonic()
        _run(sys.executable, "-m", "venv", environment)
        _run(environment / "bin/pip", "install", "-q", "-c", _ROOT / "constraints.txt", wheel)
        print(f"installed in {time.monotonic() - started:.1f} s")
        _run(environment / "bin/autotuner", *_QUESTIONS[0][1])
        print(f"first answer after {time.monotonic() - started:.1f} s")
        names = _installed(environment)
        print(f"{len(names)} packages, {_size(environment) / 1e6:.0f} MB: {', '.join(names)}")
        assert "torch" not in names, "the base install must not need torch"
        Path(folder, "launch.sh").write_text(_SCRIPT)
        for question, words in _QUESTIONS:
            started = time.monotonic()
            _run(environment / "bin/autotuner", *words, cwd=folder)
            print(f"{time.monotonic() - started:5.2f} s  {question}  autotuner {' '.join(words)}")
        _run_trial(environment, Path(folder))
        refused = subprocess.run((environment / "bin/autotuner", "serve"), capture_output=True, text=True, check=False)
        assert "pip install 'parallelism-autotuner[service]'" in refused.stderr, refused.stderr


def _run_trial(environment: Path, folder: Path) -> None:
    """Run a sweep of one real trial from the wheel, with the torch and the service's packages of this environment.

    Packages on ``PYTHONPATH`` have no effect by their ``.pth`` files, so the checkout is not importable.
    """
    job = ("--model", "llama-demo", "--cluster", "local", "--global-batch-size", "16", "--seq-len", "128")
    others = next((_TOOLS.parent / "lib").glob("python*/site-packages"))
    env = os.environ | {"PYTHONPATH": str(others), "AUTOTUNER_DATABASE_URL": f"sqlite:///{folder}/autotuner.db"}
    started = time.monotonic()
    _run(environment / "bin/autotuner", "sweep", *job, "--trials", "1", "--no-convergence-gate", cwd=folder, env=env)
    print(f"{time.monotonic() - started:5.2f} s  a sweep of one real trial, started from the wheel")


def _built(folder: Path) -> Path:
    """Build the wheel into ``dist``, twice, and check it."""
    found = []
    commit = subprocess.check_output(("git", "log", "-1", "--format=%ct"), cwd=_ROOT, text=True).strip()
    for place in (folder, _ROOT / "dist"):
        _run(_TOOLS / "uv", "build", "-q", "--wheel", "-o", place, env=_ENVIRONMENT | {"SOURCE_DATE_EPOCH": commit})
        found.append(max(place.glob("*.whl"), key=lambda path: path.stat().st_mtime))
    first, wheel = found
    assert first.read_bytes() == wheel.read_bytes(), "two builds of one commit differ"
    _run(_TOOLS / "twine", "check", "--strict", wheel)
    inside = ZipFile(wheel).namelist()
    others = {name.partition("/")[0] for name in inside} - _NAMES
    assert all(name.endswith(".dist-info") for name in others), f"the wheel installs {sorted(others)}"
    for needed in ("py.typed", "api/main.py", "trials/process/node.py", "migrations/env.py", "api/examples.json"):
        assert f"autotuner/{needed}" in inside, f"the wheel lacks {needed}"
    print(f"{wheel.relative_to(_ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB, two builds are equal")
    return wheel


def _installed(environment: Path) -> Sequence[str]:
    listed = subprocess.check_output((environment / "bin/pip", "list", "--format", "freeze"), text=True)
    return [line.partition("==")[0] for line in listed.splitlines() if not line.startswith(("pip==", "setuptools=="))]


def _size(environment: Path) -> int:
    return sum(path.stat().st_size for path in _files(environment / "lib") if "pip" not in path.parts)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _run(*words: str | Path, cwd: str | Path = _ROOT, env: dict[str, str] = _ENVIRONMENT) -> None:
    ended = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(
            f"{' '.join(map(str, words))} ended with {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        )


if __name__ == "__main__":
    main()
