"""The report of predictions: the best layouts of a job, or why none fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.objective import Objective
from autotuner.core.prediction import Prediction, StepTime
from autotuner.core.requests import PredictionRequest
from autotuner.core.rules.rule import Reason
from autotuner.core.units import format_bytes, format_rate
from autotuner.report.caveats import caveats_in_words
from autotuner.report.report import Cell, Column, Lines, Quantity, Report, Section, Table, predicted
from autotuner.report.words import (
    changes_in_words,
    cluster_in_words,
    fit_in_words,
    in_sentences,
    job_in_words,
    likely,
    mfu_quantity,
    percent,
    with_interval,
)
from autotuner.search.predicted_ranking import PredictedLayout
from autotuner.search.preview import PredictionTable
from autotuner.search.space.moves import Alternative
from autotuner.search.suggestions import Remedy, RemedyKind, Shortfall

_PARTS = {
    "compute": ("matrix_s", "attention_s", "pointwise_s", "host_s"),
    "recompute": ("recompute_s",),
    "tp": ("tensor_communication_s",),
    "cp": ("context_communication_s",),
    "ep": ("expert_communication_s",),
    "pp": ("pipeline_communication_s",),
    "dp": ("data_communication_s",),
    "bubble": ("bubble_s",),
    "optimizer": ("optimizer_s",),
}
"""Short names for groups of a step's parts: computation, exposed communication by axis, idle time, optimizer."""

_LEAST_SHARE = 0.01
"""Smallest share of a step from which a part is named."""

_MOST_NAMED = 5
"""Maximum number of options that a line names; ``explain`` shows all of them."""

_NOT_EQUIVALENT: Mapping[str, str] = {
    "precision": "multiplies in fewer bits",
    "gradient_sync": "exchanges less than the whole gradients",
    "gradient_clip": "clips gradients before they are reduced",
}
"""Effect of each option that can make a layout not numerically equivalent."""

_STEP, _MEMORY, _FITS = Column("step"), Column("memory"), Column("fits")
_PARTS_OF_STEP = Column("time goes to", is_number=False, may_wrap=True)
_TAKEN = Column("a million tokens take", is_number=False, may_wrap=True)


def how_many_fit(found: PredictionTable) -> str:
    """Return the end of a headline, which says how many legal layouts fit in memory; empty for a single layout."""
    return "" if found.num_legal is None else f": {found.num_fitting:,} of {found.num_legal:,} legal layouts fit"


def predictions_report(request: PredictionRequest, found: PredictionTable) -> Report:
    """Return the report of the predictions that a request asks for: of one layout, or of a search space's best layouts.

    See ``prediction_report``.
    """
    work = request.workload
    cluster, batch = cluster_in_words(request.cluster), work.global_batch_size
    job = job_in_words(found.model_size, cluster=cluster, global_batch=batch, seq_len=work.seq_len)
    return prediction_report(found, f"{job}{how_many_fit(found)}", request.objective)


def prediction_report(found: PredictionTable, headline: str, objective: Objective | None = None) -> Report:
    """Return the report of the best predicted layouts: MFU and step time with intervals, parts of the step, memory.

    If the objective is not speed alone, the value of the objective comes first, and columns on cost and energy replace
    the parts of the step. If every best layout changes the numerical results of training, one more row has the best
    layout that does not change them. The layout in use has a row, too. If no layout fits, the report says how much
    memory is missing.

    Args:
        found: The predictions.
        headline: The job, and how many layouts were found.
        objective: Objective that ranks the layouts; None: speed.
    """
    if found.shortfall is not None:
        missing = Lines(items=(*_missing(found.shortfall), *_today(found)))
        return Report(headline=headline, sections=(Section(blocks=(missing,)),))
    blocks = (_layouts(found, objective), Lines(items=tuple(_today(found))), _notes(found, objective))
    return Report(headline=headline, sections=(Section(blocks=blocks),))


