"""Reports of optimizer studies: every surface shows the same figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotuner.core import documents
from autotuner.core.run import RunState, Stop
from autotuner.core.study import OptimizerTrial, PruneReason, StudyProgress, StudyRun
from autotuner.core.trial import TrialState
from autotuner.report.charts import Plot
from autotuner.report.study import candidate_line, studies_report, study_report
from tests.builders import present
from tests.studies import reached_trial, study_request, study_trial
from tests.unit.report.surfaces import surfaces

TRIALS = (reached_trial(0, 2.0, 3.0), reached_trial(1, 8.0, 1.0), study_trial(2, 6.0, 5.9123))


def study(*trials: OptimizerTrial, **changes: Any) -> StudyRun:
    """A study that is complete."""
    value = StudyRun(
        id="os-test",
        subject="",
        created_by="",
        request=study_request(name="AdamW or LAMB"),
        state=RunState.COMPLETE,
        detail="3 candidates were tried",
        created_at=0.0,
        due_at=0.0,
        finished_at=60.0,
        progress=StudyProgress(trials=trials or TRIALS, refusals=("lamb: it shards",)),
    )
    return replace(value, **changes)


def test_a_study_has_the_same_figures_on_every_surface() -> None:
    soonest, cheapest = study().best[0].reached, study().best[-1].reached
    figures = (
        f"{present(soonest).accelerator_hours:.3g}",
        f"{present(cheapest).accelerator_hours:.3g}",
        f"{present(soonest).num_steps} steps",
        f"{study_trial(2, 6.0, 5.9123).curve.smoothed(32)[-1]:.4g}",
        "of 4 candidates at most",
        "3 candidates were tried",
        "Not tried: Lamb: it shards.",
    )
    for shown in surfaces(study_report(study())):
        for figure in figures:
            assert figure.lower() in shown.lower()
    document = documents.write(study())
    tried = document["progress"]["trials"]
    assert (document["name"], document["front"]) == ("AdamW or LAMB", [0, 1])
    assert tried[0]["reached"]["accelerator_hours"] == present(soonest).accelerator_hours
    assert (
        tried[2]["curve"]["num_steps"],
        tried[2]["curve"]["step_time_s"],
    ) == (2, 1.0)


def test_a_list_names_each_study_with_its_target_and_how_it_ended() -> None:
    for shown in surfaces(studies_report([study(progress=None)], 1)):
        for words in ("AdamW or LAMB", "os-test", "complete", "3 candidates were tried"):
            assert words.lower() in shown.lower()
    assert "autotuner optimizer tune" in surfaces(studies_report([], 0))[0]


def test_curves_are_pale_but_for_the_candidates_at_the_target_and_one_point_is_no_front() -> None:
    curves, front = (present(study_report(study())[key]).blocks[0] for key in ("curves", "front"))
    assert isinstance(curves, Plot)
    assert isinstance(front, Plot)
    assert study_report(study(reached_trial(0, 2.0, 3.0)))["front"] is None
    assert study_report(study(replace(study_trial(0, 6.0), state=TrialState.FAILED)))["curves"] is None


def test_a_study_that_runs_tells_that_it_was_asked_to_end() -> None:
    running = study(state=RunState.RUNNING, detail="", finished_at=None, wanted=Stop.CANCEL)
    assert "It was asked to end." in surfaces(study_report(running))[0]


def test_a_candidate_that_ended_is_a_line() -> None:
    ended = study_trial(3, 6.0, 5.9)
    name = "3: adamw, learning rate 0.001, batch 16, data-parallel degree 2"
    assert candidate_line(ended) == f"{name}: complete, not at the target after 32 sequences"
    beaten = replace(ended, state=TrialState.PRUNED, pruned=PruneReason(time_s=4.0, beaten_by=7))
    sooner = "number 7 came to the target sooner and for less, after 4 s"
    assert candidate_line(beaten) == f"{name}: pruned, {sooner}"
    above = replace(beaten, pruned=PruneReason(time_s=12.0, loss=5.9, median=5.1))
    assert candidate_line(above).endswith(
        "its loss of 5.9 after 12 s lies above 5.1, the median of the others' by then"
    )
