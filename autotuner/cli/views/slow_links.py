"""The report of a backtest under slow links for a terminal of 120 columns; JSON has every row of it."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from autotuner.backtest.slow_links import Score, SlowLinkReport

_WIDTH = 120

_NOTES = (
    "error: of iteration times, |predicted / measured - 1|; bias: their mean with its sign. pairs: two methods on the "
    "same pipeline and links, right if the faster one was predicted to be. orders: adapted, delegated and inline sends "
    "(the faster of 1F1B and zb) where all three were measured. Of each pipeline only the seconds of a pass are "
    "calibrated, by its healthy iterations. adapted: planned around the slow links, and delegated."
)


def slow_links_view(report: SlowLinkReport) -> RenderableType:
    """One line per model and method, per method, per model, and of all; and what was left out."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for head in ("rows", "error median", "mean", "max", "bias", "pairs right", "orders right"):
        table.add_column(head, justify="right", no_wrap=True)
    for scores in (report.parts, report.methods, report.models):
        for score in scores:
            table.add_row(score.name, *_cells(score))
        table.add_section()
    table.add_row("all", *_cells(report.all), style="bold")
    passes = [f"{pipeline}: {1e3 * seconds:.2f} ms" for pipeline, seconds in report.pass_s.items()]
    lines = [f"pass: {'; '.join(passes)}" if passes else "no healthy iteration", *_left_out(report)]
    return Constrain(Group(table, *map(Text, lines), Text(_NOTES, style="dim")), _WIDTH)


def _cells(score: Score) -> list[str]:
    errors = (score.median_abs_error, score.mean_abs_error, score.max_abs_error)
    shares = ((score.pairs_right, score.num_pairs), (score.orders_right, score.num_orders))
    return [
        str(score.rows_used),
        *("-" if error is None else f"{error:.1%}" for error in errors),
        "-" if score.mean_error is None else f"{score.mean_error:+.1%}",
        *("-" if not total else f"{right}/{total}" for right, total in shares),
    ]


def _left_out(report: SlowLinkReport) -> Iterator[str]:
    if not report.rows_left_out:
        yield "no row was left out"
        return
    yield f"{sum(report.rows_left_out.values())} rows were left out:"
    for why, count in report.rows_left_out.items():
        yield f"  {count:5d}  {why}"
        if example := report.left_out_examples.get(why):
            yield f"         {example}"
