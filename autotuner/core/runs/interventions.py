"""What people change of a sweep after they asked for it: pauses, reopenings, trials to be run again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotuner.core import check
from autotuner.core.runs.sweep_state import SweepEnd

__all__ = ["Interventions", "Rerun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """A trial that is to be run again.

    Attributes:
        number: The trial's.
        num_runs: How many trials of its layout there will then be that have ended, this one and all others of it.
    """

    number: int
    num_runs: int

    def __post_init__(self) -> None:
        check.non_negative(self, "number")
        check.positive(self, "num_runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interventions:
    """What people changed of a sweep since they asked for it.

    Attributes:
        idle_since: Since when it is paused, or waits after a pause or an end, though it had begun; None: it is not.
        idle_s: Seconds that it lay idle so before; the budget of time does not count them.
        num_reopened: How often it went on after an end.
        reruns: Trials that were to be run again, whether they have been or not.
        ended: How its search ended, where it was reopened only to run trials again; None: it searches.
    """

    idle_since: float | None = None
    idle_s: float = 0.0
    num_reopened: int = 0
    reruns: tuple[Rerun, ...] = ()
    ended: SweepEnd | None = None

    def idle_from(self, now: float) -> Interventions:
        """Nobody works on it from now on; unless it lay idle already."""
        return self if self.idle_since is not None else replace(self, idle_since=now)

    def taken_up(self, now: float) -> Interventions:
        """A worker works on it from now on."""
        if self.idle_since is None:
            return self
        return replace(self, idle_since=None, idle_s=self.idle_s + max(0.0, now - self.idle_since))

    def reopened(self, finished_at: float, ended: SweepEnd | None) -> Interventions:
        """It goes on after an end: to search again, or where it is told how its search ended, to run trials again."""
        return replace(self, idle_since=finished_at, num_reopened=self.num_reopened + 1, ended=ended)

    def worked_s(self, started_at: float | None, until: float) -> float:
        """Seconds since its start in which it did not lie idle."""
        if started_at is None:
            return 0.0
        end = until if self.idle_since is None else min(until, self.idle_since)
        return max(0.0, end - started_at - self.idle_s)
