"""TableRow and its columns: the layouts of a sweep as a table, both tried ones and those that are only predicted."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from autotuner.core.complexity import complexity
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.measurement import Measurement, ResourceCost, RobustMeasurement
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial, time_to_loss_s
from autotuner.search.predicted_ranking import PredictedLayout
from autotuner.search.results.axis import AXES, Axis
from autotuner.search.results.reached import Source, Standing, ranked_times, standings

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row of a sweep's table: a layout with its prediction and, if it was tried, its trial."""

    layout: Layout
    prediction: Prediction
    rank: int | None = None
    """Rank of the layout among the trials of the sweep; None if it was not tried."""
    trial: Trial | None = None
    """Trial of the layout; None if it was not tried."""
    standing: Standing | None = None
    """Certainty of the rank; None without a rank."""
    price_per_s: float = 0.0
    """Price of the whole cluster in dollars per second; 0 if no price is known."""
    modelled: ResourceCost | None = None
    """Modelled resource cost, if the layout was not tried."""
    time_to_loss_s: float | None = None
    """Seconds until the layout reaches the loss that the sweep's convergence gates compare; None if it is not known."""
    value: float | None = None
    """Value of the sweep's objective: reached, or predicted if the layout was not tried; None if it is unknown."""

    @property
    def reached(self) -> Measurement | TrialEstimate | None:
        """The trial's measurement or estimate, by which the layout is ranked; None without a trial or a result."""
        return None if self.trial is None else self.trial.reached

    @property
    def robust(self) -> RobustMeasurement | None:
        """The measurement of the layout under injected link faults (the sweep's fault trace); None if there is none."""
        return self.reached.robust if isinstance(self.reached, Measurement) else None

    @property
    def source(self) -> Source | Literal["predicted"]:
        """Source of the row's figures: ``measured``, ``estimated``, ``simulated`` or ``predicted``."""
        return "predicted" if self.reached is None else self.reached.source

    @property
    def step_time_s(self) -> float:
        """Seconds of one optimizer step: measured or estimated by a trial, else predicted."""
        return self.prediction.step_time.total_s if self.reached is None else self.reached.step_time_s

    @property
    def step_error(self) -> float | None:
        """Relative error of the step time: half the width of its interval, divided by the step time.

        For a measurement, the interval is the 95 % interval; for an estimate, the 80 % interval. None if the layout was
        neither measured nor estimated.
        """
        return None if self.reached is None else self.reached.relative_error

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole job: measured or estimated by a trial, else predicted."""
        return self.prediction.tokens_per_s if self.reached is None else self.reached.tokens_per_s

    @property
    def peak_bytes(self) -> float | None:
        """Peak memory in bytes of the rank that needs the most, measured or estimated; None if it is unknown."""
        peak = None if self.reached is None else self.reached.highest_peak_bytes
        return None if peak is None else float(peak)

    @property
    def resource_cost(self) -> ResourceCost | None:
        """Resource cost (power, price, emissions) of the layout: from its trial, or modelled if it has no result.

        None if the trial was stored before this field existed.
        """
        return self.modelled if self.reached is None else self.reached.resource_cost

    @property
    def price_per_million_tokens(self) -> float | None:
        """US dollars per million tokens; None if the price is unknown.

        The price of energy is included if it is paid in addition to the price of an hour.
        """
        if not self.tokens_per_s:
            return None
        if self.resource_cost is not None:
            return self.resource_cost.price_per_million_tokens(self.tokens_per_s)
        return 1e6 * self.price_per_s / self.tokens_per_s if self.price_per_s else None


def ranked_rows(request: SweepRequest, trials: Sequence[Trial]) -> tuple[TableRow, ...]:
    """Return a table row for each trial of a sweep that has a rank, best first.

    Args:
        request: The request of the sweep.
        trials: All trials of the sweep.
    """
    known = standings(ranked_times(request.objective, trials))
    ranked = enumerate(request.objective.ranked(trials), 1)
    return tuple(replace(trial_row(request, trial), rank=rank, standing=known[trial.id]) for rank, trial in ranked)


def trial_row(request: SweepRequest, trial: Trial) -> TableRow:
    """Return the table row of a trial of a sweep, without a rank.

    Args:
        request: The request of the sweep.
        trial: The trial; it need not have a result.
    """
    return TableRow(
        layout=trial.layout,
        prediction=trial.prediction,
        trial=trial,
        price_per_s=_price_per_s(request),
        time_to_loss_s=time_to_loss_s(trial, request.convergence_gate),
        value=None if trial.reached is None else request.objective.value(trial.reached),
    )


def untried_rows(
    request: SweepRequest, predicted: Iterable[PredictedLayout], trials: Iterable[Trial]
) -> tuple[TableRow, ...]:
    """Return a table row for each predicted layout that no trial has tried, in the given order.

    Args:
        request: The request of the sweep.
        predicted: Predicted layouts, usually best first.
        trials: All trials of the sweep.
    """
    tried = {trial.layout for trial in trials}
    price_per_s, objective = _price_per_s(request), request.objective
    return tuple(
        TableRow(
            layout=one.layout,
            prediction=one.prediction,
            price_per_s=price_per_s,
            modelled=one.resource_cost,
            value=None
            if objective.reads_resource_cost and one.resource_cost is None
            else objective.value_per_step(request.job, one.resource_cost) / objective.predicted_step_s(one.prediction),
        )
        for one in predicted
        if one.layout not in tried
    )


def _price_per_s(request: SweepRequest) -> float:
    cluster = request.job.cluster
    return cluster.price_per_accelerator_hour * cluster.world_size / _SECONDS_PER_HOUR


# ---------------------------------------------------------------- columns
Value = int | float | str | None
"""Value of a cell: a number in SI units, a choice in words, or nothing."""

Unit = Literal["count", "word", "text", "share", "s", "bytes", "per_s", "dollars", "kwh", "kg", "value"]
"""Unit of a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a sweep's table: its name, meaning and unit, and the function that returns a row's value."""

    name: str
    """Name of the column in URLs and documents: ``tp``, ``step_time_s``."""
    label: str
    """Label of the column in the table's header."""
    meaning: str
    """Meaning of the column, as a sentence without a full stop."""
    unit: Unit
    value: Callable[[TableRow], Value]
    """A function that returns the value of a row."""
    error: Callable[[TableRow], float | None] | None = None
    """A function that returns the half-width of the interval of a row's value, in its unit. None: the column has no
    intervals."""
    words: tuple[str, ...] = ()
    """Words of a choice in order, the simplest setting first; empty for other columns."""
    short: tuple[str, ...] = ()
    """Alternative names that people may write in a query."""
    is_usual: bool = False
    """True if the column is shown by default."""
    best_is_high: bool | None = None
    """True if higher values are better, False if lower values are; None if no value is better than another."""

    @property
    def is_figure(self) -> bool:
        """True if the values are measured or computed numbers. A query should compare them with ``<``, not ``=``."""
        return self.unit not in ("count", "word", "text")

    def key(self, row: TableRow) -> tuple[int, float | str]:
        """Return the sort key of a row for this column. Words are sorted in a fixed order, not by the alphabet."""
        value = self.value(row)
        if isinstance(value, str):
            return (0, float(self.words.index(value))) if value in self.words else (1, value)
        return (0, 0.0 if value is None else float(value))


