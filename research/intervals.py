"""Counts the measured runs behind predictions, and fits how wrong predictions may be: catalog/compared.toml.

The runs are those that ``research.fit_stacks`` fits and ``research.accuracy`` leaves out in turn, and those on CPU
cores that ``research.cpu_sweep`` stores, whose constants come from a profile. ``scatter`` and ``cluster_deviation`` use
sheets whose constants were fitted without them. ``scatter`` needs jobs whose cluster is known from other sheets
(``Job.calibration``); ``cluster_deviation`` needs jobs of sources that were left out as a whole. Both choose the
deviation with which 80 % of the runs lie in their intervals, so that heavy tails (faults of the network) do not widen
the intervals more than necessary.

``python -m research.intervals`` writes counts, scatter and median errors to ``autotuner/catalog/compared.toml``, and
prints how many runs of each group lie in their intervals, and the deviation of the cluster factor for
``costmodel/uncertainty.py``.
``--quick`` uses the constants of the catalog, which were fitted to all runs and scatter less; it leaves nothing out and
writes nothing. ``--counts`` only counts the runs again, and computes their median errors with the catalog's constants.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotuner.backtests.measured_table import Sheet
from autotuner.catalog.software import (
    BITS_8,
    BITS_16,
    DENSE,
    EXPERTS,
    Compared,
    comparisons,
    model_kind,
    pooled_scatter,
)
from autotuner.core.choices import NARROW_PRECISIONS
from autotuner.core.columns import Floats, is_one_of
from autotuner.costmodel.evidence import LATENT, SUBJECTS
from autotuner.costmodel.predict import predict
from autotuner.costmodel.uncertainty import Z80, interval_error, log_variance
from research.cpu_sweep import KEPT_CORES, catalog_errors, kept_layouts
from research.fit_stacks import FITS, cluster_of, sheets_of
from research.held_out import held_out

TABLE = Path(__file__).resolve().parent.parent / "autotuner" / "catalog" / "compared.toml"

Key = tuple[str, str, str]
"""Stack, accelerator and kind of model."""

_HEAD = """\
# Measured runs that predictions were compared with: by software, accelerator and kind of model, and how many of them
# had what the word of a layout's name stands for. Written by `python -m research.intervals`; do not edit.
"""


def counted(sheets: Iterable[tuple[str, Sheet]]) -> Iterator[Compared]:
    """Yield, for each stack, accelerator and kind of model, how many measured runs predictions were compared with.

    Each sheet (the measured runs of one job) comes with the name of its published table. The entries have the order of
    the sheets.
    """
    tables: dict[Key, dict[str, None]] = defaultdict(dict)
    runs: Counter[Key] = Counter()
    options: dict[Key, Counter[str]] = defaultdict(Counter)
    for table, sheet in sheets:
        key = sheet.job.stack.name, sheet.job.cluster.accelerator.name, model_kind(sheet.job.model)
        measured = sheet.layouts.take(~sheet.out_of_memory)
        tables[key][table] = None
        runs[key] += len(measured)
        options[key].update({subject.word: int(subject.of(measured).sum()) for subject in SUBJECTS})
        options[key][LATENT] += len(measured) * (sheet.job.model.latent_attention is not None)
    for (stack, device, model), num_runs in runs.items():
        had = {name: count for name, count in options[stack, device, model].items() if count}
        names = tuple(tables[stack, device, model])
        yield Compared(stack=stack, device=device, model=model, runs=num_runs, tables=names, options=had)


def of_cores() -> Compared:
    """Return how many runs on CPU cores predictions were compared with.

    They are the runs that ``research.cpu_sweep`` stores.
    """
    table = {f"cpu_sweep_{num_cores}": kept_layouts(num_cores) for num_cores in KEPT_CORES}
    job = next(job for job, _ in table.values())
    errors = np.concatenate([catalog_errors(num_cores) for num_cores in KEPT_CORES])
    return Compared(
        stack=job.stack.name,
        device=job.cluster.accelerator.name,
        model=model_kind(job.model),
        median_error=float(np.median(errors)),
        runs=sum(len(layouts) for _, layouts in table.values()),
        tables=tuple(table),
        options={
            subject.word: count
            for subject in SUBJECTS
            if (count := sum(int(subject.of(layouts).sum()) for _, layouts in table.values()))
        },
    )


def as_toml(entries: Iterable[Compared], pooled: Mapping[str, Mapping[str, float]]) -> str:
    """Return the text of ``catalog/compared.toml``.

    Args:
        entries: The runs that predictions were compared with, by stack, accelerator and kind of model.
        pooled: Standard deviation of log(measured / predicted step time), by kind of model and then by bits of the
            number format.
    """
    return "\n".join(
        [_HEAD, *map(_compared, entries), *(_pooled(model, found) for model, found in pooled.items() if found)]
    )


def _write_compared(scatter: Mapping[Key, Mapping[str, float]], pooled: Mapping[str, Mapping[str, float]]) -> None:
    """Write the table with the scatter and the median error of the runs of each stack, accelerator and model kind."""
    sheets = [(table, sheet) for one in FITS for table in one.tables for sheet in sheets_of(table)]
    errors = median_errors(misses(sheet for _, sheet in sheets))
    entries = [replace(entry, median_error=errors[_key(entry)]) for entry in counted(sheets)]
    entries = [replace(entry, scatter=dict(scatter.get(_key(entry), {}))) for entry in (*entries, of_cores())]
    TABLE.write_text(as_toml(entries, pooled), encoding="utf-8")


def _key(entry: Compared) -> Key:
    return entry.stack, entry.device, entry.model


def _compared(entry: Compared) -> str:
    lines = ["[[compared]]", *(f'{name} = "{getattr(entry, name)}"' for name in ("stack", "device", "model"))]
    tables = ", ".join(f'"{table}"' for table in entry.tables)
    lines += [f"runs = {entry.runs}", f"tables = [{tables}]"]
    lines += [] if entry.median_error is None else [f"median_error = {entry.median_error:.3f}"]
    options = ", ".join(f'"{name}" = {count}' for name, count in entry.options.items())
    lines += [f"scatter = {_inline(entry.scatter)}", f"options = {{ {options} }}"]
    return "\n".join(lines) + "\n"


def _pooled(model: str, scatter: Mapping[str, float]) -> str:
    return f'[[pooled]]\nmodel = "{model}"\nscatter = {_inline(scatter)}\n'


def _inline(scatter: Mapping[str, float]) -> str:
    return "{ " + ", ".join(f'"{bits}" = {deviation:.3f}' for bits, deviation in sorted(scatter.items())) + " }"


def _write_counts() -> None:
    """Write the table with new counts and median errors of the runs."""
    _write_compared(
        {key: entry.scatter for key, entry in comparisons().items()},
        {kind: pooled_scatter(kind) for kind in (DENSE, EXPERTS)},
    )


ASKED = 0.8
"""Share of the runs that must lie in their intervals."""

PROCESSES = 2

POOLED_RUNS = 12.0
"""Number of runs as which the scatter of all stacks counts beside a stack's own runs: about enough to know a quantile
to a third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """The error of the predicted step time of one run, and the variances that the cost model had predicted for it."""

    owner: Key
    sheet: str
    """Name of the run's sheet."""
    cluster: str
    """Source and accelerator of the run."""
    bits: str
    """Width of the run's number format in bits."""
    error: float
    """log(measured / predicted)."""
    parts: float
    """Variance of the error that the uncertainty of the step's parts explains."""
    residual: float
    """Variance of the error that no part explains."""
    common: float
    """Variance of the error that the cluster's factor explains."""


