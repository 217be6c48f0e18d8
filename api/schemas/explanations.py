"""Why a layout is predicted as it is, and what measured layouts say about one choice at a time."""

from __future__ import annotations

from dataclasses import dataclass

from api.schemas.predictions import Predicted
from autotuner.domain.layout import Layout
from autotuner.search.explain.explanation import MemoryPart, Refusal, TimePart
from autotuner.search.explain.pairwise import Insight

__all__ = ["LayoutChange", "LayoutExplanation", "SweepRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    """A legal layout one step away.

    Attributes:
        change: What differs: ``tensor 4 → 2, replicate 8 → 16``.
        label: The layout after the change, in short.
        saved_share: Predicted step time saved, as a share of the present step; below 0 where it grows.
        excess_bytes: How far the predicted peak lies above the limit; 0 where it fits.
        sentence: What the change does to time and memory.
    """

    change: str
    label: str
    layout: Layout
    predicted: Predicted
    saved_share: float
    excess_bytes: float
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutExplanation:
    """One layout: where its time and memory go, and what its neighbours promise. Nothing here was measured.

    Attributes:
        label: The layout in short.
        time: Parts that take time, longest first.
        memory: Parts that take memory, largest first.
        limit_bytes: What a rank may allocate.
        margin_bytes: The limit less the predicted peak; below 0 where it does not fit.
        helpful: Changes that fit and save 1 % or more, fastest first; where the layout itself does not fit, those
            that do.
        too_large: Changes that would save as much and do not fit, the nearest to fitting first.
        illegal: Changes that break a rule.
    """

    label: str
    layout: Layout
    predicted: Predicted
    time: tuple[TimePart, ...]
    memory: tuple[MemoryPart, ...]
    limit_bytes: float
    margin_bytes: float
    helpful: tuple[LayoutChange, ...]
    too_large: tuple[LayoutChange, ...]
    illegal: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRules:
    """What the measured trials of a sweep say about one choice at a time.

    Attributes:
        num_measured: Trials with a measured step time.
        items: One statement per choice and change; those without pairs say so.
    """

    num_measured: int
    items: tuple[Insight, ...]
