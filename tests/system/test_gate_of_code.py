"""A gate of code: the layout stays, and the training loop of the change is truly slower."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.core.codec import to_plain
from tests.builders import cpu_cluster, tiny_model
from tests.system.service import Service

pytestmark = pytest.mark.oracle

LOOP = """
import json, os, sys, time
from pathlib import Path

pace_s = float((Path(__file__).parent / "pace").read_text())
report = Path(os.environ["AUTOTUNER_REPORT_DIR"]) / "rank-0.jsonl"
for step in range(int(sys.argv[1])):
    began_s = time.perf_counter()
    time.sleep(pace_s)
    line = {"step": step, "rank": 0, "step_time_s": time.perf_counter() - began_s, "num_steps": 1, "loss": 5.0}
    with report.open("a") as file:
        file.write(json.dumps(line | {"tokens": None, "peak_bytes": 1000}) + "\\n")
"""
"""Takes what the file beside it says, so that what a commit changed is known."""

REGISTERED = """
[ours]
format = "arguments"
command = ["{{python}}", "-S", "loop.py", "{{steps}}"]
working_directory = "{folder}"
options = ["micro_batch_size"]
fixed = {{ precision = "fp32" }}
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "loop.py").write_text(LOOP)
    (folder / "trainers.toml").write_text(REGISTERED.format(folder=folder))
    (folder / "tiny.json").write_text(json.dumps(to_plain(tiny_model())))
    (folder / "core.json").write_text(json.dumps(to_plain(cpu_cluster(1))))
    return folder


@pytest.fixture(scope="module")
def service(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNER_TRAINERS", str(checkout / "trainers.toml"))
        with Service(tmp_path_factory.mktemp("service")) as service:
            yield service


def gate(service: Service, checkout: Path, commit: str, pace_s: float, *more: str) -> tuple[int, str]:
    """The gate of a commit whose steps take so long, as a step of CI runs it."""
    (checkout / "pace").write_text(str(pace_s))
    job = ["--model", "tiny.json", "--cluster", "core.json", "--global-batch-size", "8", "--seq-len", "64"]
    short = '{"max_warmup_steps": 2, "max_measured_steps": 5, "profiled_steps": 0, "max_repeats": 0}'
    options = [*job, "--trainer", "ours", "--layout", "mb1 fp32", "--trial", short, "--software", commit, *more]
    command = [sys.executable, "-m", "autotuner.cli", "gate", *options, "--server", service.address]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_loop_that_is_truly_slower_fails_and_one_that_is_not_passes(service: Service, checkout: Path) -> None:
    code, said = gate(service, checkout, "first", 0.1, "--set-baseline")
    assert code == 0, said
    code, said = gate(service, checkout, "same", 0.1)
    assert code == 0, said
    code, said = gate(service, checkout, "slower", 0.12)
    assert code == 8, said
    gates = service.get("/runs?kind=gate")["items"]
    outcomes = [(gate["request"]["gate"]["software"], gate["result"]["outcome"]) for gate in gates]
    assert outcomes == [("slower", "failed"), ("same", "passed"), ("first", "no_baseline")]
