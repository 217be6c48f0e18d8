"""GateReport: what a gate found, ready to be written in any format."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.upkeep import MfuGateOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """A gate that was measured or predicted, in words.

    Attributes:
        name: What was gated, one line.
        group: What such gates share, such as the name of their baseline.
        outcome: None while it runs.
        is_passed: Whether the change may be merged.
        detail: The outcome with its numbers, as a sentence without a full stop.
        badge: A few words for a badge.
        facts: Rows of a table: what, and how much.
        changes: What differs in the environment, a sentence for each.
        notes: What a reader should know beside that, a sentence for each.
        elapsed_s: What it took.
    """

    name: str
    group: str
    outcome: MfuGateOutcome | None
    is_passed: bool
    detail: str
    badge: str
    facts: tuple[tuple[str, str], ...] = ()
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    elapsed_s: float = 0.0


def outcome_in_words(outcome: MfuGateOutcome | None) -> str:
    """The outcome as people say it; of one that runs, that."""
    return "running" if outcome is None else outcome.value.replace("_", " ")
