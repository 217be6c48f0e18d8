"""What is announced of a sweep that has ended."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.announcement import AnnouncementKind, announce_end
from autotuner.core.objective import Objective
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, SweepOverview
from autotuner.core.trial import TrialState

ENDED = SweepOverview(
    id="sw-x",
    name="weekly",
    model="tiny",
    cluster="cpu:2",
    trial_cluster=None,
    engine="local",
    state=RunState.COMPLETE,
    created_at=1.0,
    started_at=2.0,
    finished_at=9.0,
    cancel_requested=False,
    stop_reason=StopReason.TRIAL_BUDGET,
    stop_detail="4 of 4 trials ran",
    budget=Budget(),
    objective=Objective(),
    num_trials={TrialState.COMPLETE: 3, TrialState.FAILED: 1},
    accelerator_hours=0.5,
    best_value=0.382,
    best_mfu=0.382,
)


def test_it_says_how_the_sweep_ended_and_the_best_that_it_found() -> None:
    told = announce_end(ENDED)
    assert (told.id, told.at, told.kind) == ("an-sw-x", 9.0, AnnouncementKind.SWEEP_FINISHED)
    assert told.title == "Sweep weekly, tiny on cpu:2: complete, best MFU 38.2 % measured"
    assert (told.text, told.path, told.subject_id) == ("4 of 4 trials ran", "/sweeps/sw-x", "sw-x")
    assert (told.facts["num_trials"], told.facts["accelerator_hours"]) == (4, 0.5)


def test_a_sweep_without_a_name_or_a_result_is_told_by_its_id() -> None:
    told = announce_end(replace(ENDED, name="", state=RunState.FAILED, best_mfu=None, stop_reason=None))
    assert told.title == "Sweep sw-x, tiny on cpu:2: failed"
    assert (told.facts["best_measured_mfu"], told.facts["stop_reason"]) == (None, None)


def test_what_nobody_measured_at_that_size_is_not_called_measured() -> None:
    simulated, small = replace(ENDED, engine="simulated"), replace(ENDED, cluster="cpu:8", trial_cluster="cpu:2")
    assert [announce_end(each).title.rsplit(" ", 1)[1] for each in (simulated, small)] == ["simulated", "estimated"]
    assert "best_simulated_mfu" in announce_end(simulated).facts
