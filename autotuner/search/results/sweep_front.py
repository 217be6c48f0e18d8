"""SweepFront: the Pareto front of a sweep, and the reasons why each layout is on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autotuner.core.columns import Booleans, Floats
from autotuner.core.layout import Layout
from autotuner.core.objective import Metric, Weight
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.sampler.pareto import (
    Frontier,
    Valued,
    dominators,
    log_values,
    non_dominated,
    reference_below,
    trial_values,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The relative difference of one metric between two trials of a sweep."""

    metric: Metric
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """A step from one trial on the Pareto front to another trial on it. It improves some metrics and worsens others."""

    trial: int
    """Number of the trial to which the step leads."""
    gains: tuple[Change, ...]
    """Metrics in which that trial is better."""
    costs: tuple[Change, ...]
    """Metrics in which that trial is worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """A trial on the Pareto front: no other trial is at least as good in all metrics and better in one of them."""

    trial: int
    """Number of the trial in its sweep."""
    layout: Layout
    values: tuple[float, ...]
    """Values of the trial, one for each metric of the front."""
    relative_error: float
    """Half-width of the interval of the trial's step time (and so of every rate), as a share."""
    best_in: tuple[Metric, ...]
    """Metrics in which no other trial has a higher value."""
    trades: tuple[Trade, ...]
    """Nearest trials on the front with more of some other metric, each trial once."""
    num_beaten: int
    """Number of trials that this trial dominates: they are better in no metric and worse in at least one."""
    volume_share: float
    """Share of the hypervolume that the front would lose without this trial."""
    is_knee: bool
    """True if the trial is nearest to the best value of every metric. Only a front of three or more trials has such a
    knee."""
    is_first: bool
    """True if the trial is the first by the sweep's metric or profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A ranked trial that is not on the Pareto front, and a trial on the front that dominates it.

    The second trial is at least as good in every metric and better in some.
    """

    trial: int
    """Number of the trial in its sweep."""
    values: tuple[float, ...]
    by: int
    """Number of a trial on the front that is as good in every metric and better in some."""
    changes: tuple[Change, ...]
    """Metrics in which the trial ``by`` is better."""
    may_belong: bool
    """True if the trial may be on the front in truth: no trial would dominate it if the errors of both were as large as
    their intervals allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The hypervolume of the Pareto front of the first n trials, as a share of the front's present hypervolume.

    ``trial`` is the number of the last of these trials. The hypervolume is the volume of metric values that the front
    dominates.
    """

    trial: int
    volume_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFront:
    """The Pareto front of a sweep so far: the ranked trials that no other trial dominates.

    A trial dominates another trial if it is at least as good in all metrics and better in one of them.
    """

    metrics: tuple[Metric, ...]
    """Metrics of the front. The fields ``values`` have the same order."""
    profile: tuple[Weight, ...]
    """Weight of each metric, which selects one trial of the front; empty: the sweep's metric selects it."""
    points: tuple[FrontPoint, ...]
    """Trials on the front, from the highest value of the first metric down."""
    behind: tuple[Behind, ...]
    """Other ranked trials, by number."""
    num_without_values: int
    """Number of ranked trials that are left out, because the value of some metric is unknown."""
    progress: tuple[Reach, ...]
    """Hypervolume after each ranked trial, by number."""