# ------------------------------------------------------------------ the table
def _layouts(found: PredictionTable, objective: Objective | None) -> Table:
    current = found.current.candidate if found.current else None
    rows = [*found.items, *filter(None, (found.unchanged, current))]
    key, layout, mfu = Column("#"), Column("layout", is_number=False, may_wrap=True), Column("MFU")
    if objective is None or objective.is_speed:
        columns = (key, layout, mfu, _STEP, _MEMORY, _FITS, _PARTS_OF_STEP)
        cells = [(_rank(one, found), *_speed_cells(one)) for one in rows]
    else:
        columns = (key, layout, Column(objective.noun), mfu, _STEP, _FITS, _TAKEN)
        cells = [(_rank(one, found), *_value_cells(one, objective)) for one in rows]
    return Table(columns=columns, rows=cells)


def _rank(one: PredictedLayout, found: PredictionTable) -> str:
    """Return the rank, or ``now`` for the present layout, marked if it is not numerically equivalent."""
    if one is found.unchanged:
        return "–"
    return f"{'now' if one.rank is None else one.rank}{'*' if one.changes_mathematics else ''}"


def _speed_cells(one: PredictedLayout) -> tuple[Cell, ...]:
    memory = predicted(one.prediction.peak_bytes, "bytes")
    return (one.layout, mfu_quantity(one.prediction), _step(one.prediction), memory, _fit(one), _shares(one))


def _value_cells(one: PredictedLayout, objective: Objective) -> tuple[Cell, ...]:
    from autotuner.report.trial_facts import resource_cost_in_words  # noqa: PLC0415  # most predictions are of speed alone

    value = objective.figure(objective.value_of(one.prediction, one.resource_cost))
    taken = resource_cost_in_words(one.resource_cost, one.prediction.tokens_per_s)
    return (one.layout, value, mfu_quantity(one.prediction), _step(one.prediction), _fit(one), taken)


def _step(one: Prediction) -> Quantity:
    return predicted(one.step_time_s, "s", one.relative_error)


def _fit(one: PredictedLayout) -> Quantity:
    return predicted(one.prediction.fit_probability, "chance")


def _shares(one: PredictedLayout) -> str:
    """Return the parts that take at least 1 % of the step, in their order: ``compute 76 %, tp 23 %``."""
    parts: StepTime = one.prediction.step_time
    shares = {
        word: sum(getattr(parts, name) for name in names) / one.prediction.step_time_s for word, names in _PARTS.items()
    }
    return ", ".join(f"{word} {percent(share)}" for word, share in shares.items() if share >= _LEAST_SHARE)


# ------------------------------------------------------------------ below it
def _notes(found: PredictionTable, objective: Objective | None) -> Lines:
    peak = f"{format_rate(found.reference_flop_per_s, 'FLOP/s')} per rank, the {found.reference_precision} peak"
    by = "MFU" if objective is None or objective.is_speed else objective.noun
    ranked = "" if found.num_legal is None else f" Rows are ranked by {by} times the probability that the layout fits."
    notes = (
        f"All figures are predicted. ± is the 80 % interval: of MFU in points, of the step in percent.{ranked} MFU is "
        f"a share of {peak}. Fits: probability that the layout does not run out of memory.",
        *_beyond(found),
        in_sentences(caveats_in_words(found.caveats)),
    )
    return Lines(items=tuple(filter(None, notes)), is_quiet=True)


def _beyond(found: PredictionTable) -> Iterator[str]:
    """Yield notes on options that are not numerically equivalent, and on options that were not searched."""
    marks = []
    if changing := [one.layout for one in found.items if one.changes_mathematics]:
        how = [said for name, said in _NOT_EQUIVALENT.items() if any(_changes(name, layout) for layout in changing)]
        marks.append(
            f"A layout marked * {' or '.join(how)}, so its losses may differ. Compare losses before you use it."
        )
    if found.unchanged is not None:
        marks.append("The row marked – is the best numerically equivalent layout.")
    if marks:
        yield " ".join(marks)
    named = [
        f"{changes_in_words(one.changes)} (−{100 * one.saved_share:.1f} %)" for one in found.not_searched[:_MOST_NAMED]
    ]
    if named:
        yield f"Options outside the search that would shorten the first row's step: {'; '.join(named)}."
    elif found.num_legal is not None:
        yield "Options outside the search were predicted too: none shortens the first row's step by 0.5 % or more."


