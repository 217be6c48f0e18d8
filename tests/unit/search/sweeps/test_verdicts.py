from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import GradientSync
from autotuner.core.columns import LayoutColumns
from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.layout import Layout
from autotuner.core.trial import Trial, TrialState
from autotuner.search.sweeps.convergence_gate import rejected_rows, verdict_of
from tests.builders import cpu_layout, measurement, prediction

DEMO = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)
FASTER = replace(DEMO, micro_batch_size=2)
LESS = replace(FASTER, sync_top_k=2)
MORE = replace(FASTER, sync_top_k=8)


def gated(layout: Layout, outcome: GateOutcome, *, target_loss: float | None = 4.0) -> Trial:
    gate = GateResult(outcome=outcome, detail="found", reference=cpu_layout(), tolerance=0.02, target_loss=target_loss)
    return Trial(
        id="sw-7",
        sweep_id="sw",
        number=7,
        state=TrialState.COMPLETE,
        layout=layout,
        prediction=prediction(),
        measurement=measurement(),
        gate=gate,
    )


def outcome_of(layout: Layout, trial: Trial) -> GateOutcome | None:
    found = verdict_of(layout, [trial])
    return None if found is None else found.outcome


def test_a_pass_holds_for_the_same_mathematics_alone() -> None:
    passed = gated(DEMO, GateOutcome.PASSED)
    assert outcome_of(FASTER, passed) is GateOutcome.PASSED
    assert outcome_of(LESS, passed) is outcome_of(MORE, passed) is None


def test_a_failure_holds_for_what_sends_less_too() -> None:
    failed = gated(DEMO, GateOutcome.FAILED)
    assert outcome_of(FASTER, failed) is outcome_of(LESS, failed) is GateOutcome.FAILED
    assert outcome_of(MORE, failed) is None


def test_a_verdict_says_whose_it_is() -> None:
    failed = gated(DEMO, GateOutcome.FAILED)
    same, less = verdict_of(FASTER, [failed]), verdict_of(LESS, [failed])
    assert same is not None
    assert (same.shared_from, same.detail) == (7, "as trial 7, which has the same mathematics: found")
    assert less is not None
    assert less.detail == "as trial 7, which sends more: found"


def test_what_died_in_a_gate_says_nothing_of_other_layouts() -> None:
    died = gated(DEMO, GateOutcome.FAILED, target_loss=None)
    assert outcome_of(FASTER, died) is None
    assert not rejected_rows(LayoutColumns.from_layouts([FASTER]), [died]).size


def test_rows_that_a_failure_holds_for_are_not_tried() -> None:
    rows = LayoutColumns.from_layouts([cpu_layout(), DEMO, MORE, LESS])
    assert rejected_rows(rows, [gated(DEMO, GateOutcome.FAILED)]).tolist() == [1, 3]
    assert not rejected_rows(rows, [gated(DEMO, GateOutcome.PASSED)]).size