def misses(sheets: Iterable[Sheet]) -> Iterator[Miss]:
    """Yield the prediction error, with its predicted variances, of every run that did not run out of memory.

    The runs are given as sheets; a sheet has the measured runs of one job.
    """
    for sheet in sheets:
        measured, job = ~sheet.out_of_memory, sheet.job
        x = sheet.layouts.take(measured)
        step_time = predict(x, job).step_time
        said = interval_error(x, job)
        parts = log_variance(step_time, replace(said, residual=np.zeros(len(x)), common=0.0))
        errors = np.log(sheet.step_time_s[measured] / step_time.total_s)
        is_narrow = is_one_of(x.precision, NARROW_PRECISIONS)
        for row in range(len(x)):
            yield Miss(
                owner=(job.stack.name, job.cluster.accelerator.name, model_kind(job.model)),
                sheet=sheet.name,
                cluster=cluster_of(sheet),
                bits=BITS_8 if is_narrow[row] else BITS_16,
                error=float(errors[row]),
                parts=float(parts[row]),
                residual=float(said.residual[row]) ** 2,
                common=said.common**2,
            )


# ---------------------------------------------------------------- deviations
def scatter(found: Iterable[Miss]) -> dict[Key, dict[str, float]]:
    """Return the standard deviation of prediction errors that no known cause explains, with which 80 % intervals hold.

    The result is ordered by stack, accelerator and kind of model (one key), and then by bits of the number format. It
    is fitted to the runs with this key and, with the total weight of ``POOLED_RUNS`` runs, to runs of other stacks or
    accelerators with the same kind of model.
    """
    by_kind = _by_kind(found)
    result: dict[Key, dict[str, float]] = defaultdict(dict)
    for (_, bits), owners in by_kind.items():
        for owner, own in owners.items():
            others = [some for other, some in owners.items() if other != owner]
            result[owner][bits] = _deviation(own, others)
    return dict(result)


