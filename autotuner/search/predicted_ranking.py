"""The best layouts by prediction alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autotuner.core.caveat import Caveat
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns, concatenate, is_one_of
from autotuner.core.fault_trace import FaultTrace, at_worst
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.measurement import ResourceCost
from autotuner.core.objective import Objective
from autotuner.core.prediction import Prediction
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.rule import Rule
from autotuner.core.space import SearchSpace
from autotuner.core.value import derived
from autotuner.costmodel.predict import predict_peaks
from autotuner.costmodel.resource_cost import predicted_resource_costs, value_per_step
from autotuner.costmodel.scenarios import predict_under, totals_under
from autotuner.costmodel.shared.table import row
from autotuner.costmodel.uncertainty import fit_probability
from autotuner.search.caveats import caveats
from autotuner.search.space.legal import MAX_CANDIDATES, legal_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedBy:
    """The objective by which predicted layouts are compared, and the link faults that the predictions assume."""

    objective: Objective = field(default_factory=Objective)
    """Objective that is maximised."""
    trace: FaultTrace | None = None
    """Injected faults of the links; None: there are none."""

    def values(self, x: LayoutColumns, job: Job) -> Floats:
        """Return each layout's value by the objective. Higher is better.

        If the objective is speed, the value is the MFU, which takes the least computation to predict.

        Args:
            x: Layouts.
            job: The job.
        """
        if self.objective.is_speed:
            return totals_under(x, job, self.trace).mfu
        predicted = predict_under(x, job, self.trace)
        resource_costs = predicted_resource_costs(x, job, predicted)
        healthy_s, robust_s = predicted.step_time.total_s, predicted.robust_step_s
        values = value_per_step(self.objective, job, resource_costs, len(x))
        return values / (healthy_s if robust_s is None else robust_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLayout:
    """A layout with its prediction and, if requested, its modelled resource cost."""

    rank: int | None = None
    """Rank from 1 among the layouts that are predicted to fit, by the predicted value (MFU or the requested objective)
    times the probability to fit; None outside a ranking."""
    layout: Layout
    prediction: Prediction
    resource_cost: ResourceCost | None = None
    """Modelled resource cost; None if it was not requested."""

    @property
    @derived
    def label(self) -> str:
        """Name of the layout, such as ``tp2 pp4 1f1b mb1``: its degrees above 1 and its non-default options."""
        return str(self.layout)

    @property
    def mfu(self) -> float:
        """Predicted MFU, 0..1: useful FLOP per second divided by the peak of the accelerators."""
        return self.prediction.mfu

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of an optimizer step."""
        return self.prediction.step_time_s

    @property
    def peak_bytes(self) -> float:
        """Predicted peak memory in bytes of one rank in the pipeline stage that needs the most."""
        return self.prediction.peak_bytes

    @property
    @derived
    def changes_mathematics(self) -> bool:
        """True if the layout is not numerically equivalent to plain training (fp8, for example)."""
        return not self.layout.is_equivalent


@dataclass(frozen=True, slots=True, kw_only=True)
class BestLayouts:
    """The best layouts of a space that are predicted to fit in memory, the highest expected value first."""

    num_legal: int
    """Number of layouts that keep every rule."""
    num_fitting: int
    """Number of legal layouts that are predicted to fit in memory."""
    rows: tuple[PredictedLayout, ...]
    """Best layouts, at most as many as were requested."""
    caveats: tuple[Caveat, ...] = ()
    """Caveats for the reader."""
    unchanged: PredictedLayout | None = None
    """Best layout that is numerically equivalent to plain training; None if one of the rows is equivalent already, or
    if there is no such layout."""
    nearest: PredictedLayout | None = None
    """Legal layout with the smallest peak, if no layout fits."""


