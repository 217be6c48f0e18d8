"""Predicts every published sheet with constants that were fitted without it, and writes docs/reference/accuracy.md.

``python -m research.accuracy`` takes about ten minutes on a core. ``--quick`` uses the constants of the catalog, whose
fits used the sheets; it prints the same tables and writes nothing. ``--unread`` prints for each table how many rows the
reader leaves out, and why.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import optuna

from autotuner.backtests.measured_table import Sheet, Table, read_table
from autotuner.backtests.report import BacktestReport, Score, backtest
from research.constants import write_left_out_errors
from research.fit_stacks import FITS, fitted_memory, sheets_of, with_memory
from research.held_out import LeftOut, group_table, grouped, held_out, rows_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "accuracy.md"
NOTES = Path(__file__).resolve().parent / "accuracy_notes.md"

PROCESSES = 2
"""Number of fits that run side by side; each takes a core."""

_BY_SHEET = ("aleph-alpha", "nanotron")
"""Fits whose sheets are left out one by one. In the others, all sheets of a model are left out together, which is
harder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The errors that the predictions of one published table should not exceed.

    ``at_least`` is the required median of |predicted / measured - 1|, ``aim`` is the desired one, and ``keep`` selects
    the jobs of the table by name.
    """

    table: str
    at_least: float
    aim: float
    keep: Callable[[str], bool] = lambda _: True


TARGETS = (
    Target(table="aleph_alpha_layouts_sweep", at_least=0.07, aim=0.035),
    Target(table="nanotron_ultrascale_sweep", at_least=0.15, aim=0.075),
    Target(table="megatron_lm_tables", at_least=0.08, aim=0.04),
    Target(table="llm_foundry_mpt", at_least=0.10, aim=0.05),
    Target(table="vtrain_validation", at_least=0.10, aim=0.05, keep=lambda name: "multi" in name),
)


def held_out_tables(*, quick: bool) -> dict[str, Table]:
    """Return every published table, each job with constants that were fitted without the runs of this job.

    With ``quick``, the jobs have the constants of the catalog, whose fits used all runs.
    """
    tables: dict[str, list[Sheet]] = defaultdict(list)
    for one in FITS:
        by: LeftOut = "sheet" if one.name in _BY_SHEET else "model"
        found = {name: list(sheets_of(name)) for name in one.tables} if quick else held_out(one, by, PROCESSES)
        for name, sheets in found.items():
            tables[name] += sheets
    if not quick:
        tables["aleph_alpha_layouts_sweep"] = _with_memory_held_out(tables["aleph_alpha_layouts_sweep"])
    return {name: Table(sheets=tuple(sheets), left_out={}) for name, sheets in tables.items()}


def _with_memory_held_out(sheets: Sequence[Sheet]) -> list[Sheet]:
    judged = []
    for sheet in sheets:
        values = fitted_memory([other for other in sheets if other.name != sheet.name])
        judged.append(replace(sheet, job=with_memory(sheet.job, values)))
    return judged


# ---------------------------------------------------------------- tables of the page
def _error_table(reports: Mapping[str, BacktestReport], tables: Mapping[str, Table]) -> Iterator[str]:
    yield "| table | rows | median | at least | aim | mean | p90 | in 80 % interval |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for target in TARGETS:
        kept = tuple(sheet for sheet in tables[target.table].sheets if target.keep(sheet.name))
        score = reports[target.table].all if len(kept) == len(tables[target.table].sheets) else _judged(kept)
        name = f"`{target.table}`" + ("" if len(kept) == len(tables[target.table].sheets) else " multi-node")
        yield _error_row(name, score, f"{target.at_least:.0%}", f"{target.aim:.1%}")
    for table in sorted(set(reports) - {target.table for target in TARGETS if target.table != "vtrain_validation"}):
        yield _error_row(f"`{table}`", reports[table].all, "", "")


def _groups(tables: Mapping[str, Table]) -> Iterator[str]:
    """Yield a table of the figures of each group of rows."""
    rows = [row for name, table in tables.items() for row in rows_of(name, table.sheets)]
    yield from group_table(grouped(rows))


def _errors_by_stack(tables: Mapping[str, Table]) -> dict[str, float]:
    """Return the median error of the runs on each stack."""
    errors: dict[str, list[float]] = defaultdict(list)
    for name, table in tables.items():
        for row in rows_of(name, table.sheets):
            errors[row.sheet.job.stack.name].append(abs(row.predicted_s / row.measured_s - 1))
    return {stack: float(np.median(some)) for stack, some in errors.items()}


def _without_sources() -> dict[str, Table]:
    """Return every table with constants that were fitted without its source."""
    found = [held_out(one, "source", PROCESSES) for one in FITS]
    every = {name: sheets for tables in found for name, sheets in tables.items()}
    return {name: Table(sheets=tuple(sheets), left_out={}) for name, sheets in every.items()}


def _coverage_line(tables: Mapping[str, Table]) -> str:
    everything = _judged(tuple(sheet for table in tables.values() for sheet in table.sheets))
    assert everything.interval_coverage is not None
    return f"Of all measured rows, {everything.interval_coverage:.1%} lie in their 80 % interval; 75 to 85 % is asked."


def _memory_table(score: Score) -> Iterator[str]:
    """Yield a table of the verdicts on memory, for tables that publish runs out of memory."""
    yield "| verdict on memory, `aleph_alpha_layouts_sweep` | measured | at least | aim |"
    yield "| --- | --- | --- | --- |"
    yield f"| out of memory, let through | {_share(score.oom_let_through)} | 10 % | 4 % |"
    yield f"| measured, refused | {_share(score.feasible_refused)} | 3 % | 1 % |"
    yield f"| sheets whose best run is refused | {_share(score.best_refused)} | 0 | 0 |"


def _judged(sheets: tuple[Sheet, ...]) -> Score:
    return backtest(Table(sheets=sheets, left_out={}), num_seeds=1).all


def _error_row(name: str, score: Score, at_least: str, aim: str) -> str:
    figures = (score.median_abs_error, score.mean_abs_error, score.p90_abs_error)
    median, mean, p90 = (f"{figure:.1%}" for figure in figures if figure is not None)
    covered = f"{score.interval_coverage:.0%}"
    return f"| {name} | {score.rows_used} | **{median}** | {at_least} | {aim} | {mean} | {p90} | {covered} |"


def _sheet_table(report: BacktestReport) -> Iterator[str]:
    yield "| sheet | rows | median error | Spearman | let through | refused | regret | trials ours | TPE | random |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for score in report.sheets:
        if score.regret is not None:
            trials = " | ".join(_count(score, name) for name in ("ours", "tpe", "random"))
            yield (
                f"| {score.name.split(': ')[-1]} | {score.rows_used} | {score.median_abs_error:.1%} | "
                f"{score.spearman:.3f} | {_share(score.oom_let_through)} | {_share(score.feasible_refused)} | "
                f"{score.regret:.1%} | {trials} |"
            )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _count(score: Score, name: str) -> str:
    count = score.trials_to_2pct[name]
    return f"{count.median:g} / {count.p90:g}"


def _search_table(reports: Mapping[str, BacktestReport]) -> Iterator[str]:
    scores = [score for report in reports.values() for score in report.sheets if score.regret is not None]
    regrets = np.array([score.regret for score in scores], dtype=float)
    yield f"Sheets with 8 measured rows or more: {len(scores)}, over all tables."
    yield ""
    yield "| figure | measured | at least | aim |"
    yield "| --- | --- | --- | --- |"
    yield (
        f"| regret of the first choice, median / worst | {np.median(regrets):.1%} / {regrets.max():.1%} "
        f"(90th percentile {np.quantile(regrets, 0.9):.1%}) | 2 % / 8 % | 0 / 3 % |"
    )
    for name, targets in (("ours", "3 / 10 | 1 / 4"), ("tpe", " | "), ("random", " | ")):
        medians = np.array([score.trials_to_2pct[name].median for score in scores], dtype=float)
        tails = np.array([score.trials_to_2pct[name].p90 for score in scores], dtype=float)
        yield (
            f"| trials to within 2 %, {name}: median sheet, 9th of 10 sheets, worst sheet (medians over seeds; in "
            f"brackets the 90th percentile over seeds) | {np.median(medians):g}, {np.quantile(medians, 0.9):g}, "
            f"{medians.max():g} ({np.median(tails):g}, {np.quantile(tails, 0.9):g}, {tails.max():g}) | {targets} |"
        )
    yield from ("", *_lost_table(reports))


def _lost_table(reports: Mapping[str, BacktestReport]) -> Iterator[str]:
    """Yield a table of the share of trials that ran out of memory, for tables that have such runs."""
    yield "| trials that ran out of memory, on the way to within 2 % | ours | TPE | random |"
    yield "| --- | --- | --- | --- |"
    for name, report in reports.items():
        if report.all.lost_to_memory["random"]:
            shares = " | ".join(_share(report.all.lost_to_memory[proposer]) for proposer in ("ours", "tpe", "random"))
            yield f"| `{name}` | {shares} |"


def main() -> None:
    """Write the page about the accuracy of predictions. Each run is predicted with constants fitted without it.

    With ``--quick`` in the arguments, the constants of the catalog are used, and the page is printed and not written.
    With ``--unread``, only the numbers of rows that cannot be used are printed.
    """
    if "--unread" in sys.argv:
        return print(*unread_lines(tables_of_runs()), sep="\n")  # noqa: T201
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    quick = "--quick" in sys.argv
    tables = held_out_tables(quick=quick)
    reports = {name: backtest(table, num_seeds=20) for name, table in tables.items()}
    lines = ["## Step times", "", *_error_table(reports, tables), ""]
    lines += ["## By hardware, format, software and model", "", *_groups(tables), ""]
    if not quick:
        without_sources = _without_sources()
        lines += ["The same with whole sources left out:", "", *_groups(without_sources), ""]
        write_left_out_errors(_errors_by_stack(without_sources))
    lines += [_coverage_line(tables), "", *_memory_table(reports["aleph_alpha_layouts_sweep"].all), ""]
    lines += ["## The search", "", *_search_table(reports)]
    for name in ("aleph_alpha_layouts_sweep", "nanotron_ultrascale_sweep", "vtrain_validation"):
        lines += ["", f"## Sheets of `{name}`", "", *_sheet_table(reports[name])]
    page = NOTES.read_text(encoding="utf-8").rstrip() + "\n\n" + "\n".join(lines) + "\n"
    if not quick:
        PAGE.write_text(page, encoding="utf-8")
    return print("\n".join(lines))  # noqa: T201


PUBLISHED = Path(__file__).resolve().parent.parent / "tests" / "published"

OTHER_RUNS = ("fine-tuning by LoRA", "run failed", "the run was not completed", "the row does not state the sizes")
"""Prefixes of reasons for unread rows that a better reader could not help: the run did not train a transformer, or did
not end.