def pooled(found: Iterable[Miss]) -> dict[str, dict[str, float]]:
    """Return the same deviations as ``scatter``, but of all stacks and accelerators together.

    The result is ordered by kind of model, and then by bits of the number format. Each pair of a stack and an
    accelerator has the same weight, however many runs it has.
    """
    result: dict[str, dict[str, float]] = defaultdict(dict)
    for (kind, bits), owners in _by_kind(found).items():
        result[kind][bits] = _deviation([], list(owners.values()))
    return dict(result)


def median_errors(found: Iterable[Miss]) -> dict[Key, float]:
    """Return the median of abs(predicted / measured - 1) of the runs of each stack, accelerator and kind of model."""
    errors: dict[Key, list[float]] = defaultdict(list)
    for miss in found:
        errors[miss.owner].append(abs(float(np.exp(-miss.error)) - 1))
    return {owner: float(np.median(some)) for owner, some in errors.items()}


def cluster_deviation(found: Iterable[Miss]) -> float:
    """Return the standard deviation of the factor between clusters with which 80 % of the runs lie in their intervals.

    The factor says how much slower a whole cluster is than a typical one. All clusters have the same weight.
    """
    clusters: dict[str, list[Miss]] = defaultdict(list)
    for miss in found:
        clusters[miss.cluster].append(miss)
    excess = [[_excess(miss, miss.parts + miss.residual) for miss in some] for some in clusters.values()]
    return _root(excess, [1 / len(some) for some in excess])


def covered(found: Iterable[Miss]) -> float:
    """Return the share of the runs, 0..1, whose measured step time lies in its predicted 80 % interval."""
    return float(np.mean([_excess(miss, miss.parts + miss.residual + miss.common) <= 0 for miss in found]))


def _by_kind(found: Iterable[Miss]) -> Mapping[tuple[str, str], Mapping[Key, list[Miss]]]:
    by_kind: dict[tuple[str, str], dict[Key, list[Miss]]] = defaultdict(lambda: defaultdict(list))
    for miss in found:
        by_kind[miss.owner[2], miss.bits][miss.owner].append(miss)
    return by_kind


def _deviation(own: Sequence[Miss], others: Sequence[Sequence[Miss]]) -> float:
    """Return the deviation of the residual: the part of the errors that neither parts nor cluster explain."""
    excess = [[_excess(miss, miss.parts + miss.common) for miss in some] for some in (own, *others) if some]
    weights = [POOLED_RUNS / (len(others) * len(some)) for some in others]
    return _root(excess, [1.0, *weights] if own else weights)


def _excess(miss: Miss, variance: float) -> float:
    """Return how much the squared error exceeds a variance if the error is taken as the end of an 80 % interval."""
    return (miss.error / Z80) ** 2 - variance


