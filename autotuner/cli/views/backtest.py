"""The report of a backtest for a terminal of 120 columns; JSON has every figure of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from autotuner.backtest.replay import PROPOSERS
from autotuner.backtest.report import Report, Score, TrialCount

_NUM_REASONS = 12
"""Reasons to leave rows out that are printed; the others are in the JSON."""

_MAX_SMALL = 20
"""Sheets with too few runs to rank are printed unless there are more of them."""

_WIDTH = 120
_NAME_COLUMNS = 36
"""Width of the column of sheets' names, which wrap; with it the table stays within the width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """A column: its head, what it shows of a score, and which of two values is the worse."""

    head: str
    value: Callable[[Score], float | None]
    show: Callable[[float], str]
    worse: Callable[[Iterable[float]], float]


def _percent(value: float) -> str:
    return f"{value:.1%}" if value < 0.9995 else f"{value:.0%}"


_FIGURES = (
    _Figure(head="error\nmedian", value=lambda s: s.median_abs_error, show=_percent, worse=max),
    _Figure(head="\np90", value=lambda s: s.p90_abs_error, show=_percent, worse=max),
    _Figure(head="in\n80 %", value=lambda s: s.interval_coverage, show="{:.0%}".format, worse=min),
    _Figure(head="rank\ncorr.", value=lambda s: s.spearman, show="{:.3f}".format, worse=min),
    _Figure(head="memory\nright", value=lambda s: s.oom_balanced_accuracy, show=_percent, worse=min),
    _Figure(head="let\nthrough", value=lambda s: s.oom_let_through, show=_percent, worse=max),
    _Figure(head="\nrefused", value=lambda s: s.feasible_refused, show=_percent, worse=max),
    _Figure(head="\nregret", value=lambda s: s.regret, show=_percent, worse=max),
)

_NOTES = (
    "error: of step times, |predicted / measured - 1|. in 80 %: measured within the prediction's 80 % interval. memory "
    "right: mean share of the runs out of memory, and of those that ended, predicted as such; let through: out of "
    "memory, predicted to fit; refused: ended, predicted not to fit. regret: MFU lost by keeping the first layout "
    "proposed that runs. trials: until one is within 2 % of the sheet's best, median/90th percentile over seeds. "
    "-: no such runs, or fewer than 8 measured. all: the runs of all sheets; rank corr. and regret: median over sheets."
)


def backtest_view(report: Report) -> RenderableType:
    """One line per sheet, all together, the worst sheet of each column, and what was left out."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("sheet", vertical="bottom", width=_NAME_COLUMNS, overflow="fold")
    for head in ("\nrows", *(figure.head for figure in _FIGURES), *_trial_heads()):
        table.add_column(head, justify="right", vertical="bottom", no_wrap=True)
    shown, hidden = _shown(report.sheets)
    sources = list(dict.fromkeys(_source(score) for score in shown))
    for score in shown:
        name = score.name.removeprefix(_source(score))
        table.add_row(f"[{sources.index(_source(score)) + 1}] {name}", *_cells(score))
    table.add_section()
    table.add_row("all", *_cells(report.all), style="bold")
    if len(report.sheets) > 1:
        table.add_row("worst sheet", *_worst(report.sheets))
    legend = [Text(f"[{number}] {source.removesuffix(': ')}") for number, source in enumerate(sources, 1) if source]
    lines = [
        *legend,
        *hidden,
        *_lost(report.all.lost_to_memory),
        *_left_out(report.all.rows_left_out, report.left_out_examples),
        Text(_NOTES, style="dim"),
    ]
    return Constrain(Group(table, *lines), _WIDTH)


def _shown(scores: Sequence[Score]) -> tuple[Sequence[Score], list[Text]]:
    """The sheets that have a line of their own, and a line about the others."""
    ranked = [score for score in scores if score.regret is not None]
    if (others := len(scores) - len(ranked)) <= _MAX_SMALL:
        return scores, []
    return ranked, [Text(f"{others} sheets of fewer than 8 measured runs are part of all; --json has each of them")]


def _lost(shares: Mapping[str, float | None]) -> list[Text]:
    """Return a line with the share of each search's trials that ran out of memory; none if there was no search."""
    said = [f"{name} {share:.1%}" for name, share in shares.items() if share is not None]
    return [Text(f"trials that ran out of memory: {', '.join(said)}")] if said else []


def _source(score: Score) -> str:
    """What stands before the model in the sheet's name, colon and space included; empty where nothing does."""
    source, colon, _ = score.name.rpartition(": ")
    return source + colon


def _trial_heads() -> list[str]:
    return [f"{'trials' if number == 0 else ''}\n{name}" for number, name in enumerate(PROPOSERS)]


def _cells(score: Score) -> list[str]:
    values = ((figure.value(score), figure.show) for figure in _FIGURES)
    figures = ["-" if value is None else show(value) for value, show in values]
    return [str(score.rows_used), *figures, *(_trials(score.trials_to_2pct[name]) for name in PROPOSERS)]


def _worst(scores: Sequence[Score]) -> list[str]:
    cells = [""]
    for figure in _FIGURES:
        values = [value for score in scores if (value := figure.value(score)) is not None]
        cells.append(figure.show(figure.worse(values)) if values else "-")
    for name in PROPOSERS:
        counts = [score.trials_to_2pct[name] for score in scores if score.trials_to_2pct[name].median is not None]
        cells.append(_trials(max(counts, key=lambda count: count.median or 0.0)) if counts else "-")
    return cells


def _trials(count: TrialCount) -> str:
    return "-" if count.median is None or count.p90 is None else f"{_count(count.median)}/{_count(count.p90)}"


def _shortened(example: str) -> str:
    """The part of it that goes on a line behind its indentation."""
    most = _WIDTH - 9
    return example if len(example) <= most else f"{example[: most - 3]}..."


def _count(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value.is_integer() else f"{value:.1f}"


def _left_out(reasons: Mapping[str, int], examples: Mapping[str, str]) -> list[Text]:
    if not reasons:
        return [Text("no row was left out")]
    most = sorted(reasons.items(), key=lambda item: -item[1])
    lines = [f"{sum(reasons.values())} rows were left out:"]
    for why, count in most[:_NUM_REASONS]:
        lines.append(f"  {count:5d}  {why}")
        if example := examples.get(why):
            lines.append(f"         {_shortened(example)}")
    if others := most[_NUM_REASONS:]:
        lines.append(f"  {sum(n for _, n in others):5d}  for {len(others)} other reasons, see --json")
    return [Text(line) for line in lines]
