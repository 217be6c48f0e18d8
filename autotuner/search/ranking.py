"""The best layouts by prediction alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.predict import predict, predict_totals
from autotuner.domain.layout import Layout
from autotuner.domain.legality import RULES, Job, Rule
from autotuner.domain.prediction import Prediction
from autotuner.domain.search_space import SearchSpace
from autotuner.search.space import legal_layouts

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
        num_fitting: Of these, how many are predicted to fit in memory.
        rows: At most as many as were asked for.
    """

    num_legal: int
    num_fitting: int
    rows: tuple[PredictedLayout, ...]


def best_predicted(
    job: Job, space: SearchSpace | None = None, *, limit: int = 10, rules: Sequence[Rule] = RULES
) -> PredictionTable:
    """Predict every legal layout and keep the best that fit; ties go to the smaller peak, then to the space's order.

    Of a table of millions only what decides the order is held; the best are predicted a second time.
    """
    layouts = legal_layouts(job, space, rules)
    totals = predict_totals(layouts, job)
    fitting = np.flatnonzero(totals.peak_bytes <= job.cluster.accelerator.memory_bytes)
    order = np.lexsort((totals.peak_bytes[fitting], -totals.mfu[fitting]))
    best = layouts.take(fitting[order[:limit]])
    predictions = predict(best, job)
    return PredictionTable(
        num_legal=len(layouts),
        num_fitting=len(fitting),
        rows=tuple(PredictedLayout(layout=best.row(row), prediction=predictions.row(row)) for row in range(len(best))),
    )