def _root(excess: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    """Return the deviation that covers the share ``ASKED`` of the runs; each set of runs has its weight per run."""
    values: Floats = np.concatenate([np.asarray(some) for some in excess])
    share = np.concatenate([np.full(len(some), weight) for some, weight in zip(excess, weights, strict=True)])
    order = np.argsort(values)
    reached = np.cumsum(share[order]) / share.sum()
    return float(np.sqrt(max(0.0, values[order][np.searchsorted(reached, ASKED)])))


# ---------------------------------------------------------------- groups
GROUPS: Mapping[str, Callable[[Miss], bool]] = {
    "H100 dense bf16": lambda miss: _is_hopper(miss, "h100") and miss.bits == BITS_16,
    "H100 dense fp8": lambda miss: _is_hopper(miss, "h100") and miss.bits == BITS_8,
    "Blackwell": lambda miss: miss.owner[1].startswith(("b200", "b300", "gb200", "gb300")),
    "models with experts": lambda miss: miss.owner[2] == EXPERTS,
    "GH200": lambda miss: _is_hopper(miss, "gh200"),
    "A100": lambda miss: miss.owner[1].startswith("a100"),
}


def _is_hopper(miss: Miss, name: str) -> bool:
    return miss.owner[1].startswith(name) and miss.owner[2] == DENSE


def group_line(name: str, found: Sequence[Miss]) -> str:
    """Return a row of a Markdown table. Each cell says how many runs of a group lie in their 80 % intervals.

    The cell also has the number of runs and the median half-width of the intervals.

    Args:
        name: First cell of the row.
        found: The errors of all runs.
    """
    cells = []
    for keep in GROUPS.values():
        kept = [miss for miss in found if keep(miss)]
        widths = [np.expm1(Z80 * np.sqrt(miss.parts + miss.residual + miss.common)) for miss in kept]
        cells.append(f"{covered(kept):.0%} of {len(kept)}, ± {np.median(widths):.0%}" if kept else "")
    return f"| {name} | " + " | ".join(cells) + " |"


def with_scatter(miss: Miss, scatter: Mapping[Key, Mapping[str, float]]) -> Miss:
    """Return the run with the variance that no cause explains replaced by the fitted variance.

    ``scatter`` has the fitted standard deviations, as the function ``scatter`` returns them.
    """
    return replace(miss, residual=scatter[miss.owner][miss.bits] ** 2)


def on_known_clusters(found: Sequence[Miss]) -> Iterator[Miss]:
    """Yield the errors that the runs would have if the speed of their cluster were known from its other sheets.

    A sheet has the measured runs of one job. ``costmodel/calibration.py`` describes how runs determine the speed of a
    cluster.
    """
    by_cluster: dict[str, list[Miss]] = defaultdict(list)
    for miss in found:
        by_cluster[miss.cluster].append(miss)
    for some in by_cluster.values():
        every = _precision_and_sum(some)
        of_sheet = {
            sheet: _precision_and_sum([miss for miss in some if miss.sheet == sheet])
            for sheet in {m.sheet for m in some}
        }
        for miss in some:
            weight, weighted_error = every - of_sheet[miss.sheet]
            precision = weight + 1 / miss.common
            yield replace(miss, error=miss.error - weighted_error / precision, common=1 / precision)


def _precision_and_sum(some: Sequence[Miss]) -> Floats:
    """Return the precision with which runs determine their cluster's factor, and their weighted sum of errors."""
    weights = np.array([1 / (miss.parts + miss.residual) for miss in some])
    return np.array([weights.sum(), weights @ np.array([miss.error for miss in some])])


def main() -> None:
    """Fit how uncertain predictions are, and write the result to ``catalog/compared.toml``.

    The command also prints how many runs lie in their predicted intervals. ``--quick`` only prints; ``--counts`` only
    counts the runs again.
    """
    if "--counts" in sys.argv:
        return _write_counts()
    print("| runs, median width ± | " + " | ".join(GROUPS) + " |", "| --- |" + " --- |" * len(GROUPS), sep="\n")  # noqa: T201
    if "--quick" in sys.argv:
        unknown = _misses([{table: sheets_of(table) for table in one.tables} for one in FITS])
        known = list(on_known_clusters(unknown))
    else:
        known, unknown = (_misses([held_out(one, by, PROCESSES) for one in FITS]) for by in ("model", "source"))
    own, others = scatter(known), pooled(known)
    if "--quick" not in sys.argv:
        _write_compared(own, others)
    unknown = [with_scatter(miss, own) for miss in unknown]
    print(group_line("cluster known", [with_scatter(miss, own) for miss in known]))  # noqa: T201
    print(group_line("cluster unknown", unknown))  # noqa: T201
    print(f"CLUSTER = {cluster_deviation(unknown):.3f}")  # noqa: T201
    return None


def _misses(found: Iterable[Mapping[str, Sequence[Sheet]]]) -> list[Miss]:
    return [miss for tables in found for sheets in tables.values() for miss in misses(sheets)]


if __name__ == "__main__":
    main()