# ---------------------------------------------------------------- every column
_DEGREES = ("tp", "pp", "dp", "cp", "ep", "mb")

_OF_CHOICES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tp": ("tensor parallel degree", ("tensor_parallel_degree", "tensor")),
    "pp": ("pipeline ranks", ("pipeline_parallel_degree", "pipeline")),
    "dp": ("data parallel degree: number of replicas times shards", ("data_parallel_degree", "data")),
    "cp": ("context parallel degree", ("context_parallel_degree", "context")),
    "ep": ("expert parallel degree", ("expert_parallel_degree", "expert")),
    "mb": ("sequences of a micro-batch", ("micro_batch_size", "micro-batch")),
    "sharding": ("state that data parallel ranks shard: none, optimizer, gradients or parameters", ("shard_level",)),
    "virtual_stages_per_rank": ("", ("v", "stages")),
    "pipeline_schedule": ("", ("schedule",)),
    "sequence_parallel": ("", ("sp",)),
    "attention_kernel": ("", ("attention",)),
    "gradient_bucket_bytes": ("", ("bucket",)),
}
"""Meanings and alternative names of choices whose option's label does not explain them."""

_FIGURES = (
    Column(
        name="value",
        label="value",
        meaning="value of the sweep's objective, in SI units (none for a profile of several metrics); predicted if "
        "the layout was not run",
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
        meaning="MFU over all steps under the sweep's fault trace, including the time to plan the schedule anew",
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
        meaning="predicted share by which the rank with most tokens computes more than the mean; empty if all "
        "sequences have the same length",
        unit="share",
        value=lambda row: row.prediction.imbalance,
    ),
    Column(
        name="padding_waste",
        label="padding",
        meaning="predicted padding as a share of real tokens; empty if all sequences have the same length",
        unit="share",
        value=lambda row: row.prediction.padding_waste,
        short=("padding",),
    ),
    Column(
        name="tokens_per_s",
        label="token/s",
        meaning="tokens per second of the whole job; predicted if the layout was not run",
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
        meaning="seconds of a step; predicted if the layout was not run",
        unit="s",
        value=lambda row: row.step_time_s,
        error=lambda row: _times(row.step_time_s, row.step_error),
        short=("step",),
        best_is_high=False,
    ),
    Column(
        name="time_to_loss_s",
        label="to loss",
        meaning="seconds until the loss that the reference layout has after the steps of a convergence gate; only for "
        "lossy layouts",
        unit="s",
        value=lambda row: row.time_to_loss_s,
        error=lambda row: _times(row.time_to_loss_s or 0.0, row.step_error),
        short=("to_loss", "time_to_loss"),
        best_is_high=False,
    ),
    Column(
        name="predicted_step_time_s",
        label="predicted step",
        meaning="predicted seconds of a step",
        unit="s",
        value=lambda row: row.prediction.step_time.total_s,
        error=lambda row: _times(row.prediction.step_time.total_s, row.prediction.relative_error),
        short=("predicted_step",),
        best_is_high=False,
    ),
    Column(
        name="peak_bytes",
        label="memory",
        meaning="peak memory of the rank that needs most",
        unit="bytes",
        value=lambda row: row.peak_bytes,
        short=("memory", "peak"),
        is_usual=True,
        best_is_high=False,
    ),
    Column(
        name="predicted_peak_bytes",
        label="predicted memory",
        meaning="predicted peak memory of the rank that needs most",
        unit="bytes",
        value=lambda row: row.prediction.memory.total_bytes,
        short=("predicted_memory",),
        best_is_high=False,
    ),
    Column(
        name="fit_probability",
        label="fits",
        meaning="predicted probability that the layout fits in memory",
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
        meaning="energy of a million tokens: accelerators (measured if possible, else predicted), hosts, network and "
        "building",
        unit="kwh",
        value=lambda row: (
            None if row.resource_cost is None else row.resource_cost.kwh_per_million_tokens(row.tokens_per_s)
        ),
        short=("energy", "kwh"),
        best_is_high=False,
    ),
    Column(
        name="co2_kg_per_million_tokens",
        label="CO2 / M tokens",
        meaning="CO2 emissions of that energy, if the emissions of the electricity are known",
        unit="kg",
        value=lambda row: (
            None if row.resource_cost is None else row.resource_cost.co2_kg_per_million_tokens(row.tokens_per_s)
        ),
        short=("co2",),
        best_is_high=False,
    ),
    Column(
        name="complexity",
        label="complexity",
        meaning="weighted count of the ways in which the layout is more complex than plain replicas",
        unit="count",
        value=lambda row: int(complexity(row.layout)),
        best_is_high=False,
    ),
    Column(
        name="robustness",
        label="robustness",
        meaning="throughput under the sweep's fault trace, as a share of the throughput without faults",
        unit="share",
        value=lambda row: None if row.resource_cost is None else row.resource_cost.robustness,
        best_is_high=True,
    ),
    Column(
        name="probability_best",
        label="likely best",
        meaning="probability that the layout is the fastest of all layouts that were run",
        unit="share",
        value=lambda row: None if row.standing is None else row.standing.probability_best,
        short=("likely",),
        best_is_high=True,
    ),
)


