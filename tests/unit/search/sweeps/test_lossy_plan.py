"""A sweep over lossy exchanges: what is gated when, whose verdicts hold for whom, and what is tried after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from autotuner.core.choices import GradientSync
from autotuner.core.convergence_gate import GateOutcome, GateResult, LossGate
from autotuner.core.layout import Layout
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Trial
from autotuner.runs.sweep import SweepMachine
from autotuner.search.space.trainers import trial_space
from autotuner.search.sweeps.instructions import Finish, RunGate, RunTrial
from tests.builders import measurement, sweep_request, tiny_job, tiny_space, trial


def lossy_request(**changes: object) -> SweepRequest:
    """Two replicas that exchange all, or some components of three micro-batch sizes."""
    space = tiny_space(
        gradient_sync=(GradientSync.FULL, GradientSync.DEMO),
        sync_top_k=(2, 4),
        micro_batch_size=(1, 2),
        pipeline_parallel_degree=(1,),
        tensor_parallel_degree=(1,),
        data_parallel_shard_degree=(1,),
    )
    request = sweep_request(space=space, budget=Budget(num_trials=1000, min_gain=0, prune_below=0.0))
    return replace(request, **changes)  # type: ignore[arg-type]  # the fields are the caller's business


def plan_for(request: SweepRequest) -> SweepMachine:
    return SweepMachine(request, [], started_at=0.0)


def finished(order: RunTrial, *, lossy_s: float) -> Trial:
    """What is lossy takes so long, all else a second; larger micro-batches a little less."""
    layout = order.layout
    seconds = (lossy_s if layout.needs_passed_gate else 1.0) * (1 - 0.01 * layout.micro_batch_size)
    reached = measurement(step_time_s=seconds, mfu=0.4 / seconds, peak_bytes=(1,))
    times = {"started_at": 0.0, "finished_at": 10.0}
    return trial(layout, order.number, prediction=order.prediction, measurement=reached, **times)


def played(
    plan: SweepMachine, verdict: GateOutcome, finish: Callable[[RunTrial], Trial]
) -> tuple[list[Trial], list[Layout]]:
    """Every trial as it stands at the end, and what was trained in a gate, of which all have this verdict."""
    trials: dict[int, Trial] = {}
    trained = []
    while not isinstance(order := plan.decide(0.0), Finish):
        if isinstance(order, RunTrial):
            trials[order.number] = finish(order)
            plan.finished(trials[order.number])
            continue
        assert isinstance(order, RunGate)
        found = GateResult(outcome=verdict, detail="", reference=order.reference, tolerance=0.02, target_loss=4.0)
        if order.known is None:
            trained.append(order.trial.layout)
        plan.gate_started(order.trial, 0.0)
        trials[order.trial.number] = replace(order.trial, gate=order.known or found)
        plan.gate_ended(trials[order.trial.number])
    return list(trials.values()), trained


def test_what_leads_is_gated_before_it_has_a_rank_and_its_verdict_ranks_all_with_its_mathematics() -> None:
    request = lossy_request()
    trials, trained = played(plan_for(request), GateOutcome.PASSED, partial(finished, lossy_s=0.5))
    assert sorted(layout.sync_top_k for layout in trained) in ([2, 4], [2], [4])  # one for each that led, none twice
    ranked = request.objective.ranked(trials)
    assert ranked[0].layout.gradient_sync == GradientSync.DEMO
    assert all(trial.gate is not None for trial in ranked if trial.layout.needs_passed_gate)
    shared = [trial for trial in trials if trial.gate is not None and trial.gate.shared_from is not None]
    assert shared


def test_what_fails_has_no_rank_and_nothing_is_tried_that_sends_less() -> None:
    request = lossy_request()
    trials, trained = played(plan_for(request), GateOutcome.FAILED, partial(finished, lossy_s=0.5))
    assert all(not trial.layout.needs_passed_gate for trial in request.objective.ranked(trials))
    lossy = [trial.layout for trial in trials if trial.layout.needs_passed_gate]
    assert len({layout.sync_top_k for layout in trained}) == len(trained)
    assert len(lossy) < len([trial for trial in trials if not trial.layout.needs_passed_gate])


def test_slower_or_ungated_exchanges_are_never_trained_in_a_gate_and_have_no_rank() -> None:
    request = lossy_request()
    trials, trained = played(plan_for(request), GateOutcome.PASSED, partial(finished, lossy_s=2.0))
    assert not trained
    assert all(not trial.layout.needs_passed_gate for trial in request.objective.ranked(trials))
    request = lossy_request(loss_gate=LossGate(enabled=False))
    trials, trained = played(plan_for(request), GateOutcome.PASSED, partial(finished, lossy_s=0.5))
    assert not trained
    assert any(trial.layout.needs_passed_gate for trial in trials)
    assert all(not trial.layout.needs_passed_gate for trial in request.objective.ranked(trials))


def test_a_space_that_names_an_exchange_alone_tries_a_ladder_of_its_details() -> None:
    space = trial_space(tiny_job(), None, {"gradient_sync": (GradientSync.FULL, GradientSync.DEMO)})
    assert space.values("sync_top_k") == (2, 4, 8)
    assert space.values("sync_sign") == (True, False)
    assert space.values("sync_period") == (16,)
