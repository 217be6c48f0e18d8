"""Answers to questions about predictions, whole: what a service has computed beside it, and a command on the spot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotuner.core.choices import ExportFormat
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.objective import Objective
from autotuner.core.rules.legality import RULES, reasons, refused_layout
from autotuner.core.rules.rule import Rule
from autotuner.core.space import SearchSpace, default_space
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.search.advice.advice import Advice, advice
from autotuner.search.advice.current import Current, current_beside
from autotuner.search.expressible import sayable_space
from autotuner.search.ranking import ComparedBy, PredictedLayout, PredictionTable, best_predicted
from autotuner.search.space import empty_space
from autotuner.search.text.caveats import caveats


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked about a job.

    Attributes:
        axes: Values that were named; what suits the job stands on the others.
        limit: Layouts that are wanted.
        current: What runs today.
        format: Only layouts that can be said in it.
        objective: What the best is best by.
    """

    job: Job
    axes: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    limit: int = 10
    current: Layout | None = None
    format: ExportFormat | None = None
    objective: Objective = field(default_factory=Objective)

    @property
    def searched(self) -> tuple[SearchSpace, tuple[Rule, ...]]:
        """The space with every axis, and the rules that its layouts keep."""
        if self.format is None:
            return default_space(self.job).with_axes(**self.axes), RULES
        return sayable_space(self.job, self.format, self.axes, self.current)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedBest:
    """The best of a space, what that leaves open, and what runs today beside it.

    Attributes:
        caveats: What a reader of all of it should know.
    """

    table: PredictionTable
    advice: Advice
    current: Current | None
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedOne:
    """One layout, and what runs today beside it."""

    row: PredictedLayout
    current: Current | None
    caveats: tuple[str, ...]


def best_of_space(question: Question) -> PredictedBest:
    """The best predicted layouts of a space.

    Raises:
        InvalidInput: It holds no legal layout, or too many; or the format cannot say a value that was named.
    """
    job, (space, rules) = question.job, question.searched
    compared = ComparedBy(objective=question.objective)
    table = best_predicted(job, space, limit=question.limit, rules=rules, compared_by=compared)
    if not table.num_legal:
        raise empty_space(job, space, rules, "holds no legal layout")
    best = (table.rows or (None,))[0]
    current = _current(question, best, table.unchanged)
    shown = [row.layout for row in table.rows]
    return PredictedBest(
        table=table,
        advice=advice(job, space, table, rules),
        current=current,
        caveats=table.caveats if current is None else _said(job, shown, current),
    )


def prediction_of_layout(question: Question, layout: Layout) -> PredictedOne:
    """The prediction of one layout.

    Raises:
        InvalidDocument: It cannot run, with every rule that it breaks.
    """
    if broken := reasons(layout, question.job):
        raise refused_layout(layout, broken)
    prediction = predict_one(layout, question.job)
    row = PredictedLayout(
        layout=layout, prediction=prediction, footprint=footprint_of(layout, question.job, prediction)
    )
    current = _current(question, row, None)
    return PredictedOne(row=row, current=current, caveats=_said(question.job, [layout], current))


def _current(question: Question, best: PredictedLayout | None, unchanged: PredictedLayout | None) -> Current | None:
    if question.current is None:
        return None
    return current_beside(question.current, question.job, best=best, unchanged=unchanged)


def _said(job: Job, shown: list[Layout], current: Current | None) -> tuple[str, ...]:
    today = [] if current is None or current.predicted is None else [current.layout]
    return caveats(job, LayoutColumns.from_layouts([*shown, *today]))
