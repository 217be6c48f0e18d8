"""Reads a table of measured runs, row by row."""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import numpy as np

from autotuner.backtests.cells import Row, UnusableRow, count, is_true, positive, text
from autotuner.backtests.layouts import global_batch_size, layout_of, stack_of
from autotuner.backtests.models import model_of, with_capacity
from autotuner.backtests.sources import Source, calibration_of, cluster_of, source_of
from autotuner.core.choices import Recompute
from autotuner.core.columns import Booleans, Floats, LayoutColumns
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.workload import Workload

_MAX_CHARACTERS = 20_000_000
"""Maximum number of characters of a table: about ten thousand rows with long notes."""


def columns_and_rows(path: Path) -> tuple[tuple[str, ...], list[Row]]:
    """Return the names of the columns in a CSV file, and every row below them.

    Raises:
        InvalidInput: The file cannot be read, or is too long.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput("table", str(path), f"cannot be read: {why}") from error
    if len(text) > _MAX_CHARACTERS:
        raise InvalidInput(
            "table", str(path), f"must have at most {_MAX_CHARACTERS:,} characters; split it into several tables"
        )
    table = re.sub(r"\A(\s*(# .*)?\r?\n)+", "", text)  # comments above the header
    reader = csv.DictReader(StringIO(table, newline=""), restval="", skipinitialspace=True)
    try:
        rows: list[Row] = list(reader)
    except csv.Error as error:
        raise InvalidInput("table", str(path), f"is not CSV at line {reader.line_num} ({error})") from error
    return tuple(reader.fieldnames or ()), rows


REQUIRED_COLUMNS = ("model", "seq_len", "gpu", "num_gpus")

_BROKEN_BY_MEASURED_RUNS = ("tensor-group-inside-node", "micro-batches-fill-pipeline")
"""Rules that measured runs break, because they are about good proposals only: Megatron and nanotron ran tensor groups
of 16 on nodes of 8, and 1F1B with fewer micro-batches than ranks (the tables of vTrain, of the Ultra-Scale Playbook and
of arXiv 2401.10241 have such rows)."""

_RULES = tuple(rule for rule in RULES if rule.name not in _BROKEN_BY_MEASURED_RUNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A measured run of a layout, ended with a step time or out of memory, that can be compared with its prediction."""

    job: Job
    layout: Layout
    step_time_s: float | None
    """Step time of the run; None if it ran out of memory."""


def read_row(row: Row) -> Run:
    """Return the measured run that a table row describes, with its layout and its job.

    Raises:
        UnusableRow: A value is missing, values contradict each other, or the row cannot be expressed as a legal layout.
            Or the row is not a training run that ended with a step time or out of memory.
    """
    _refuse_other_runs(row)
    source = source_of(row)
    try:
        cluster = cluster_of(row, source)
        model = with_capacity(model_of(row, source.vocab), row, source.capacity_factor)
        layout = layout_of(row, source, cluster, model)
        workload = Workload(seq_len=count(row, "seq_len"), global_batch_size=global_batch_size(row, layout))
        job = Job(
            model=model,
            cluster=cluster,
            workload=workload,
            stack=stack_of(row, source, cluster, model),
            calibration=calibration_of(row, cluster.accelerator.name),
        )
    except InvalidInput as error:
        raise UnusableRow(f"{error.field} {error.rule}", str(error)) from error
    except NotFound as error:
        raise UnusableRow(str(error)) from error
    for broken in reasons(layout, job, _RULES):
        raise UnusableRow(f"the layout is not legal, because of the rule {broken.rule}", broken.message)
    return Run(job=job, layout=layout, step_time_s=_step_time_s(row, source, job, layout))


def _refuse_other_runs(row: Row) -> None:
    """Raise ``UnusableRow`` if the row did not measure a training step, or if its figures cannot be trusted."""
    if "lora" in text(row, "task").lower():
        raise UnusableRow("fine-tuning by LoRA is not predicted, because most weights have no gradients")
    if text(row, "suspect"):
        raise UnusableRow("the table marks the step time as suspect", text(row, "suspect"))
    if is_true(text(row, "oom")):
        return
    if text(row, "status").lower() not in ("", "success", "ok", "completed"):
        raise UnusableRow(f"the run was not completed: its status is {text(row, 'status')}")
    if text(row, "notes").startswith("run failed"):
        raise UnusableRow(text(row, "notes"))


# ---------------------------------------------------------------- step time
def _step_time_s(row: Row, source: Source, job: Job, layout: Layout) -> float | None:
    """Return the seconds of a step; None if the run ran out of memory."""
    if is_true(text(row, "oom")):
        return None
    tokens, ranks = job.workload.tokens_per_step, job.cluster.world_size
    if text(row, "step_time_s"):
        return positive(row, "step_time_s")
    if text(row, "tokens_per_s_per_gpu"):
        return tokens / (positive(row, "tokens_per_s_per_gpu") * ranks)
    if text(row, "tokens_per_s"):
        return tokens / positive(row, "tokens_per_s")
    if text(row, "samples_per_gpu_per_s"):
        return job.workload.global_batch_size / (positive(row, "samples_per_gpu_per_s") * ranks)
    if text(row, "tflops_per_gpu") and source.tflops:
        flop = tokens * _flop_per_token(source, job, layout)
        return flop / (positive(row, "tflops_per_gpu") * 1e12 * ranks)
    raise UnusableRow("the row has neither a step time nor tokens per second")


