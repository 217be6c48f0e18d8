from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.layouts.choice import GradientSync
from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.loss_gate import GateOutcome, GateResult, LossGate
from autotuner.core.runs.time_to_loss import time_to_loss_s
from autotuner.core.runs.trial import Trial, TrialState
from tests.builders import cpu_layout, measurement, prediction

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
