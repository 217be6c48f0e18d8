"""What loss gates say in sentences: why a trial has no rank, and how long it takes to a loss."""

from __future__ import annotations

from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.trial import Trial
from autotuner.core.units import format_seconds
from autotuner.search.text.sentences import EMULATED, gate_in_words


def unranked_in_words(trial: Trial) -> str:
    """Why a trial that was measured has no rank; empty where it has one, or was not measured."""
    if trial.measurement is None or trial.is_valid:
        return ""
    if trial.layout.is_emulated:
        return EMULATED
    if trial.gate is None and not trial.layout.needs_passed_gate:
        return "its figures at full size are not estimated yet"
    if trial.gate is None:
        return (
            f"{gate_in_words(GateOutcome.NOT_GATED)}: what sends less than its gradients, or clips them early, is "
            "ranked once a gate has passed it, and none has looked at it"
        )
    return f"{gate_in_words(trial.gate.outcome)}: {trial.gate.detail}"


def time_to_loss_in_words(gate: GateResult, step_time_s: float | None) -> str:
    """When candidate and reference come to the reference's last loss; empty where that is not known.

    Args:
        gate: What was found.
        step_time_s: Of the candidate's trial.
    """
    if gate.target_loss is None or gate.reference_steps is None or gate.steps_to_loss is None:
        return ""
    mine = f"{gate.steps_to_loss:.1f} steps"
    if step_time_s is not None:
        mine += f", {format_seconds(gate.steps_to_loss * step_time_s)}"
    theirs = f"{gate.reference_steps} steps"
    if gate.reference_time_to_loss_s is not None:
        theirs += f", {format_seconds(gate.reference_time_to_loss_s)} in its gate"
    return f"to the loss {gate.target_loss:.3f}: {mine}; its reference: {theirs}"
