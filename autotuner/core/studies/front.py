"""The front of a study: trials of which none was both faster and cheaper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotuner.core.studies.trial import OptimizerTrial, TargetReached

__all__ = ["dominates", "front"]


def front(trials: Iterable[OptimizerTrial]) -> Sequence[OptimizerTrial]:
    """Those at the target that no other beats in time without taking more accelerator-hours; the fastest first."""
    reached = [(trial, trial.reached) for trial in trials if trial.reached is not None]
    best = [trial for trial, own in reached if not any(dominates(other, own) for _, other in reached)]
    return sorted(best, key=lambda trial: (trial.reached.time_s if trial.reached else 0.0, trial.number))


def dominates(one: TargetReached, other: TargetReached) -> bool:
    """Whether one is no worse in both, time and accelerator-hours, and better in one."""
    ours, theirs = (one.time_s, one.accelerator_hours), (other.time_s, other.accelerator_hours)
    return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]
