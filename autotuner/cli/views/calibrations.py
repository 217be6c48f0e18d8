"""What stored trials taught, as a table with the parts of a step below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.search.explain.limits import PART_WORDS
from autotuner.search.text.sentences import with_interval

_NOTHING = "no trial was measured yet: predictions are those for typical hardware (autotuner sweep measures)"


def calibration_table(items: Sequence[dict[str, Any]]) -> RenderableType:
    """A row for each platform, then what parts of a step take there beside the whole."""
    if not items:
        return Text(_NOTHING)
    table = Table(title="Step times beside what is predicted of typical hardware", title_justify="left")
    for heading in ("accelerator", "links", "software"):
        table.add_column(heading)
    for heading in ("trials", "sweeps", "step factor", "error before", "left out"):
        table.add_column(heading, justify="right")
    table.add_column("newest")
    for item in items:
        table.add_row(*_cells(item))
    return Group(table, *(Text(line) for item in items for line in _parts(item)))


def _cells(item: dict[str, Any]) -> Iterator[str]:
    yield item["accelerator"]
    yield f"{item['intra_node_link']}, {item['inter_node_link']}"
    yield item["stack"] if item["trainer"] is None else f"{item['stack']}, trainer {item['trainer']}"
    yield f"{item['num_trials']:,}"
    yield f"{item['num_sweeps']:,}"
    yield "-" if item["whole_step"] is None else _factor(item["whole_step"])
    yield _percent(item["median_error"])
    yield _percent(item["left_out_error"])
    yield datetime.fromtimestamp(item["last_finished_at"], UTC).strftime("%Y-%m-%d %H:%M")


def _parts(item: dict[str, Any]) -> Iterator[str]:
    """The parts that differ from what the whole step says, the one that differs most first."""
    different = (part for part in item["parts"].items() if part[1]["differs"])
    told = sorted(different, key=lambda part: -abs(part[1]["factor"] - 1.0))
    if told:
        said = ", ".join(f"{PART_WORDS[name]} {_factor(factor)}" for name, factor in told)
        yield f"{item['accelerator']}, {item['stack']}: beside the whole step, {said}"


def _factor(learnt: dict[str, float]) -> str:
    return with_interval(learnt["factor"], learnt["relative_error"], "{:.2f}".format)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