def _changes(name: str, layout: Layout) -> bool:
    return getattr(layout, name) in OPTIONS[name].not_equivalent


def _today(found: PredictionTable) -> Iterator[str]:
    """Yield the gain of the best layouts over the present layout, or the reason why that cannot run here."""
    current = found.current
    if current is None:
        return
    if current.candidate is None:
        yield f"The layout in use cannot run here: {current.label}"
        yield from (f"  {_reason(reason)}" for reason in current.reasons)
    elif found.items:
        gains = ((current.best, "1"), (current.unchanged, "–"))
        yield from (f"now → {name}: {_gain(gain)}" for gain, name in gains if gain is not None)
    else:
        today = current.candidate.prediction
        fit = fit_in_words(today.fits, today.fit_probability)
        label, peak = current.candidate.label, format_bytes(today.peak_bytes)
        yield f"layout in use: {label} is predicted to need {peak}: {fit}"


def _gain(gain: Alternative) -> str:
    if not gain.changes:
        return "the same layout"
    share = 100 * gain.gain
    rate = f"{abs(share):.1f} % {'more' if share >= 0 else 'fewer'} tokens per second"
    return f"{rate} (predicted); it changes {changes_in_words(gain.changes)}"


def _reason(reason: Reason) -> str:
    nearest = "" if reason.nearest is None else f"; nearest legal value: {reason.nearest}"
    return f"{reason.field}: {reason.message}{nearest}"


# ------------------------------------------------------------------ instead of the table
def _missing(shortfall: Shortfall) -> Iterator[str]:
    """Yield lines on the missing memory, on changes that would help, and on the smallest cluster that fits."""
    nearest = shortfall.nearest.label
    yield f"nothing fits: the nearest layout lacks {format_bytes(shortfall.missing_bytes)} ({nearest})"
    yield from map(_remedy, shortfall.remedies)
    larger = shortfall.larger
    if larger is None:
        yield "no larger cluster of these accelerators was found on which a layout fits"
        return
    nodes = f"{larger.num_nodes} node{'s' if larger.num_nodes > 1 else ''}"
    yield (
        f"the smallest cluster on which a layout fits: {larger.num_accelerators} of these accelerators on {nodes}, "
        f"{_met(larger.best)}"
    )


_REMEDIES: Mapping[RemedyKind, str] = {
    RemedyKind.FULL_RECOMPUTATION: "full recomputation",
    RemedyKind.ANY_SPLIT: "any split of the ranks",
    RemedyKind.OFFLOADED_ACTIVATIONS: "activations offloaded to the host",
    RemedyKind.BF16_MOMENTS: "AdamW's moments in bf16",
}


def remedies_in_words(kinds: Iterable[RemedyKind]) -> str:
    """Return names of changes that free memory: ``full recomputation, AdamW's moments in bf16``."""
    return ", ".join(_REMEDIES[kind] for kind in kinds)


def _remedy(remedy: Remedy) -> str:
    changes = remedies_in_words(remedy.kinds)
    if not remedy.missing_bytes:
        return f"with {changes} it fits: {_met(remedy.candidate)}"
    return f"even with {changes}, {format_bytes(remedy.missing_bytes)} are missing"


def _met(one: PredictedLayout) -> str:
    """Return a layout with its predicted rate and its fit: ``fsdp8 mb1 offload (104 ktoken/s ± 11 %, fits 97 %)``."""
    rate = with_interval(one.prediction.tokens_per_s, one.prediction.relative_error, _token_rate)
    return f"{one.label} ({rate}, fits {likely(one.prediction.fit_probability)})"


def _token_rate(per_s: float) -> str:
    return format_rate(per_s, "token/s")
