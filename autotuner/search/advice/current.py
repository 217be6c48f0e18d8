"""What runs today, beside the best layouts of a table."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.rules.rule import Reason
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.search.ranking import PredictedLayout
from autotuner.search.text.sentences import change_in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What another layout is predicted to give to who runs a layout today.

    Attributes:
        gain: Tokens per second more, as a share of today's; below 0 where it is slower.
        change: What differs, from today's to it; empty where nothing does.
    """

    gain: float
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The layout that runs today.

    Attributes:
        layout: As it was given.
        predicted: It with its prediction; None where it breaks a rule.
        reasons: Every rule that it breaks.
        best: What the first row of the table would give; None without a prediction or a row.
        unchanged: What the best layout that keeps the mathematics would give, where the first row does not.
    """

    layout: Layout
    predicted: PredictedLayout | None = None
    reasons: tuple[Reason, ...] = ()
    best: Gain | None = None
    unchanged: Gain | None = None


def current_beside(
    layout: Layout, job: Job, *, best: PredictedLayout | None, unchanged: PredictedLayout | None
) -> Current:
    """The layout that runs today beside the first row of a table and the best that keeps the mathematics."""
    if broken := reasons(layout, job):
        return Current(layout=layout, reasons=broken)
    predicted = predict_one(layout, job)
    today = PredictedLayout(layout=layout, prediction=predicted, footprint=footprint_of(layout, job, predicted))
    return Current(layout=layout, predicted=today, best=_gain(today, best), unchanged=_gain(today, unchanged))


def _gain(today: PredictedLayout, other: PredictedLayout | None) -> Gain | None:
    if other is None:
        return None
    gain = other.prediction.tokens_per_s / today.prediction.tokens_per_s - 1
    return Gain(gain=gain, change=change_in_words(today.layout, other.layout))