def sweep_front(
    request: SweepRequest,
    trials: Sequence[Trial],
    metrics: Sequence[Metric] = (),
    profile: Sequence[Weight] = (),
) -> SweepFront:
    """Return the Pareto front of a sweep: the ranked trials that no other trial dominates, with the trials behind it.

    Args:
        request: The request of the sweep.
        trials: All trials of the sweep.
        metrics: Metrics of the front. Empty: the metrics in the sweep's request; if the request has none, speed, energy
            (if the accelerator's power is known) and simplicity.
        profile: Weight of each metric for the choice of one best trial on the front. Empty: the sweep's own objective
            chooses.
    """
    energy = (Metric.TOKENS_PER_JOULE,) if request.job.cluster.accelerator.power_w else ()
    asked = tuple(metrics) or request.objective.front or (Metric.MFU, *energy, Metric.SIMPLICITY)
    objective = replace(request.objective, profile=tuple(profile)) if profile else request.objective
    ranked = objective.ranked(trials)
    valued = trial_values(objective, asked, ranked)
    first = valued[0].trial.number if valued else None
    drawn = _Drawn.of(request, asked, sorted(valued, key=lambda one: one.trial.number))
    return SweepFront(
        metrics=asked,
        profile=objective.profile,
        points=drawn.points(first),
        behind=drawn.behind(),
        num_without_values=len(ranked) - len(valued),
        progress=drawn.progress(),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Drawn:
    """Trials by number, with the logarithms of their values: one row per trial, one column per metric."""

    metrics: tuple[Metric, ...]
    every: Sequence[Valued]
    errors: Floats
    """Half-width of the interval of each trial's step time, as a share."""
    logs: Floats
    stays: Booleans

    @classmethod
    def of(cls, request: SweepRequest, metrics: tuple[Metric, ...], every: Sequence[Valued]) -> _Drawn:
        logs = log_values(every).reshape(-1, len(metrics))
        reached = [one.trial.reached for one in every if one.trial.reached is not None]
        errors = np.array([request.objective.counted(one).relative_error for one in reached], dtype=np.float64)
        return cls(metrics=metrics, every=every, errors=errors, logs=logs, stays=non_dominated(logs))

    def points(self, first: int | None) -> tuple[FrontPoint, ...]:
        """Return the points of the front, from the highest value of the first metric down."""
        rows = np.flatnonzero(self.stays)
        ordered: list[int] = rows[np.lexsort((rows, -self.logs[rows, 0]))].tolist()
        knee, volume_shares = self._knee(), self._volume_shares()
        return tuple(self._point(row, first, is_knee=row == knee, volume_share=volume_shares[row]) for row in ordered)

    def _point(self, row: int, first: int | None, *, is_knee: bool, volume_share: float) -> FrontPoint:
        one, best = self.every[row], self.logs.max(axis=0)
        best_in = tuple(m for m, own, most in zip(self.metrics, self.logs[row], best, strict=True) if own == most)
        beaten = (self.logs <= self.logs[row]).all(axis=1) & (self.logs < self.logs[row]).any(axis=1)
        return FrontPoint(
            trial=one.trial.number,
            layout=one.trial.layout,
            values=one.values,
            relative_error=float(self.errors[row]),
            best_in=best_in,
            trades=self._trades(row),
            num_beaten=int(beaten.sum()),
            volume_share=volume_share,
            is_knee=is_knee,
            is_first=one.trial.number == first,
        )

    def _trades(self, row: int) -> tuple[Trade, ...]:
        others = [self._nearest(row, column) for column in range(len(self.metrics))]
        return tuple(self._trade(row, other) for other in dict.fromkeys(others) if other is not None)

    def _nearest(self, row: int, column: int) -> int | None:
        """Return the row of the front with the next higher value of a metric.

        Of rows with equal values, it is the one that costs the least in the other metrics.
        """
        own = self.logs[row, column]
        more = np.flatnonzero(self.stays & (self.logs[:, column] > own))
        if not more.size:
            return None
        return int(more[np.lexsort((-self.logs[more].sum(axis=1), self.logs[more, column]))[0]])

    def _trade(self, row: int, other: int) -> Trade:
        changes = self._changes(row, other)
        return Trade(
            trial=self.every[other].trial.number,
            gains=tuple(one for one in changes if one.share > 0),
            costs=tuple(one for one in changes if one.share < 0),
        )

    def _changes(self, row: int, other: int) -> list[Change]:
        shares: list[float] = np.expm1(self.logs[other] - self.logs[row]).tolist()
        return [Change(metric=metric, share=share) for metric, share in zip(self.metrics, shares, strict=True)]

    def _knee(self) -> int | None:
        """Return the row that is nearest to the best value of every metric.

        The range of each metric counts as 1 (Zeleny 1973).
        """
        rows = np.flatnonzero(self.stays)
        if len(rows) < 3:
            return None
        front = self.logs[rows]
        reach = np.ptp(front, axis=0)
        lacking = (front.max(axis=0) - front) / np.where(reach > 0, reach, 1.0)
        return int(rows[np.argmin(np.square(lacking).sum(axis=1))])

    def _volume_shares(self) -> Mapping[int, float]:
        """Return the share of the hypervolume that the front would lose without each of its rows."""
        rows: list[int] = np.flatnonzero(self.stays).tolist()
        if not rows:
            return {}
        reference = reference_below(self.logs)
        whole = Frontier(points=self.logs[rows], reference=reference).volume
        without = [Frontier(points=self.logs[[r for r in rows if r != row]], reference=reference) for row in rows]
        return {row: 1 - one.volume / whole for row, one in zip(rows, without, strict=True)}

    def behind(self) -> tuple[Behind, ...]:
        """Return all trials that are not on the front."""
        return tuple(self._behind(int(row)) for row in np.flatnonzero(~self.stays))

    def _behind(self, row: int) -> Behind:
        better = [int(other) for other in dominators(self.logs, row) if self.stays[other]]
        by = max(better, key=lambda other: float(self.logs[other].sum()))
        low, high = self._reach
        beaten = (low >= high[row]).all(axis=1) & (low > high[row]).any(axis=1)
        beaten[row] = False
        return Behind(
            trial=self.every[row].trial.number,
            values=self.every[row].values,
            by=self.every[by].trial.number,
            changes=tuple(one for one in self._changes(row, by) if one.share > 0),
            may_belong=not beaten.any(),
        )

    @cached_property
    def _reach(self) -> tuple[Floats, Floats]:
        """Return the log values at the longest and at the shortest step times that the intervals allow."""
        errors = np.log1p(self.errors)[:, None]
        is_rate = np.array([metric.is_rate for metric in self.metrics])
        return self.logs - np.where(is_rate, errors, 0.0), self.logs + np.where(is_rate, errors, 0.0)

    def progress(self) -> tuple[Reach, ...]:
        """Return the hypervolume after each trial, as a share of the last."""
        if not self.every:
            return ()
        frontier = Frontier(points=self.logs[:0], reference=reference_below(self.logs))
        volumes = [frontier.volume]
        for row in range(len(self.every)):
            added = float(frontier.gains(self.logs[row]))
            volumes.append(volumes[-1] + added)
            if added:
                frontier = Frontier.of(np.vstack([frontier.points, self.logs[row]]), frontier.reference)
        shares = [volume / volumes[-1] for volume in volumes[1:]]
        return tuple(Reach(trial=one.trial.number, volume_share=at) for one, at in zip(self.every, shares, strict=True))
