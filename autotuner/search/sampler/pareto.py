"""Pareto fronts as numbers: the points that no other dominates, their hypervolume, and the expected gain of others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.core.measurement import ResourceCost
from autotuner.core.objective import WORTHWHILE_GAIN, Metric, Objective
from autotuner.core.trial import Trial


def non_dominated(values: Floats) -> Booleans:
    """Return a mask over rows: True if no other row dominates the row (as good in every column and better in one).

    Equal rows do not dominate each other. The computing time is proportional to the number of rows times the number of
    non-dominated rows.

    Args:
        values: Shape (rows, columns); higher is better.
    """
    stays = np.zeros(len(values), dtype=np.bool_)
    # In this order, no later row dominates an earlier one.
    left = np.lexsort(values.T[::-1])[::-1]
    while left.size:
        first, rest = values[left[0]], values[left]
        is_equal = (rest == first).all(axis=1)
        stays[left[is_equal]] = True
        left = left[(rest > first).any(axis=1)]
    return stays


def dominators(values: Floats, row: int) -> Integers:
    """Return the indices of the rows that dominate a given row.

    A row dominates another row if it is at least as good in every column and better in at least one.
    """
    as_good, better = (values >= values[row]).all(axis=1), (values > values[row]).any(axis=1)
    return np.flatnonzero(as_good & better)


# ---------------------------------------------------------------- the space that no point dominates
Box = tuple[tuple[float, float], ...]
"""Lower and upper bound in each dimension."""

_MOST_AT_ONCE = 1 << 21
"""Largest number of sides of boxes that are compared with points at once, which needs 16 MiB."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Boxes:
    """Boxes with edges parallel to the axes, given by their lower and upper corners: shape (boxes, dimensions).

    Upper corners may be infinite.
    """

    low: Floats
    high: Floats

    def volumes_below(self, points: Floats) -> Floats:
        """Return, for each point, the volume that the point dominates inside the boxes, summed over all boxes.

        A point dominates the part of a box in which all coordinates are lower than those of the point.

        Args:
            points: Shape (..., dimensions).
        """
        flat = points.reshape(-1, points.shape[-1])
        at_once = max(1, _MOST_AT_ONCE // self.low.size)
        parts = [self._volumes_below(flat[first : first + at_once]) for first in range(0, len(flat), at_once)]
        volumes: Floats = np.concatenate([np.empty(0), *parts]).reshape(points.shape[:-1])
        return volumes

    def _volumes_below(self, points: Floats) -> Floats:
        volumes = np.ones((len(points), len(self.low)))
        for column in range(points.shape[1]):  # few boxes at a time, so that the array stays in the cache
            reach = np.minimum(points[:, column, None], self.high[None, :, column]) - self.low[None, :, column]
            volumes *= np.maximum(reach, 0.0)
        dominated: Floats = volumes.sum(axis=1)
        return dominated


def open_boxes(points: Floats, reference: Floats) -> Boxes:
    """Return boxes that together fill the part of the space that is above the reference and that no point dominates.

    The function cuts the space into slabs at the last coordinates of the points, and treats each slab like a space with
    one dimension less (hypervolume by slicing objectives, Knowles 2002). If a box continues in the next slab, it stays
    one box. Therefore three dimensions take only about twice as many boxes as points.

    Args:
        points: Shape (points, dimensions). Points that are not above the reference in every dimension are ignored.
        reference: Lower bound for each dimension.
    """
    above = points[(points > reference).all(axis=1)]
    boxes = _open([tuple(point) for point in above.tolist()], reference.tolist())
    corners = np.array(list(boxes), dtype=np.float64)  # (boxes, dimensions, 2)
    return Boxes(low=corners[..., 0], high=corners[..., 1])


def _open(points: Sequence[tuple[float, ...]], reference: Sequence[float]) -> Iterator[Box]:
    *others, last = reference
    if not others:
        yield ((max((point[-1] for point in points), default=last), math.inf),)
        return
    tops: dict[Box, float] = {}  # upper ends of boxes that continue downwards
    for top in (math.inf, *sorted({point[-1] for point in points}, reverse=True)):
        beneath = dict.fromkeys(_open([point[:-1] for point in points if point[-1] >= top], others), top)
        yield from ((*box, (top, tops[box])) for box in tops if box not in beneath)
        tops = {box: tops.get(box, top) for box in beneath}
    yield from ((*box, (last, top)) for box, top in tops.items())


# ---------------------------------------------------------------- what points dominate above a reference
_MARGIN = 0.1
"""Distance of the reference point below the worst values of a front, as a share of the front's range, so that the ends
of the front count too. A usual choice (Ishibuchi et al. 2018, Evolutionary Computation 26, section 3; BoTorch uses the
same)."""

LEAST_MARGIN = 1e-3
"""Smallest such distance, for fronts whose points are equal in one metric; in logarithms, 0.1 %."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Frontier:
    """Points of a Pareto front, and a reference point below them. Together they define a hypervolume.

    The hypervolume is the volume of the space above the reference in which some point is better in every dimension.
    """

    points: Floats
    """Values of the points: shape (points, dimensions). Higher is better; a point that is not above the reference does
    not count."""
    reference: Floats
    """One lower bound per dimension."""

    @classmethod
    def of(cls, points: Floats, reference: Floats) -> Self:
        """Return the frontier of these points, without the points that another point dominates.

        A point dominates another if it is at least as good in every dimension and better in one.

        Args:
            points: Shape (points, dimensions); higher is better.
            reference: Lower bound for each dimension.
        """
        return cls(points=points[non_dominated(points)], reference=reference)

    @cached_property
    def boxes(self) -> Boxes:
        """Boxes that fill the space above the reference where a new point would extend the Pareto front."""
        return open_boxes(self.points, self.reference)

    @cached_property
    def volume(self) -> float:
        """The hypervolume: the exact volume of the space above the reference that the points dominate."""
        if not len(self.points):
            return 0.0
        best = np.maximum(self.points.max(axis=0), self.reference)
        return float(np.prod(best - self.reference) - self.boxes.volumes_below(best[None, :])[0])

    def gains(self, points: Floats) -> Floats:
        """Return the increase of the hypervolume for each of the given points, if only this point were added.

        Args:
            points: Shape (..., dimensions).
        """
        return self.boxes.volumes_below(points)


def reference_below(points: Floats) -> Floats:
    """Return a reference point for the hypervolume of these points: a corner below the Pareto front.

    In each dimension, the reference is lower than the lowest value on the points' Pareto front. The distance is a tenth
    of the range of the front.
    """
    front = points[non_dominated(points)]
    worst, best = front.min(axis=0), front.max(axis=0)
    reference: Floats = worst - np.maximum(_MARGIN * (best - worst), LEAST_MARGIN)
    return reference


# ---------------------------------------------------------------- trials as points
@dataclass(frozen=True, slots=True, kw_only=True)
class Valued:
    """A trial together with its value in each metric of a Pareto front."""

    trial: Trial
    values: tuple[float, ...]


def trial_values(objective: Objective, metrics: Sequence[Metric], trials: Iterable[Trial]) -> list[Valued]:
    """Return the trials that have a value in every metric of a Pareto front, with these values.

    Trials without a value in some metric are left out.

    Args:
        objective: Objective that decides which results of a trial count: those with nominal links, or those under
            faults.
        metrics: Metrics of the front.
        trials: Trials of a sweep.
    """
    found = []
    for trial in trials:
        reached = trial.reached
        if reached is not None and all(_tells(reached.resource_cost, metric) for metric in metrics):
            counted = objective.counted(reached)
            found.append(Valued(trial=trial, values=tuple(one.of(counted, reached.resource_cost) for one in metrics)))
    return found


def on_front(objective: Objective, trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials on the Pareto front of the objective's metrics, in the given order.

    For such a trial, no other trial is at least as good in all metrics and better in one.
    """
    every = trial_values(objective, objective.front, trials)
    return [one.trial for one, stays in zip(every, non_dominated(log_values(every)), strict=True) if stays]


def adds_to_front(values: Sequence[float], others: Iterable[Sequence[float]]) -> bool:
    """Return True if a trial extends the Pareto front by more than noise.

    The result is False if there is another trial that, in every metric, is either better or worse by less than 1 %.
    Differences of less than 1 % are noise on most machines.

    Args:
        values: Values of a trial in each metric of a front.
        others: Values of other trials in the same metrics.
    """
    return not any(
        all((1 + WORTHWHILE_GAIN) * theirs >= own for own, theirs in zip(values, other, strict=True))
        for other in others
    )


def log_values(every: Sequence[Valued]) -> Floats:
    """Return the logarithms of each trial's values in the metrics of a Pareto front: shape (trials, metrics)."""
    values: Floats = np.log(np.array([one.values for one in every], dtype=np.float64))
    return values if every else np.empty((0, 1))


def _tells(resource_cost: ResourceCost | None, metric: Metric) -> bool:
    """Return True if a metric can be computed from this resource cost and the step time."""
    if not metric.reads_resource_cost or resource_cost is None:
        return not metric.reads_resource_cost
    match metric:
        case Metric.TOKENS_PER_JOULE:
            return resource_cost.power is not None and resource_cost.power.total_w > 0
        case Metric.TOKENS_PER_DOLLAR:
            return resource_cost.price_per_hour > 0
        case Metric.TOKENS_PER_KG_CO2:
            return resource_cost.co2_kg_per_hour > 0
        case Metric.ROBUSTNESS:
            return bool(resource_cost.robustness)
    return True


# ---------------------------------------------------------------- what uncertain rows are expected to add
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
"""Nodes and weights of Gauss-Legendre integration. Gains are polynomials between the corners of boxes; 16 nodes keep
the error of their sum below 1 %, as tests show."""

_REACH = 6.0
"""Range of the integration in standard deviations. A share of 1e-9 lies outside."""

_LEAST_DEVIATION = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcomes:
    """The uncertain results of layouts in the metrics of a Pareto front. They depend on the uncertain step time."""

    log_value_per_step: Floats
    """Logarithms of shape (rows, metrics). For a rate, of the value times the step time; for any other metric, of the
    value itself."""
    is_rate: Booleans
    """True for rates, which are metrics that fall as the step time rises."""
    mean: Floats
    """Mean of the log step time in seconds."""
    deviation: Floats
    """Standard deviation of the log step time."""

    def __len__(self) -> int:
        return len(self.mean)

    def take(self, rows: Integers) -> Outcomes:
        """Return the uncertain results of the layouts in these rows."""
        return replace(
            self, log_value_per_step=self.log_value_per_step[rows], mean=self.mean[rows], deviation=self.deviation[rows]
        )

    @property
    def expected(self) -> Floats:
        """Log values of the metrics if each layout has its expected log step time: shape (layouts, metrics)."""
        return self.at(self.mean[:, None])[:, 0]

    def at(self, log_step_s: Floats) -> Floats:
        """Return the log values of the metrics if the layouts have these log step times: shape (layouts, n, metrics).

        Args:
            log_step_s: Log step times in seconds: shape (layouts, n).
        """
        values: Floats = self.log_value_per_step[:, None, :] - np.where(self.is_rate, log_step_s[..., None], 0.0)
        return values


def steps_to_enter(outcomes: Outcomes, frontier: Frontier) -> Floats:
    """Return, for each layout, the log step time that it must stay below to join the Pareto front.

    The result is minus infinity if the layout could not join the front at any speed. To join, the layout must be above
    the reference in every metric. In addition, some points of the front are at least as good as the layout in all
    metrics that do not depend on the step time. The layout must be better than each of these points in at least one
    rate (a metric that depends on the step time).
    """
    rates, shares = outcomes.log_value_per_step[:, outcomes.is_rate], outcomes.log_value_per_step[:, ~outcomes.is_rate]
    limits = (rates - frontier.reference[outcomes.is_rate]).min(axis=1)
    for point in frontier.points:
        is_beside = (shares <= point[~outcomes.is_rate]).all(axis=1)
        beats_from = (rates - point[outcomes.is_rate]).max(axis=1)
        limits = np.where(is_beside, np.minimum(limits, beats_from), limits)
    is_above = (shares > frontier.reference[~outcomes.is_rate]).all(axis=1)
    entering: Floats = np.where(is_above, limits, -math.inf)
    return entering


def log_expected_volume_gain(outcomes: Outcomes, frontier: Frontier) -> Floats:
    """Return, for each layout, the log of the expected increase of the front's hypervolume by this layout alone.

    The result is minus infinity if the layout would not increase the hypervolume at any speed. The increase is the
    expected hypervolume improvement (Emmerich, Giannakoglou and Naujoks 2006, IEEE Trans. Evol. Comput. 10) for values
    that depend on the step time alone. It is integrated over the normal log step time by Gauss-Legendre quadrature. The
    integral starts at the step time at which the layout joins the front and goes down as far as there is any weight, so
    that even hopeless layouts have an order.
    """
    gains = np.full(len(outcomes), -math.inf)
    entering = steps_to_enter(outcomes, frontier)
    rows = np.flatnonzero(entering > -math.inf)
    possible = outcomes.take(rows)
    deviation = np.maximum(possible.deviation, _LEAST_DEVIATION)
    first = np.minimum((entering[rows] - possible.mean) / deviation, _REACH)
    width = first + np.where(first > 0, _REACH, np.hypot(first, _REACH))
    # Its limit, where the difference is all rounding.
    width = np.where(first < -1e6, _REACH**2 / 2 / np.maximum(-first, 1.0), width)
    steps = first[:, None] - width[:, None] * (1 + _NODES) / 2
    volumes = frontier.gains(possible.at(possible.mean[:, None] + deviation[:, None] * steps))
    with np.errstate(divide="ignore"):
        terms = np.log(volumes) + np.log(_WEIGHTS * width[:, None] / 2) - steps**2 / 2 - math.log(2 * math.pi) / 2
    gains[rows] = np.logaddexp.reduce(terms, axis=1)
    return gains
