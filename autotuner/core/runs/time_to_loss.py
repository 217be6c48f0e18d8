"""Time to a loss: what a layout's speed is worth where it does not learn as much in each step as others do."""

from __future__ import annotations

from autotuner.core.runs.loss_gate import GateOutcome, LossGate
from autotuner.core.runs.trial import Trial

__all__ = ["time_to_loss_s"]


def time_to_loss_s(trial: Trial, gate: LossGate) -> float | None:
    """Seconds to the loss that a plain layout has behind the steps of a gate of lossy layouts; None where unknown.

    Layouts that change no mathematics need just these steps; what others need, their gate found. The loss is one of
    first steps: it compares layouts, and says nothing of the end of a training.
    """
    if trial.reached is None or not gate.enabled:
        return None
    steps = _steps(trial, gate)
    return None if steps is None else steps * trial.reached.step_time_s


def _steps(trial: Trial, gate: LossGate) -> float | None:
    """Steps to the loss; what a gate of more or fewer steps found counts for as many."""
    if not trial.layout.changes_mathematics:
        return float(gate.num_lossy_steps)
    found = trial.gate
    if found is None or found.outcome is not GateOutcome.PASSED or found.steps_to_loss is None:
        return None
    return found.steps_to_loss * gate.num_lossy_steps / (found.reference_steps or gate.num_lossy_steps)