Tables without sizes are about hybrid models, as their notes say."""


def tables_of_runs() -> list[Path]:
    """Return the paths of the published CSV tables in which each row describes a whole training run.

    Other published tables contain benchmarks, for example of matrix products or collectives.
    """
    paths = sorted(PUBLISHED.glob("*.csv"))
    return [path for path in paths if "zero_or_fsdp" in path.read_text(encoding="utf-8").partition("\n")[0]]


def left_out(table: Table) -> Counter[str]:
    """Return how many rows of a published table cannot be compared with a prediction, by the reason."""
    return sum((Counter(sheet.left_out) for sheet in table.sheets), Counter(table.left_out))


def unread_lines(paths: Sequence[Path]) -> Iterator[str]:
    """Yield lines of text that say how many rows of each CSV table cannot be compared with a prediction, and why.

    The last line gives their share of all rows, without rows that did not train a transformer or did not end.
    """
    total: Counter[str] = Counter()
    for path in paths:
        table = read_table(path)
        reasons, num_read = left_out(table), sum(len(sheet) for sheet in table.sheets)
        yield f"{path.stem}: {num_read} rows read, {reasons.total()} left out"
        yield from (f"  {count:4d}  {reason}; {table.examples[reason]}" for reason, count in reasons.most_common())
        others = sum(count for reason, count in reasons.items() if reason.startswith(OTHER_RUNS))
        total += Counter(rows=num_read + reasons.total(), unread=reasons.total() - others)
    yield f"of all {total['rows']} rows {total['unread'] / max(1, total['rows']):.2%} cannot be read"


if __name__ == "__main__":
    main()
