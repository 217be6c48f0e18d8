"""Prospects: what the search of a sweep expects of going on."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core import check

__all__ = ["Prospects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """What is left to search, as of the last trial that was chosen or of the end.

    Attributes:
        num_candidates: Legal layouts that the sweep may try, each of them predicted.
        num_fitting: Those of them that are predicted to fit in memory.
        expected_gain: By which fraction one more trial is expected to raise the best value, or the hypervolume of the
            front; 0 where none is worth its while; None before anything was measured.
    """

    num_candidates: int
    num_fitting: int
    expected_gain: float | None

    def __post_init__(self) -> None:
        check.non_negative(self, "num_candidates", "num_fitting")
        if self.expected_gain is not None:
            check.non_negative(self, "expected_gain")
