"""Whether one layout is slower than another, or than it was: the runs, how strictly they are judged, what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotuner.core import check
from autotuner.errors import InvalidInput

__all__ = ["Comparison", "Decision", "RunGroup", "SequentialTest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Equal runs of one layout in one sitting.

    Attributes:
        rates: Tokens per second of each run, in their order. Under one reference peak MFU is proportional to it; on
            cores, where that peak is itself measured, it is the steadier of the two.
        mfu: Mean MFU of the runs, for people.
        at: When the first of them ended, epoch seconds.
        environment: What they ran on, as their trials recorded it.
    """

    rates: tuple[float, ...]
    mfu: float
    at: float
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rates or min(self.rates) <= 0:
            raise InvalidInput("rates", list(self.rates), "must be one or more rates above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialTest:
    """How strictly runs are compared: they are measured again until the test decides, or they are too many.

    Attributes:
        tolerance: Relative loss that is accepted, however sure it is.
        loss: Relative loss that must be found.
        false_alarms: Most of the comparisons of equal layouts that may end as slower.
        power: Least of those of a layout slower by ``loss`` that must end as slower.
        min_runs: Fewest runs of the candidate before anything is decided.
        max_runs: Most runs of the candidate; what is not decided by then stays undecided.
    """

    tolerance: float = 0.02
    loss: float = 0.05
    false_alarms: float = 0.01
    power: float = 0.95
    min_runs: int = 3
    max_runs: int = 40

    def __post_init__(self) -> None:
        check.non_negative(self, "tolerance")
        check.fraction(self, "loss", "false_alarms", "power")
        check.positive(self, "loss", "false_alarms", "power", "min_runs")
        for name, nearest in (("loss", 0.99), ("power", 0.999), ("false_alarms", 0.5)):
            if getattr(self, name) >= 1:
                raise InvalidInput(name, getattr(self, name), "must be less than 1: nothing is that sure", nearest)
        if self.tolerance >= self.loss:
            raise InvalidInput("tolerance", self.tolerance, f"must be less than the loss to find, {self.loss:g}", 0.0)
        if self.max_runs < self.min_runs:
            rule = f"must be at least the fewest runs, {self.min_runs}"
            raise InvalidInput("max_runs", self.max_runs, rule, self.min_runs)


class Decision(StrEnum):
    """What a comparison says of the candidate."""

    SLOWER = "slower"  # by more than the tolerance, and outside the noise
    NOT_SLOWER = "not_slower"
    UNDECIDED = "undecided"  # the runs scatter too much for so few of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A candidate beside its reference.

    Attributes:
        change: Relative change of the rate from the reference to the candidate; below 0: the candidate is slower.
        low: Lower end of the 95 % interval of the change.
        high: Its upper end.
        noise: Relative standard deviation from run to run.
        num_reference: Runs of the reference.
        num_candidate: Runs of the candidate.
        detail: The decision with its numbers, as a sentence without a full stop.
    """

    decision: Decision
    change: float
    low: float
    high: float
    noise: float
    num_reference: int
    num_candidate: int
    detail: str
