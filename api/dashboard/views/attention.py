"""What needs attention, as lines that end in the next click."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.dashboard.views.sweep_list import moment
from autotuner.core.announcement import Trouble, TroubleKind
from autotuner.search.upkeep.attention import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLine:
    """One thing that needs somebody.

    Attributes:
        state: Class of its sign: ``failed`` or ``warned``.
        word: What it is.
        name: Whose it is.
        said: What happened.
        path: Where the click leads.
        action: What the click says.
        when: Its time in words.
    """

    state: str
    word: str
    name: str
    said: str
    path: str
    action: str
    when: str
    at: float


_WORDS: Mapping[TroubleKind, tuple[str, str, str]] = {
    TroubleKind.NO_WORKER: ("failed", "no worker", "See what waits"),
    TroubleKind.REGRESSION: ("warned", "regression", "See the nights"),
    TroubleKind.RETUNE_COULD_NOT_RUN: ("failed", "could not run", "See the nights"),
    TroubleKind.GATE_FAILED: ("failed", "gate failed", "See the gate"),
    TroubleKind.GATE_COULD_NOT_RUN: ("failed", "gate not run", "See the gate"),
    TroubleKind.GATE_UNDECIDED: ("warned", "gate undecided", "See the gate"),
    TroubleKind.SWEEP_FAILED: ("failed", "failed", "See the sweep"),
    TroubleKind.CHECK_FAILED: ("failed", "check failed", "See the cluster"),
    TroubleKind.DELIVERIES_DEAD: ("failed", "not delivered", "See the deliveries"),
}


def attention_lines(troubles: Sequence[Trouble], now: float) -> tuple[AttentionLine, ...]:
    """A line for each, in their order."""
    return tuple(_line(trouble, now) for trouble in troubles)


def _line(trouble: Trouble, now: float) -> AttentionLine:
    state, word, action = _WORDS[trouble.kind]
    return AttentionLine(
        state=state,
        word=word,
        name=trouble.name,
        said=_said(trouble),
        path=place_of(trouble),
        action=action,
        when=f"since {moment(trouble.at, now)}" if trouble.kind is TroubleKind.NO_WORKER else moment(trouble.at, now),
        at=trouble.at,
    )


def _said(trouble: Trouble) -> str:
    if trouble.kind is not TroubleKind.DELIVERIES_DEAD:
        return trouble.detail
    what = "a delivery was" if trouble.count == 1 else f"{trouble.count} deliveries were"
    return f"{what} given up: {trouble.detail}"
