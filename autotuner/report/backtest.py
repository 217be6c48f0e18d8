"""The reports of backtests: how wrong predictions of measured runs are, and how many trials a search needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from autotuner.backtests.replay import PROPOSERS
from autotuner.backtests.report import BacktestReport, Score, TrialCount
from autotuner.backtests.slow_links import Score as SlowLinkScore
from autotuner.backtests.slow_links import SlowLinkReport
from autotuner.report.report import Cells, Column, Figure, Lines, Quantity, Report, Section, Strong, Table
from autotuner.report.scale import Scale

_NUM_REASONS = 12
"""Number of reasons shown for rows that were left out; the JSON has all of them."""

_MAX_SMALL = 20
"""Largest number of sheets with too few runs to rank that are shown; more of them are hidden."""

_LONGEST_EXAMPLE = 111
"""Largest number of characters shown of a row that was left out."""

_PERCENT = Scale(factor=0.01, unit="", decimals=1)
"""Percentages without the sign: column heads are too narrow for it, so notes name the unit."""

_WHOLE_PERCENT = Scale(factor=0.01, unit="", decimals=0)
_CORRELATION = Scale(factor=1.0, unit="", decimals=3)

_FIGURES: tuple[tuple[Column, Callable[[Score], float | None], Callable[[Iterable[float]], float]], ...] = (
    (Column("error\nmedian", scale=_PERCENT), lambda one: one.median_abs_error, max),
    (Column("\np90", scale=_PERCENT), lambda one: one.p90_abs_error, max),
    (Column("in\n80 %", scale=_WHOLE_PERCENT), lambda one: one.interval_coverage, min),
    (Column("rank\ncorr.", scale=_CORRELATION), lambda one: one.spearman, min),
    (Column("memory\nright", scale=_PERCENT), lambda one: one.oom_balanced_accuracy, min),
    (Column("let\nthrough", scale=_PERCENT), lambda one: one.oom_let_through, max),
    (Column("\nrefused", scale=_PERCENT), lambda one: one.feasible_refused, max),
    (Column("\nregret", scale=_PERCENT), lambda one: one.regret, max),
)
"""Columns, each with the value of a score that it shows and the function that picks the worst of several values."""

_NOTE = (
    "Shares are in percent. error: of step times, |predicted / measured - 1|. in 80 %: measured within the "
    "prediction's 80 % interval. memory right: mean share of the runs out of memory, and of the completed runs, that "
    "were predicted correctly; let through: out of memory, predicted to fit; refused: ended, predicted not to fit. "
    "regret: MFU lost by keeping the first layout proposed that runs. trials: until one is within 2 % of the sheet's "
    "best, median/90th percentile over seeds. –: no such runs, or fewer than 8 measured. all: the runs of all sheets; "
    "rank corr. and regret: median over sheets."
)


def backtest_report(found: BacktestReport) -> Report:
    """Return the report of a backtest (predictions compared with runs that others measured and published).

    Its table has a row for each data sheet, a row for all sheets together, and a row with the worst sheet of each
    column. Below the table are the rows of the sheets that were left out, with the reasons.
    """
    shown = _shown(found.sheets)
    sources = list(dict.fromkeys(map(_source, shown)))
    rows = [(f"[{sources.index(_source(one)) + 1}] {_name(one)}", *_cells(one)) for one in shown]
    rows.append((Strong("all"), *_cells(found.all)))
    if len(found.sheets) > 1:
        rows.append(("worst sheet", *_worst(found.sheets)))
    columns = (
        Column("sheet", is_number=False, may_wrap=True),
        Column("\nrows"),
        *(column for column, _, _ in _FIGURES),
        *(Column(f"{'' if place else 'trials'}\n{name}") for place, name in enumerate(PROPOSERS)),
    )
    said = [f"[{place}] {source.removesuffix(': ')}" for place, source in enumerate(sources, 1) if source]
    if len(shown) < len(found.sheets):
        others = len(found.sheets) - len(shown)
        said.append(f"{others} sheets of fewer than 8 measured runs are part of all; --json has each of them")
    lost = [f"{name} {share:.1%}" for name, share in found.all.lost_to_memory.items() if share is not None]
    said += [f"trials that ran out of memory: {', '.join(lost)}"] if lost else []
    table = Table(columns=columns, rows=rows, name="Sheets", is_compact=True)
    blocks = (table, Lines(items=said), *_left_out(found.all.rows_left_out, found.left_out_examples))
    about = Lines(items=(_NOTE,), is_quiet=True)
    return Report(headline="Predictions of measured runs", sections=(Section(blocks=(*blocks, about)),))


def _shown(scores: Sequence[Score]) -> Sequence[Score]:
    """Return the scores that get a row of their own; scores without a ranking get none if there are many."""
    ranked = [score for score in scores if score.regret is not None]
    return scores if len(scores) - len(ranked) <= _MAX_SMALL else ranked


def _source(score: Score) -> str:
    """Return the part of the sheet's name before the model, with the colon and the space; empty if there is none."""
    source, colon, _ = score.name.rpartition(": ")
    return source + colon


