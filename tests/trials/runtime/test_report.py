from __future__ import annotations

import json
import os
from pathlib import Path

from autotuner.core import codec
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.trial import FailureKind
from tests.builders import measurement, step_report
from tests.trials.specs import trial_spec
from tests.trials.zygote import read_lines
from trials.runtime.report import Reporter


def test_steps_and_measurements_read_back_as_they_were(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path / "reports.jsonl", rank=0)
    reporter.step(step_report(step=3))
    reporter.measurement(measurement())
    step, result = read_lines(tmp_path / "reports.jsonl")
    assert step.pop("type") == "step"
    assert codec.from_plain(StepReport, step) == step_report(step=3)
    assert result.pop("type") == "measurement"
    assert codec.from_plain(Measurement, result) == measurement()


def test_only_rank_0_reports_progress_but_every_rank_its_death(tmp_path: Path) -> None:
    for rank in (1, 0):
        reporter = Reporter(tmp_path / "reports.jsonl", rank=rank)
        reporter.started(trial_spec(), world_size=2)
        reporter.step(step_report())
        reporter.failure(FailureKind.OOM, "no memory left", "Traceback")
    lines = read_lines(tmp_path / "reports.jsonl")
    assert [(line["type"], line.get("rank")) for line in lines] == [
        ("failure", 1),
        ("started", None),
        ("step", None),
        ("failure", 0),
    ]


def test_lines_of_several_processes_never_mix(tmp_path: Path) -> None:
    path, num_writers, num_lines = tmp_path / "reports.jsonl", 4, 50
    writers = []
    for rank in range(num_writers):
        if (child := os.fork()) == 0:
            for number in range(num_lines):
                Reporter(path, rank=rank).failure(FailureKind.CRASH, str(number), "x" * 5000)
            os._exit(0)
        writers.append(child)
    assert [os.waitpid(child, 0)[1] for child in writers] == [0] * num_writers
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == num_writers * num_lines
    for rank in range(num_writers):
        assert [int(line["message"]) for line in lines if line["rank"] == rank] == list(range(num_lines))