def _flop_per_token(source: Source, job: Job, layout: Layout) -> float:
    """Return the FLOP per token that a stated TFLOP/s is based on, counted as the source counts."""
    model, seq_len = job.model, job.workload.seq_len
    flop = model.model_flop_per_token(seq_len)
    if source.tflops == "causal":
        return flop - 1.5 * model.attention_flop_per_token(seq_len)
    if source.tflops == "hardware" and layout.recompute == Recompute.FULL:
        return flop + 2 * model.num_active_layer_matrix_parameters + model.attention_flop_per_token(seq_len)
    return flop


@dataclass(frozen=True, eq=False, kw_only=True)
class Sheet:
    """Measured runs of one job: they have the same source, model, cluster, sequence length and batch."""

    name: str
    """Name of the sheet in words, unique in a table. A number is added if two sheets would have the same name."""
    job: Job
    layouts: LayoutColumns
    """Layouts of the sheet, one row per run."""
    step_time_s: Floats
    """Measured step times; NaN if the run ran out of memory."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of rows of the sheet that cannot be judged, by reason."""
    source: str = ""
    """Text in the table's ``source`` column."""

    def __len__(self) -> int:
        return len(self.step_time_s)

    @property
    def out_of_memory(self) -> Booleans:
        """A mask over the measured runs: True if the run ran out of memory, False if it ended with a step time."""
        return np.isnan(self.step_time_s)


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """The measured runs of a table, divided into sheets. A sheet has the runs of one job.

    The sheets have the order of their first rows in the table.
    """

    sheets: tuple[Sheet, ...]
    left_out: Mapping[str, int]
    """Number of rows that belong to no sheet, by reason, because no row of their sheet can be judged."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """First row that was left out for each reason, in words."""


def read_table(path: Path) -> Table:
    """Return the measured runs in a CSV file, by job. Unusable rows are left out and counted by reason.

    Raises:
        InvalidInput: The file cannot be read, or lacks a column that every row needs.
    """
    runs: dict[_Key, list[Run]] = {}
    left_out: dict[_Key, Counter[str]] = {}
    examples: dict[str, str] = {}
    for number, row in enumerate(_rows(path), 1):
        key = tuple((row.get(column) or "").strip() for column in _KEY_COLUMNS)
        found, reasons = runs.setdefault(key, []), left_out.setdefault(key, Counter())
        try:
            found.append(read_row(row))
        except UnusableRow as why:
            reasons[why.reason] += 1
            # counted from the first row below the header
            run = f"row {number}: {row['model']}, {row['num_gpus']} x {row['gpu']}"
            examples.setdefault(why.reason, f"{run}: {why.detail}" if why.detail else run)
    lost: Counter[str] = sum((left_out[key] for key, found in runs.items() if not found), Counter())
    return Table(sheets=tuple(_sheets(runs, left_out)), left_out=dict(lost), examples=examples)


_Key = tuple[str, ...]
_KEY_COLUMNS = ("source", "model", "num_gpus", "gpu", "seq_len", "global_batch")
"""Columns that identify the job of the rows of one sheet."""


def _sheets(runs: Mapping[_Key, list[Run]], left_out: Mapping[_Key, Mapping[str, int]]) -> Iterator[Sheet]:
    """Return one sheet per key, or several if the rows of a key are about different jobs.

    All sheets have different names.
    """
    names: Counter[str] = Counter()
    for key, found in runs.items():
        jobs: dict[Job, list[Run]] = defaultdict(list)
        for run in found:
            jobs[run.job].append(run)
        for number, (job, same) in enumerate(jobs.items()):
            name = _name(key)
            names[name] += 1
            seconds = np.array([np.nan if run.step_time_s is None else run.step_time_s for run in same])
            yield Sheet(
                name=name if names[name] == 1 else f"{name} ({names[name]})",
                job=job,
                layouts=LayoutColumns.from_layouts(run.layout for run in same),
                step_time_s=seconds,
                left_out=dict(left_out[key]) if number == 0 else {},
                source=key[0],
            )


def _name(key: _Key) -> str:
    """Return the job of a sheet in words.

    A long source is shortened to its beginning and its end, because the end names the file.
    """
    source, model, num_gpus, gpu, seq_len, batch = key
    words = f"{model}, {num_gpus} x {gpu}, {seq_len} tokens, batch {batch or '?'}"
    short = source if len(source) <= 60 else f"{source[:28]}...{source[-29:]}"
    return f"{short}: {words}" if source else words


def _rows(path: Path) -> Iterable[Row]:
    columns, rows = columns_and_rows(path)
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        rule = f"must have the column(s) {', '.join(missing)}; it has only {', '.join(columns or ('none',))[:500]}"
        raise InvalidInput("table", str(path), rule)
    return rows