def _name(score: Score) -> str:
    return score.name.removeprefix(_source(score))


def _cells(score: Score) -> tuple[Cells, ...]:
    figures = (_number(value(score), column) for column, value, _ in _FIGURES)
    trials = (_trials(score.trials_to_2pct[name]) for name in PROPOSERS)
    return (Quantity(value=score.rows_used, unit="count"), *figures, *trials)


def _worst(scores: Sequence[Score]) -> tuple[Cells, ...]:
    cells: list[Cells] = [""]
    for column, value, worse in _FIGURES:
        known = [one for one in map(value, scores) if one is not None]
        cells.append(_number(worse(known) if known else None, column))
    for name in PROPOSERS:
        counts = [one.trials_to_2pct[name] for one in scores if one.trials_to_2pct[name].median is not None]
        cells.append(_trials(max(counts, key=lambda one: one.median or 0.0)) if counts else None)
    return tuple(cells)


def _number(value: float | None, column: Column) -> Quantity:
    return Quantity(value=value, unit="" if column.scale is _CORRELATION else "share")


def _trials(count: TrialCount) -> str | None:
    return None if count.median is None or count.p90 is None else f"{_count(count.median)}/{_count(count.p90)}"


def _count(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value.is_integer() else f"{value:.1f}"


# ------------------------------------------------------------------ slow links
_SLOW_LINK_NOTE = (
    "Errors are in percent: of iteration times, |predicted / measured - 1|; bias: their mean with its sign. pairs: "
    "two methods on the same pipeline and links, right if the faster one was predicted to be. orders: adapted, "
    "delegated and inline sends (the faster of 1F1B and zb) where all three were measured. Of each pipeline only the "
    "seconds of a pass are calibrated, by its healthy iterations. adapted: planned around the slow links, and "
    "delegated."
)


def slow_links_report(found: SlowLinkReport) -> Report:
    """Return the report on the errors of predicted iteration times, for iterations that were measured under slow links.

    Its table has a row for each pair of model and method, for each method, for each model, and for all of them
    together. Below the table are the measured rows that were left out, with the reasons.
    """
    names = ("error\nmedian", "\nmean", "\nmax", "\nbias")
    columns = (
        Column("", is_number=False, may_wrap=True),
        Column("\nrows"),
        *(Column(name, scale=_PERCENT) for name in names),
        Column("pairs\nright"),
        Column("orders\nright"),
    )
    scores = (*found.parts, *found.methods, *found.models)
    rows = [(one.name, *_slow_link_cells(one)) for one in scores]
    rows.append((Strong("all"), *_slow_link_cells(found.all)))
    table = Table(columns=columns, rows=rows, name="Models and methods", is_compact=True)
    passes = tuple(
        Figure(f"pass of {pipeline}", Quantity(value=seconds, unit="s")) for pipeline, seconds in found.pass_s.items()
    )
    blocks = (
        table,
        passes or Lines(items=("no healthy iteration",)),
        *_left_out(found.rows_left_out, found.left_out_examples),
        Lines(items=(_SLOW_LINK_NOTE,), is_quiet=True),
    )
    return Report(headline="Predictions of iterations under slow links", sections=(Section(blocks=blocks),))


def _slow_link_cells(score: SlowLinkScore) -> Iterator[Cells]:
    yield Quantity(value=score.rows_used, unit="count")
    for error in (score.median_abs_error, score.mean_abs_error, score.max_abs_error):
        yield Quantity(value=error, unit="share")
    yield Quantity(value=score.mean_error, unit="signed_share")
    for right, total in ((score.pairs_right, score.num_pairs), (score.orders_right, score.num_orders)):
        yield f"{right}/{total}" if total else None


# ------------------------------------------------------------------ rows left out
def _left_out(reasons: Mapping[str, int], examples: Mapping[str, str]) -> Iterator[Lines | Table]:
    """Yield the reasons why rows were not judged, the most frequent first, each with the first such row."""
    if not reasons:
        yield Lines(items=("no row was left out",))
        return
    most = sorted(reasons.items(), key=lambda item: -item[1])
    rows: list[tuple[Cells, ...]] = [
        (str(count), (why, *_example(examples.get(why)))) for why, count in most[:_NUM_REASONS]
    ]
    if others := most[_NUM_REASONS:]:
        rows.append((str(sum(count for _, count in others)), f"for {len(others)} other reasons, see --json"))
    columns = (Column("rows"), Column("why", is_number=False, may_wrap=True))
    yield Lines(items=(f"{sum(reasons.values())} rows were left out:",))
    yield Table(columns=columns, rows=rows, name="Rows left out")


def _example(row: str | None) -> tuple[str, ...]:
    if not row:
        return ()
    return (row if len(row) <= _LONGEST_EXAMPLE else f"{row[: _LONGEST_EXAMPLE - 3]}...",)