def _times(value: float, share: float | None) -> float | None:
    return None if share is None else value * share


def _all() -> Iterator[Column]:
    yield _counted("rank", "#", "place of the trial in the ranking", lambda row: row.rank)
    yield from (_choice(AXES[letters], is_usual=True) for letters in _DEGREES)
    yield from _FIGURES
    number = "number of the trial, in the order in which they were chosen"
    yield _counted("trial", "trial", number, lambda row: None if row.trial is None else row.trial.number)
    yield from (_choice(axis, is_usual=False) for name, axis in AXES.items() if name not in _DEGREES)
    words = "the whole layout in words, as commands read it"
    yield Column(name="layout", label="layout", meaning=words, unit="text", value=lambda row: str(row.layout))


def _counted(name: str, label: str, meaning: str, value: Callable[[TableRow], Value]) -> Column:
    return Column(name=name, label=label, meaning=meaning, unit="count", value=value, is_usual=True)


def _choice(axis: Axis, *, is_usual: bool) -> Column:
    meaning, short = _OF_CHOICES.get(axis.name, ("", ()))
    return Column(
        name=axis.name,
        label=axis.label,
        meaning=meaning or OPTIONS[axis.name].label,
        unit="word" if axis.words else "count",
        value=lambda row: axis.read(row.layout),
        words=axis.words,
        short=short,
        is_usual=is_usual,
    )