def best_predicted(
    job: Job,
    space: SearchSpace | None = None,
    *,
    limit: int = 10,
    rules: Sequence[Rule] = RULES,
    most: int = MAX_CANDIDATES,
    compared_by: ComparedBy | None = None,
) -> BestLayouts:
    """Predict every legal layout of a space and return the best ones that are predicted to fit in memory.

    The best layout has the highest expected value: predicted value x probability to fit in memory, because a run that
    dies trains nothing. The value is MFU unless ``compared_by`` names another objective. Among layouts with equal
    values, the one with the smaller peak memory comes first, then the one that is earlier in the space. A large space
    is predicted in chunks, and only the best layouts so far are kept; these are predicted again in full at the end.

    Args:
        job: The job.
        space: The search space; None: the default values of every option.
        limit: Maximum number of layouts to return.
        rules: Rules that a layout must keep.
        most: Maximum number of candidate layouts that are checked against the rules.
        compared_by: Objective, and fault trace (a record of injected link faults) if there is one. None: MFU with
            nominal links. With a fault trace, layouts are compared by their value under the faults of the trace. A
            layout must then be legal even if every link is in its worst state.

    Raises:
        SpaceTooLarge: More than ``most`` candidate layouts would have to be checked.
    """
    compared_by = compared_by or ComparedBy()
    trace, memory_bytes = compared_by.trace, float(job.cluster.accelerator.memory_bytes)
    best, unchanged, nearest = _Leaders.none(limit), _Leaders.none(1), _Leaders.none(1)
    num_legal, num_fitting = 0, 0
    for chunk in legal_chunks(at_worst(job, trace), space, rules, most):
        peak_bytes = predict_peaks(chunk, job)
        fits = peak_bytes <= memory_bytes
        num_legal, num_fitting = num_legal + len(chunk), num_fitting + int(fits.sum())
        if not num_fitting:
            nearest = nearest.beside(chunk, -peak_bytes, peak_bytes)
        fitting, peak_bytes = chunk.take(fits), peak_bytes[fits]  # the others need no time
        value = compared_by.values(fitting, job) * fit_probability(peak_bytes, memory_bytes)
        best = best.beside(fitting, value, peak_bytes)
        plain = _keeps_mathematics(fitting)
        unchanged = unchanged.beside(fitting.take(plain), value[plain], peak_bytes[plain])
    other = unchanged if num_fitting else nearest
    found = _predicted(concatenate((best.layouts, other.layouts)), job, trace)
    rows, others = found[: len(best.layouts)], found[len(best.layouts) :]
    is_plain = any(row.layout.is_equivalent for row in rows)
    return BestLayouts(
        num_legal=num_legal,
        num_fitting=num_fitting,
        caveats=caveats(job, best.layouts),
        rows=rows,
        unchanged=others[0] if others and num_fitting and not is_plain else None,
        nearest=others[0] if others and not num_fitting else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaders:
    """The best layouts of the tables that were seen so far."""

    limit: int
    """Number of rows that are kept."""
    layouts: LayoutColumns
    value: Floats
    """Values by which rows are ordered, the highest first. Rows with equal values are ordered by their peak, the
    smallest first."""
    peak_bytes: Floats

    @classmethod
    def none(cls, limit: int) -> _Leaders:
        empty = np.empty(0)
        return cls(limit=limit, layouts=LayoutColumns.from_layouts([]), value=empty, peak_bytes=empty)

    def beside(self, layouts: LayoutColumns, value: Floats, peak_bytes: Floats) -> _Leaders:
        """Return the best of these layouts and of another table."""
        rows = _highest(value, self.limit)
        value, peak_bytes = np.append(self.value, value[rows]), np.append(self.peak_bytes, peak_bytes[rows])
        order = np.lexsort((peak_bytes, -value))[: self.limit]
        return _Leaders(
            limit=self.limit,
            layouts=concatenate((self.layouts, layouts.take(rows))).take(order),
            value=value[order],
            peak_bytes=peak_bytes[order],
        )


def _predicted(layouts: LayoutColumns, job: Job, trace: FaultTrace | None) -> tuple[PredictedLayout, ...]:
    """Return each layout with its complete prediction and its resource cost."""
    predictions = predict_under(layouts, job, trace)
    resource_costs = predicted_resource_costs(layouts, job, predictions)
    return tuple(
        PredictedLayout(
            layout=layouts.row(index), prediction=row(predictions, index), resource_cost=resource_costs.row(index)
        )
        for index in range(len(layouts))
    )


def _keeps_mathematics(x: LayoutColumns) -> Booleans:
    changing = {name: one.not_equivalent for name, one in OPTIONS.items() if one.not_equivalent}
    keeps: Booleans = ~np.logical_or.reduce([is_one_of(getattr(x, name), values) for name, values in changing.items()])
    return keeps


def _highest(value: Floats, limit: int) -> Integers:
    """Return the rows with the highest values, in order.

    All rows with the value of the last one are included, because any of them may be ranked.
    """
    if len(value) <= max(1, limit):
        return np.arange(len(value))
    return np.flatnonzero(value >= np.partition(value, -max(1, limit))[-max(1, limit)])
