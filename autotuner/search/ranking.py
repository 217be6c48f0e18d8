"""The best layouts by prediction alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.columns import Floats, Integers, LayoutColumns, joined
from autotuner.costmodel.predict import TotalColumns, predict, predict_totals
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.layouts.search_space import SearchSpace
from autotuner.domain.rules.legality import RULES, Rule
from autotuner.domain.runs.prediction import Prediction
from autotuner.search.space import legal_chunks
from autotuner.search.text.caveats import caveats

__all__ = ["PredictedLayout", "PredictionTable", "best_predicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLayout:
    """A layout beside its prediction."""

    layout: Layout
    prediction: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """Layouts that are predicted to fit, highest predicted MFU first.

    Attributes:
        num_legal: Layouts that keep every rule.
        num_fitting: Legal layouts that are predicted to fit in memory.
        rows: At most as many as were asked for.
        caveats: What a reader of them should know: sentences without full stops.
    """

    num_legal: int
    num_fitting: int
    rows: tuple[PredictedLayout, ...]
    caveats: tuple[str, ...] = ()


def best_predicted(
    job: Job, space: SearchSpace | None = None, *, limit: int = 10, rules: Sequence[Rule] = RULES
) -> PredictionTable:
    """Predict every legal layout and keep the best that fit; ties go to the smaller peak, then to the space's order.

    Of a space of millions one chunk is held at a time, and the best of those before; these are predicted once more.
    """
    best, num_legal, num_fitting = _Leaders.none(), 0, 0
    for chunk in legal_chunks(job, space, rules):
        totals = predict_totals(chunk, job)
        fitting = np.flatnonzero(totals.peak_bytes <= job.cluster.accelerator.memory_bytes)
        num_legal, num_fitting = num_legal + len(chunk), num_fitting + len(fitting)
        best = best.beside(chunk, totals, _highest(fitting, totals.mfu, limit)).first(limit)
    predictions = predict(best.layouts, job)
    return PredictionTable(
        num_legal=num_legal,
        num_fitting=num_fitting,
        rows=tuple(
            PredictedLayout(layout=best.layouts.row(row), prediction=predictions.row(row))
            for row in range(len(best.layouts))
        ),
        caveats=caveats(job, best.layouts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaders:
    """The best layouts of those seen."""

    layouts: LayoutColumns
    mfu: Floats
    peak_bytes: Floats

    @classmethod
    def none(cls) -> _Leaders:
        return cls(layouts=LayoutColumns.from_layouts([]), mfu=np.empty(0), peak_bytes=np.empty(0))

    def beside(self, layouts: LayoutColumns, totals: TotalColumns, rows: Integers) -> _Leaders:
        """With some rows of another table behind them."""
        return _Leaders(
            layouts=joined((self.layouts, layouts.take(rows))),
            mfu=np.concatenate([self.mfu, totals.mfu[rows]]),
            peak_bytes=np.concatenate([self.peak_bytes, totals.peak_bytes[rows]]),
        )

    def first(self, limit: int) -> _Leaders:
        """At most so many: highest MFU first, then the smallest peak, then as they came."""
        order = np.lexsort((self.peak_bytes, -self.mfu))[:limit]
        return _Leaders(layouts=self.layouts.take(order), mfu=self.mfu[order], peak_bytes=self.peak_bytes[order])


def _highest(rows: Integers, mfu: Floats, limit: int) -> Integers:
    """The rows of highest MFU, in their order, with all that share the last one's: no other can be ranked."""
    if len(rows) <= max(1, limit):
        return rows
    lowest = np.partition(mfu[rows], -max(1, limit))[-max(1, limit)]
    highest: Integers = rows[mfu[rows] >= lowest]
    return highest