COLUMNS: Mapping[str, Column] = {column.name: column for column in _all()}
"""Columns by name, in the order in which a table shows them."""

USUAL: tuple[Column, ...] = tuple(column for column in COLUMNS.values() if column.is_usual)
"""Columns that are shown by default."""

_BY_ANY_NAME = dict(COLUMNS) | {short: column for column in COLUMNS.values() for short in column.short}


def column_named(name: str, field: str) -> Column:
    """Return the column with a given name or short name, in upper or lower case.

    Args:
        name: Name that the user wrote.
        field: Name of the parameter that contains the name, for the error message.

    Raises:
        InvalidInput: There is no such column; the error names the nearest one.
    """
    known = name.strip().lower().replace("-", "_")
    if known in _BY_ANY_NAME:
        return _BY_ANY_NAME[known]
    near = get_close_matches(known, _BY_ANY_NAME, 1, cutoff=0.0)
    raise InvalidInput(field, name, "is not a column of the table of trials", near[0])


def columns_named(names: str) -> tuple[Column, ...]:
    """Return the columns that a text lists, with commas between their names; the usual columns if it is empty.

    A column that is listed twice appears once.

    Raises:
        InvalidInput: A name is not the name of a column.
    """
    named = [column_named(name, "columns") for name in names.split(",") if name.strip()]
    return tuple(dict.fromkeys(named)) or USUAL


# ---------------------------------------------------------------- cells and CSV
def cells_of(columns: Iterable[Column]) -> list[tuple[str, Callable[[TableRow], Value]]]:
    """Return the name of each cell of a row, with the function that computes the value of the cell.

    Each column has one cell. If the values of a column have an interval, there is a second cell, ``NAME_error``, with
    half the width of the interval.
    """
    both = (((column.name, column.value), (f"{column.name}_error", column.error)) for column in columns)
    return [(name, value) for cells in both for name, value in cells if value is not None]


def as_csv(rows: Iterable[TableRow], columns: Iterable[Column]) -> str:
    """Return the rows as CSV with a header line (RFC 4180).

    Numbers are in SI units, unknown values are empty, and the text of the layout is the last column.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    cells = cells_of(column for column in columns if column.name != "layout")
    writer.writerow((*(name for name, _ in cells), "layout"))
    writer.writerows((*(value(row) for _, value in cells), str(row.layout)) for row in rows)
    return written.getvalue()
