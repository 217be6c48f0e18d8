"""Counts which predictions were compared with measured runs, for ``autotuner/catalog/compared.toml``.

``python -m research.compared`` writes that table anew from the runs that ``research.fit_stacks`` fits to and
``research.accuracy`` leaves out in turn, and from those on cores that ``research.cpu_sweep`` keeps, whose constants
come from a profile. How far runs scatter stays as ``research.intervals`` wrote it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from autotuner.backtest.table import Sheet
from autotuner.catalog.software import DENSE, EXPERTS, Compared, comparisons, model_kind, pooled_scatter
from autotuner.costmodel.evidence import LATENT, SUBJECTS
from research.cpu_sweep import KEPT_CORES, kept_layouts
from research.fit_stacks import FITS, sheets_of

TABLE = Path(__file__).resolve().parent.parent / "autotuner" / "catalog" / "compared.toml"

Key = tuple[str, str, str]
"""Stack, accelerator and kind of model."""

_HEAD = """\
# Measured runs that predictions were compared with: by software, accelerator and kind of model, and how many of them
# had what the word of a layout's name stands for. Written by `python -m research.compared`; do not edit.
"""


def counted(sheets: Iterable[tuple[str, Sheet]]) -> Iterator[Compared]:
    """One entry for each stack, accelerator and kind of model, in the order of the sheets, which name their table."""
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
    """The runs on cores that ``research.cpu_sweep`` keeps, with the software that measured them."""
    table = {f"cpu_sweep_{num_cores}": kept_layouts(num_cores) for num_cores in KEPT_CORES}
    job = next(job for job, _ in table.values())
    return Compared(
        stack=job.stack.name,
        device=job.cluster.accelerator.name,
        model=model_kind(job.model),
        runs=sum(len(layouts) for _, layouts in table.values()),
        tables=tuple(table),
        options={
            subject.word: count
            for subject in SUBJECTS
            if (count := sum(int(subject.of(layouts).sum()) for _, layouts in table.values()))
        },
    )


def as_toml(entries: Iterable[Compared], pooled: Mapping[str, Mapping[str, float]]) -> str:
    """The table as text."""
    return "\n".join(
        [_HEAD, *map(_compared, entries), *(_pooled(model, found) for model, found in pooled.items() if found)]
    )


def write(scatter: Mapping[Key, Mapping[str, float]], pooled: Mapping[str, Mapping[str, float]]) -> None:
    """Write the table, with how far the runs of stacks, accelerators and kinds of models scatter."""
    sheets = [(table, sheet) for one in FITS for table in one.tables for sheet in sheets_of(table)]
    entries = [
        replace(entry, scatter=dict(scatter.get((entry.stack, entry.device, entry.model), {})))
        for entry in (*counted(sheets), of_cores())
    ]
    TABLE.write_text(as_toml(entries, pooled), encoding="utf-8")


def _compared(entry: Compared) -> str:
    lines = ["[[compared]]", *(f'{name} = "{getattr(entry, name)}"' for name in ("stack", "device", "model"))]
    tables = ", ".join(f'"{table}"' for table in entry.tables)
    lines += [f"runs = {entry.runs}", f"tables = [{tables}]"]
    options = ", ".join(f'"{name}" = {count}' for name, count in entry.options.items())
    lines += [f"scatter = {_inline(entry.scatter)}", f"options = {{ {options} }}"]
    return "\n".join(lines) + "\n"


def _pooled(model: str, scatter: Mapping[str, float]) -> str:
    return f'[[pooled]]\nmodel = "{model}"\nscatter = {_inline(scatter)}\n'


def _inline(scatter: Mapping[str, float]) -> str:
    return "{ " + ", ".join(f'"{bits}" = {deviation:.3f}' for bits, deviation in sorted(scatter.items())) + " }"


def main() -> None:
    """Write the table with the runs counted anew."""
    write(
        {key: entry.scatter for key, entry in comparisons().items()},
        {kind: pooled_scatter(kind) for kind in (DENSE, EXPERTS)},
    )


if __name__ == "__main__":
    main()
