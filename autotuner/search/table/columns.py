"""Every column that a table of a sweep may have: ranks, figures, degrees, and every other choice of a layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches

from autotuner.core.complexity import complexity
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS
from autotuner.search.results.axis import AXES, Axis
from autotuner.search.table.column import Column, Value
from autotuner.search.table.row import TableRow
from autotuner.search.text.trials import co2_kg_per_million_tokens, kwh_per_million_tokens

_DEGREES = ("tp", "pp", "dp", "cp", "ep", "mb")

_SHORT: Mapping[str, tuple[str, ...]] = {
    "virtual_stages_per_rank": ("v", "stages"),
    "pipeline_schedule": ("schedule",),
    "sequence_parallel": ("sp",),
    "attention_kernel": ("attention",),
    "gradient_bucket_bytes": ("bucket",),
    "tp": ("tensor_parallel_degree", "tensor"),
    "pp": ("pipeline_parallel_degree", "pipeline"),
    "dp": ("data_parallel_degree", "data"),
    "cp": ("context_parallel_degree", "context"),
    "ep": ("expert_parallel_degree", "expert"),
    "mb": ("micro_batch_size", "micro-batch"),
    "sharding": ("shard_level",),
}

_FIGURES = (
    Column(
        name="value",
        label="value",
        meaning="what the sweep maximises, in SI units; that of a profile has none; predicted where nothing ran",
        unit="value",
        value=lambda row: row.value,
        short=("objective", "profile", "profile_value"),
        best_is_high=True,
    ),
    Column(
        name="mfu",
        label="MFU",
        meaning="model FLOP per second as a share of the reference peak, measured, estimated or simulated",
        unit="share",
        value=lambda row: None if row.reached is None else row.reached.mfu,
        error=lambda row: None if row.reached is None else row.reached.mfu * (row.step_error or 0.0),
        is_usual=True,
        best_is_high=True,
    ),
    Column(
        name="predicted_mfu",
        label="predicted",
        meaning="MFU as it was predicted before the trial ran",
        unit="share",
        value=lambda row: row.prediction.mfu,
        error=lambda row: _times(row.prediction.mfu, row.prediction.relative_error),
        short=("predicted",),
        is_usual=True,
        best_is_high=True,
    ),
    Column(
        name="robust_mfu",
        label="robust MFU",
        meaning="MFU over all steps under the sweep's fault trace, re-plans included",
        unit="share",
        value=lambda row: None if row.robust is None else row.robust.mfu,
        error=lambda row: None if row.robust is None else row.robust.mfu * row.robust.relative_error,
        short=("robust",),
        best_is_high=True,
    ),
    Column(
        name="predicted_robust_mfu",
        label="predicted robust",
        meaning="MFU under the sweep's fault trace as it was predicted before the trial ran",
        unit="share",
        value=lambda row: row.prediction.robust_mfu,
        error=lambda row: _times(row.prediction.robust_mfu or 0.0, row.prediction.relative_error),
        short=("predicted_robust",),
        best_is_high=True,
    ),
    Column(
        name="imbalance",
        label="imbalance",
        meaning="what the rank with most tokens computes above the mean, predicted; nothing where sequences are alike",
        unit="share",
        value=lambda row: row.prediction.imbalance,
    ),
    Column(
        name="padding_waste",
        label="padding",
        meaning="padding as a share of real tokens, predicted; nothing where sequences are alike",
        unit="share",
        value=lambda row: row.prediction.padding_waste,
        short=("padding",),
    ),
    Column(
        name="tokens_per_s",
        label="token/s",
        meaning="tokens per second of the whole job; predicted where nothing ran",
        unit="per_s",
        value=lambda row: row.tokens_per_s,
        error=lambda row: _times(row.tokens_per_s, row.step_error),
        short=("tokens",),
        is_usual=True,
        best_is_high=True,
    ),
    Column(
        name="step_time_s",
        label="step",
        meaning="seconds of a step; predicted where nothing ran",
        unit="s",
        value=lambda row: row.step_time_s,
        error=lambda row: _times(row.step_time_s, row.step_error),
        short=("step",),
        best_is_high=False,
    ),
    Column(
        name="time_to_loss_s",
        label="to loss",
        meaning="seconds to the loss that a plain layout has behind the steps of a gate of lossy layouts",
        unit="s",
        value=lambda row: row.time_to_loss_s,
        error=lambda row: _times(row.time_to_loss_s or 0.0, row.step_error),
        short=("to_loss", "time_to_loss"),
        best_is_high=False,
    ),
    Column(
        name="predicted_step_time_s",
        label="predicted step",
        meaning="seconds of a step as they were predicted",
        unit="s",
        value=lambda row: row.prediction.step_time.total_s,
        error=lambda row: _times(row.prediction.step_time.total_s, row.prediction.relative_error),
        short=("predicted_step",),
        best_is_high=False,
    ),
    Column(
        name="peak_bytes",
        label="memory",
        meaning="peak of the fullest rank",
        unit="bytes",
        value=lambda row: row.peak_bytes,
        short=("memory", "peak"),
        is_usual=True,
        best_is_high=False,
    ),
    Column(
        name="predicted_peak_bytes",
        label="predicted memory",
        meaning="peak of the fullest rank as it was predicted",
        unit="bytes",
        value=lambda row: row.prediction.memory.total_bytes,
        short=("predicted_memory",),
        best_is_high=False,
    ),
    Column(
        name="fit_probability",
        label="fits",
        meaning="how likely the layout was predicted to fit",
        unit="share",
        value=lambda row: row.prediction.fit_probability,
        best_is_high=True,
    ),
    Column(
        name="price_per_million_tokens",
        label="$ / M tokens",
        meaning="dollars per million tokens at the cluster's list price",
        unit="dollars",
        value=lambda row: row.price_per_million_tokens,
        short=("price",),
        is_usual=True,
        best_is_high=False,
    ),
    Column(
        name="kwh_per_million_tokens",
        label="energy / M tokens",
        meaning="energy of a million tokens: accelerators as measured, else as modelled, hosts, network, building",
        unit="kwh",
        value=lambda row: kwh_per_million_tokens(row.footprint, row.tokens_per_s),
        short=("energy", "kwh"),
        best_is_high=False,
    ),
    Column(
        name="co2_kg_per_million_tokens",
        label="CO2 / M tokens",
        meaning="emissions of that energy, where its mix is known",
        unit="kg",
        value=lambda row: co2_kg_per_million_tokens(row.footprint, row.tokens_per_s),
        short=("co2",),
        best_is_high=False,
    ),
    Column(
        name="complexity",
        label="complexity",
        meaning="weighted count of what differs from plain replicas, and of what it needs (docs/objectives.md)",
        unit="count",
        value=lambda row: int(complexity(row.layout)),
        best_is_high=False,
    ),
    Column(
        name="robustness",
        label="robustness",
        meaning="throughput under the sweep's fault trace as a share of that of healthy steps",
        unit="share",
        value=lambda row: None if row.footprint is None else row.footprint.robustness,
        best_is_high=True,
    ),
    Column(
        name="probability_best",
        label="likely best",
        meaning="how likely the layout is the fastest of those that ran",
        unit="share",
        value=lambda row: None if row.standing is None else row.standing.probability_best,
        short=("likely",),
        best_is_high=True,
    ),
)


def _times(value: float, share: float | None) -> float | None:
    return None if share is None else value * share


def _all() -> Iterator[Column]:
    yield _counted("rank", "#", "place among the trials that have a rank", lambda row: row.rank)
    yield from (_choice(AXES[letters], is_usual=True) for letters in _DEGREES)
    yield from _FIGURES
    number = "number of the trial, in the order in which they were chosen"
    yield _counted("trial", "trial", number, lambda row: None if row.trial is None else row.trial.number)
    yield from (_choice(axis, is_usual=False) for name, axis in AXES.items() if name not in _DEGREES)
    words = "the whole layout, as commands take it"
    yield Column(name="layout", label="layout", meaning=words, unit="text", value=lambda row: str(row.layout))


def _counted(name: str, label: str, meaning: str, value: Callable[[TableRow], Value]) -> Column:
    return Column(name=name, label=label, meaning=meaning, unit="count", value=value, is_usual=True)


def _choice(axis: Axis, *, is_usual: bool) -> Column:
    return Column(
        name=axis.name,
        label=axis.label,
        meaning=_meaning(axis.name),
        unit="word" if axis.words else "count",
        value=lambda row: axis.read(row.layout),
        words=axis.words,
        short=_SHORT.get(axis.name, ()),
        is_usual=is_usual,
    )


_MEANINGS = {
    "tp": "tensor parallel degree",
    "pp": "pipeline ranks",
    "dp": "data parallel degree: replicas of the model, sharded or not",
    "cp": "context parallel degree",
    "ep": "expert parallel degree",
    "mb": "sequences of a micro-batch",
    "sharding": "what data parallel ranks share out",
}


def _meaning(name: str) -> str:
    return _MEANINGS.get(name) or OPTIONS[name].label


COLUMNS: Mapping[str, Column] = {column.name: column for column in _all()}
"""Every column by its name, in the order in which a table has them."""

USUAL: tuple[Column, ...] = tuple(column for column in COLUMNS.values() if column.is_usual)
"""What is shown unless somebody chooses."""

_BY_ANY_NAME: Mapping[str, Column] = dict(COLUMNS) | {
    short: column for column in COLUMNS.values() for short in column.short
}


def column_named(name: str, field: str) -> Column:
    """The column of that name, or of that short name.

    Args:
        name: As somebody wrote it, in whatever case.
        field: Where it was written.

    Raises:
        InvalidInput: There is none; with the nearest.
    """
    known = name.strip().lower().replace("-", "_")
    if known in _BY_ANY_NAME:
        return _BY_ANY_NAME[known]
    near = get_close_matches(known, _BY_ANY_NAME, 1, cutoff=0.0)
    raise InvalidInput(field, name, "is no column of the table", near[0])


def columns_named(names: str) -> tuple[Column, ...]:
    """The columns that a list with commas names, each once, in that order; the usual ones where it is empty.

    Raises:
        InvalidInput: One of them is no column.
    """
    named = [column_named(name, "columns") for name in names.split(",") if name.strip()]
    return tuple(dict.fromkeys(named)) or USUAL
