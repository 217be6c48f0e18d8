"""A trial, and a layout that never ran, as the pictures of a sweep take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.dashboard.charts.spread import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPoint:
    """A trial that has ended.

    Attributes:
        name: Its layout in short: ``tp4 pp2 dp8 mb1``.
        href: Its page.
        predicted: MFU with the 80 % interval.
        reached: MFU, measured, simulated or estimated, with its interval; None without a result.
        peak_bytes: What the fullest rank had; None where nobody measured it.
        failure: Why it has no result, in words; empty where it has one.
        is_out_of_memory: That is why.
        expected_gain: Share by which one more trial was expected to beat the best so far when this one was chosen;
            None where it was not recorded.
        is_incumbent: It is the layout that runs today.
    """

    number: int
    name: str
    href: str
    predicted: Spread
    predicted_bytes: float
    reached: Spread | None
    peak_bytes: float | None
    failure: str = ""
    is_out_of_memory: bool = False
    expected_gain: float | None = None
    is_incumbent: bool = False

    @property
    def mfu(self) -> float | None:
        """What it reached."""
        return None if self.reached is None else self.reached.value

    @property
    def shown_bytes(self) -> float:
        """Its peak, or what was predicted where nobody measured it."""
        return self.predicted_bytes if self.peak_bytes is None else self.peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudPoint:
    """A layout that is only predicted."""

    peak_bytes: float
    mfu: float


def reached(points: Sequence[TrialPoint]) -> list[tuple[TrialPoint, Spread]]:
    """Those with a result, beside it."""
    return [(point, point.reached) for point in points if point.reached is not None]


def by_rank(points: Sequence[TrialPoint]) -> list[tuple[TrialPoint, Spread]]:
    """Those with a result, the best first; equal ones by number."""
    return sorted(reached(points), key=lambda pair: (-pair[1].value, pair[0].number))
