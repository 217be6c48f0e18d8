"""What trials taught on all surfaces: each shows the same figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core import documents
from autotuner.core.job import Calibration, PartFactor
from autotuner.report.calibration import calibrations_report
from autotuner.search.sampler.calibration import Lesson, Platform
from tests.announcements import AT
from tests.unit.report.surfaces import surfaces

LESSON = Lesson(
    platform=Platform(
        accelerator="h100-sxm", intra_node_link="nvlink4", inter_node_link="ndr400", stack="torch", trainer="ours"
    ),
    num_trials=1234,
    num_sweeps=5,
    last_finished_at=AT,
    calibration=Calibration(
        factor=1.25,
        deviation=0.05,
        num_runs=9,
        parts=(
            PartFactor(part="optimizer_s", factor=2.0, deviation=0.1),
            PartFactor(part="host_s", factor=1.0, deviation=1.0),
        ),
        correlations=((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ),
    median_error=0.213,
    left_out_error=0.041,
)


def test_what_was_learnt_has_the_same_figures_on_all_surfaces() -> None:
    figures = ("h100-sxm", "nvlink4", "ndr400", "trainer ours", "1,234", "5", "1.25 ×", "± 7 %", "21.3 %", "4.1 %")
    for text in surfaces(calibrations_report([LESSON])):
        assert [one for one in (*figures, "optimizer 2.00 ×", "2025-10-09 08:53 UTC") if one not in text] == []
        assert "launches" not in text
    document = documents.write(LESSON)
    assert document["whole_step"] == {
        "factor": 1.25,
        "relative_error": pytest.approx(0.0662, abs=1e-4),
        "differs": True,
    }
    assert [name for name, part in document["parts"].items() if part["differs"]] == ["optimizer_s"]
    assert documents.restore(Lesson, document) == LESSON


def test_where_every_trial_ran_out_of_memory_nothing_is_known_of_times() -> None:
    nothing = replace(LESSON, calibration=None, median_error=None, left_out_error=None)
    assert documents.write(nothing)["whole_step"] is None
    for text in surfaces(calibrations_report([nothing])):
        assert "as the whole" in text
    for text in surfaces(calibrations_report([], "http://here")):
        assert "--server http://here" in text
