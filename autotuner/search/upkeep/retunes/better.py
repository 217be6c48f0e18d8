"""What a better layout does otherwise, and what it gains by that: predicted, and where both were profiled, measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from autotuner.core.trial import Trial
from autotuner.core.units import format_seconds
from autotuner.costmodel.predict import predict
from autotuner.search.explain.explanation import moved_in_words
from autotuner.search.text.measured import PHASE_WORDS
from autotuner.search.text.sentences import change_in_words, expected_seconds, percent

_WORTH_SAYING = 0.01
"""Share of the step below which a part has not moved."""


def why_better(before: Layout, after: Layout, job: Job, trials: Sequence[Trial]) -> tuple[str, ...]:
    """Sentences without full stops: what changes, and which parts of the step shrink and grow.

    Args:
        before: The incumbent.
        after: The better layout.
        job: What both were measured for.
        trials: Of the sweep that measured both.
    """
    first, second = (predict(LayoutColumns.from_layouts([layout]), job).row(0) for layout in (before, after))
    then = expected_seconds(second.step_time.total_s, second.relative_error)
    steps = f"step {format_seconds(first.step_time.total_s)} → {then}"
    predicted = f"predicted: it {moved_in_words(first.step_time, second.step_time)}, {steps}"
    return (
        change_in_words(before, after),
        predicted,
        *_measured(_breakdown(before, trials), _breakdown(after, trials)),
    )


def _breakdown(layout: Layout, trials: Sequence[Trial]) -> Breakdown | None:
    """The last one that a run of the layout left."""
    found = [trial.measurement.breakdown for trial in trials if trial.layout == layout and trial.measurement]
    return next((each for each in reversed(found) if each is not None), None)


def _measured(before: Breakdown | None, after: Breakdown | None) -> Iterator[str]:
    if before is None or after is None:
        return
    shifts = {
        field.name: (getattr(after, field.name) - getattr(before, field.name)) / before.step_s
        for field in fields(Breakdown)
        if field.name in PHASE_WORDS
    }
    moved = sorted((name for name in shifts if abs(shifts[name]) >= _WORTH_SAYING), key=lambda name: shifts[name])
    parts = [f"{PHASE_WORDS[name]} {'−' if shifts[name] < 0 else '+'}{percent(abs(shifts[name]))}" for name in moved]
    if parts:
        yield f"measured, in shares of the incumbent's step: {', '.join(parts)}"
