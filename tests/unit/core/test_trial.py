"""Tests of ``autotuner.core.trial``."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from autotuner.core.choices import GradientSync
from autotuner.core.convergence_gate import GateOutcome, GateResult, LossGate
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.trial import PastTrial, Trial, TrialState, time_to_loss_s
from tests.builders import big_job, cpu_layout, measurement, prediction

GATE = LossGate(num_lossy_steps=20)
DILOCO = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DILOCO)
PASSED = GateResult(
    outcome=GateOutcome.PASSED,
    detail="within 2 %",
    reference=cpu_layout(data_parallel_replicate_degree=2),
    tolerance=0.02,
    reference_steps=32,
    steps_to_loss=40.0,
)


def trial(layout: Layout, gate: GateResult | None = None) -> Trial:
    return Trial(
        id="sw-0",
        sweep_id="sw",
        number=0,
        state=TrialState.COMPLETE,
        layout=layout,
        prediction=prediction(),
        measurement=measurement(step_time_s=0.5),
        gate=gate,
    )


def test_a_plain_layout_needs_the_steps_of_the_gate() -> None:
    assert time_to_loss_s(trial(cpu_layout()), GATE) == 10.0


def test_a_gated_layout_needs_the_steps_that_its_gate_found_for_as_many_of_its_reference() -> None:
    assert time_to_loss_s(trial(DILOCO, PASSED), GATE) == pytest.approx(20 * 40 / 32 * 0.5)  # but for rounding


@pytest.mark.parametrize(
    "gate", [None, replace(PASSED, outcome=GateOutcome.FAILED), replace(PASSED, steps_to_loss=None)]
)
def test_nothing_is_known_of_a_layout_that_no_gate_passed(gate: GateResult | None) -> None:
    assert time_to_loss_s(trial(DILOCO, gate), GATE) is None


def test_without_a_gate_there_is_no_loss_to_come_to() -> None:
    assert time_to_loss_s(trial(cpu_layout()), replace(GATE, enabled=False)) is None


LEGAL = {
    (TrialState.QUEUED, TrialState.RUNNING),
    (TrialState.QUEUED, TrialState.CANCELLED),
    (TrialState.RUNNING, TrialState.COMPLETE),
    (TrialState.RUNNING, TrialState.PRUNED),
    (TrialState.RUNNING, TrialState.FAILED),
    (TrialState.RUNNING, TrialState.CANCELLED),
    (TrialState.RUNNING, TrialState.QUEUED),  # interrupted, to be tried again
    (TrialState.RUNNING, TrialState.WAITING),
    *((TrialState.WAITING, new) for new in TrialState),  # another reason to wait, or any end of a started trial
    (TrialState.CANCELLED, TrialState.QUEUED),  # cut short by the end of a sweep that is opened again
}


@pytest.mark.parametrize(("old", "new"), sorted(LEGAL))
def test_a_legal_step_leads_to_the_new_state(old: TrialState, new: TrialState) -> None:
    assert old.to(new) is new


@pytest.mark.parametrize(("old", "new"), sorted(set(product(TrialState, TrialState)) - LEGAL))
def test_every_other_step_is_a_conflict_that_names_both(old: TrialState, new: TrialState) -> None:
    with pytest.raises(Conflict, match=f"a {old.value} trial cannot become {new.value}"):
        old.to(new)


def test_a_finished_trial_has_no_next_state_but_one_that_was_cut_short() -> None:
    left = {old for old, _ in LEGAL if old.finished}
    assert left == {TrialState.CANCELLED}


_JOB = big_job()
_TRIAL = PastTrial(
    job=_JOB,
    layout=Layout(data_parallel_shard_degree=_JOB.cluster.world_size),
    step_time_s=1.0,
    sweep_id="s",
    finished_at=0.0,
)


def test_a_trial_without_a_step_time_ran_out_of_memory() -> None:
    assert replace(_TRIAL, step_time_s=None).ran_out_of_memory
    assert not _TRIAL.ran_out_of_memory


def test_a_step_time_of_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="step_time_s"):
        replace(_TRIAL, step_time_s=0.0)


def test_a_layout_of_other_ranks_than_the_cluster_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="ranks"):
        replace(_TRIAL, layout=Layout())
