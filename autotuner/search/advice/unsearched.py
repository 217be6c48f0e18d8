"""Options that a space leaves out, and what the best layout would gain by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.prediction import Prediction
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.rule import Rule
from autotuner.core.space import SearchSpace
from autotuner.costmodel.predict import predict
from autotuner.search.ranking import PredictedLayout
from autotuner.search.space.moves import neighbours
from autotuner.search.text.sentences import change_in_words

_WORTHWHILE = 0.005
"""Share of the step below which an option is not worth naming: half of what ``explain`` calls worthwhile, since several
are named together."""

_DERIVED = "data_parallel_replicate_degree"
"""The degree without an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsearched:
    """A layout one step outside the space.

    Attributes:
        change: What differs from the best layout, both values of each field.
        saved_share: Share of the best layout's step that it is predicted to save.
    """

    change: str
    saved_share: float
    layout: Layout
    prediction: Prediction


def unsearched(
    best: PredictedLayout, job: Job, space: SearchSpace, rules: Sequence[Rule] = RULES
) -> tuple[Unsearched, ...]:
    """Steps from the best layout out of the space that are expected to pay, what saves most first.

    A step is one option taken to a value that its axis does not name, and that device and software have. Whether it is
    likely to fit counts as it does in the ranking.
    """
    outside = tuple(_outside(best.layout, job, space, rules))
    predictions = predict(LayoutColumns.from_layouts(outside), job)
    after = [(layout, predictions.row(row)) for row, layout in enumerate(outside)]
    before_s = best.prediction.step_time.total_s
    paying = [
        Unsearched(
            change=change_in_words(best.layout, layout),
            saved_share=1 - prediction.step_time.total_s / before_s,
            layout=layout,
            prediction=prediction,
        )
        for layout, prediction in after
        if prediction.fits and prediction.expected_mfu > best.prediction.expected_mfu
    ]
    return tuple(sorted((one for one in paying if one.saved_share >= _WORTHWHILE), key=lambda one: -one.saved_share))


def _outside(best: Layout, job: Job, space: SearchSpace, rules: Sequence[Rule]) -> Iterator[Layout]:
    """The neighbours that the space does not hold and that keep the rules."""
    for layout in neighbours(best, job):
        changed = [name for name in OPTIONS if getattr(layout, name) != getattr(best, name) and name != _DERIVED]
        is_outside = any(not _is_named(layout, name, space) for name in changed)
        if is_outside and not reasons(layout, job, rules):
            yield layout


def _is_named(layout: Layout, name: str, space: SearchSpace) -> bool:
    values = space.values(name)
    return values is None or getattr(layout, name) in values
