from __future__ import annotations

import json
import math
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autotuner_report
from autotuner.core.codec import dumps, from_plain
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.trainers.progress import ReportedStep
from tests.builders import cpu_layout, tiny_job, tiny_model

MODULE = Path(autotuner_report.__file__)


def started(directory: Path, monkeypatch: pytest.MonkeyPatch, rank: int | None = 0) -> autotuner_report.Reporter:
    monkeypatch.setenv(autotuner_report.REPORT_DIR, str(directory))
    return autotuner_report.start(rank)


def lines(directory: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / f"rank-{rank}.jsonl").read_text().splitlines()]


def asked() -> TrialSpec:
    return TrialSpec(
        trial_id="t", model=tiny_model(), workload=tiny_job().workload, layout=cpu_layout(), device="cpu", seed=3
    )


def test_a_step_is_written_at_once_as_what_the_launcher_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = started(tmp_path, monkeypatch, rank=3)
    report.step(loss=2.5, tokens=512)
    (line,) = lines(tmp_path, rank=3)
    environment = line.pop("environment")
    step = from_plain(ReportedStep, line)
    assert environment["python"] == platform.python_version()
    assert (step.step, step.rank, step.loss, step.tokens, step.num_steps) == (0, 3, 2.5, 512, 1)
    assert step.step_time_s is not None
    assert step.step_time_s > 0
    assert step.peak_bytes is not None
    assert step.peak_bytes > 10**6


def test_steps_count_from_zero_and_those_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = started(tmp_path, monkeypatch)
    report.step()
    report.step(num_steps=10, step_time_s=0.25)
    report.step()
    assert [(line["step"], line["num_steps"]) for line in lines(tmp_path)] == [(0, 1), (10, 10), (11, 1)]
    assert lines(tmp_path)[1]["step_time_s"] == 0.25


def test_without_the_variable_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(autotuner_report.REPORT_DIR, raising=False)
    monkeypatch.delenv(autotuner_report.SPEC, raising=False)
    monkeypatch.chdir(tmp_path)
    autotuner_report.start().step(loss=1.0)
    assert list(tmp_path.iterdir()) == []
    assert autotuner_report.spec() is None
    assert autotuner_report.layout() is None


def test_the_layout_and_the_whole_spec_are_what_the_launcher_asks_for_or_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(autotuner_report.SPEC, dumps(asked()))
    spec, layout = autotuner_report.spec(), autotuner_report.layout()
    assert spec is not None
    assert layout is not None
    assert (spec["model"]["hidden_size"], spec["workload"]["global_batch_size"], spec["seed"]) == (64, 8, 3)
    assert (layout["precision"], layout["attention_kernel"]) == ("fp32", "math")
    monkeypatch.setenv(autotuner_report.SPEC, '{"layout": ')
    with pytest.raises(ValueError, match="Expecting value"):
        autotuner_report.layout()


@pytest.mark.parametrize("name", ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"])
def test_the_rank_is_the_launchers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "5")
    started(tmp_path, monkeypatch, rank=None).step()
    assert lines(tmp_path, rank=5)[0]["rank"] == 5


def test_a_loss_is_reported_if_it_is_a_number_or_none_and_else_left_out_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = started(tmp_path, monkeypatch)
    for loss in ([1.0, 2.0], [1.0, 2.0], float("nan")):
        report.step(loss=loss)
    *left_out, last = [line["loss"] for line in lines(tmp_path)]
    assert left_out == [None, None]
    assert math.isnan(last)
    assert capsys.readouterr().err.count("a loss is left out") == 1


@pytest.mark.parametrize("arguments", [{"tokens": "many"}, {"num_steps": 0}, {"step_time_s": object()}])
def test_nothing_that_a_loop_passes_reaches_it_as_an_error(
    arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = started(tmp_path, monkeypatch)
    report.step(**arguments)
    report.step(**arguments)
    assert capsys.readouterr().err.count("reporting ends") == 1


def test_a_directory_that_is_gone_ends_reporting_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = started(tmp_path / "gone", monkeypatch)
    report.step()
    report.step()
    assert capsys.readouterr().err.count("reporting ends before step 1: FileNotFoundError") == 1


def test_a_full_disk_ends_reporting_with_one_warning_and_training_goes_on(tmp_path: Path) -> None:
    script = """
import resource, signal, autotuner_report
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
report = autotuner_report.start()
for step in range(9):
    report.step(loss=1.0, tokens=8)
print("trained")
"""
    ran = run_script(script, tmp_path, directory=tmp_path)
    assert ran.stdout == "trained\n"
    assert ran.stderr.count("reporting ends") == 1
    whole = (tmp_path / "rank-0.jsonl").read_bytes().splitlines(keepends=True)[:-1]
    assert [json.loads(line)["step"] for line in whole] == list(range(len(whole)))


def test_the_peak_is_that_of_the_process_itself_and_not_of_the_one_that_started_it(tmp_path: Path) -> None:
    held = bytearray(os.urandom(1 << 20)) * 200
    ran = run_script("import autotuner_report; autotuner_report.start().step()", tmp_path, directory=tmp_path)
    assert ran.returncode == 0
    peak_bytes = lines(tmp_path)[0]["peak_bytes"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > len(held)
    assert peak_bytes < 100 * 2**20


def test_the_module_alone_beside_a_script_suffices(tmp_path: Path) -> None:
    (tmp_path / MODULE.name).write_text(MODULE.read_text())
    script = "import sys, autotuner_report; autotuner_report.start().step(); print(sorted(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"],
        env={autotuner_report.REPORT_DIR: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert lines(tmp_path)[0]["step"] == 0
    assert "torch" not in ran.stdout


FAKE_TORCH = """
import time
class cuda:
    num_waits = 0
    is_initialized = staticmethod(lambda: True)
    max_memory_allocated = staticmethod(lambda: 123456)
    def synchronize():
        cuda.num_waits += 1
        time.sleep(0.05)
class distributed:
    is_available = is_initialized = staticmethod(lambda: True)
    get_rank = staticmethod(lambda: 6)
"""


def test_on_a_cuda_device_the_step_ends_when_the_device_has_and_the_peak_is_the_allocators(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    script = """
import torch, autotuner_report
report = autotuner_report.start()
report.step()
report.step(step_time_s=0.5)
print(torch.cuda.num_waits)
"""
    ran = run_script(script, tmp_path, directory=tmp_path)
    first, second = lines(tmp_path, rank=6)
    assert first["step_time_s"] >= 0.05
    assert (second["step_time_s"], second["rank"], second["peak_bytes"]) == (0.5, 6, 123456)
    assert ran.stdout == "1\n"


def run_script(script: str, cwd: Path, *, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(MODULE.parent), autotuner_report.REPORT_DIR: str(directory)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
