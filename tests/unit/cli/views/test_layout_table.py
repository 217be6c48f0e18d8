"""Tables of layouts, from which every layout can be copied."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import RenderableType

from api.examples.explanations import explanation
from api.examples.sweeps import sweep_detail
from api.examples.trials import ranking_page
from autotuner.cli.views.explanation import explanation_view
from autotuner.cli.views.rankings import prediction_table, ranking_table
from autotuner.cli.views.sweeps import sweep_view
from autotuner.domain.layouts.choice import Precision, ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.layouts.words import fields_said, layout_of
from autotuner.domain.runs.objective import Objective
from autotuner.domain.wire import from_dict, to_dict
from autotuner.errors import InvalidInput
from tests.unit.cli.views.printed import LONG, predicted, predictions, printed

LAYOUTS = (
    LONG,
    Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.GRADIENTS, precision=Precision.FP8),
    Layout(),
)


def _told(words: list[str]) -> int:
    """How many of the first words of a line are words of a layout."""
    for number in range(len(words)):
        try:
            fields_said(" ".join(words[: number + 1]))
        except InvalidInput:
            return number
    return len(words)


def copied(view: RenderableType, width: int) -> set[Layout]:
    """Every layout that somebody would copy from what is printed: words of a layout, on one line or on several."""
    words = re.sub(r"[()]", " ", printed(view, width)).split()
    found = set()
    for start in range(len(words)):
        length = _told(words[start:])
        found.add(layout_of(" ".join(words[start : start + length])))
    return found


def ranked() -> list[dict[str, Any]]:
    item: dict[str, Any] = to_dict(ranking_page())["items"][0]
    return [item | {"rank": i + 1, "label": str(one), "layout": to_dict(one)} for i, one in enumerate(LAYOUTS)]


@pytest.mark.parametrize("width", [80, 100, 160, 10_000])
def test_every_layout_of_a_table_of_predictions_can_be_copied_whole(width: int) -> None:
    rows = [predicted(number + 1, layout) for number, layout in enumerate(LAYOUTS)]
    assert set(LAYOUTS) <= copied(prediction_table(predictions(*rows), title="all"), width)


@pytest.mark.parametrize("width", [80, 100, 160, 10_000])
def test_every_layout_of_a_ranking_and_of_what_has_no_rank_can_be_copied_whole(width: int) -> None:
    assert set(LAYOUTS) <= copied(ranking_table(ranked(), Objective()), width)
    failed = [one | {"state": "failed", "failure": {"kind": "oom", "message": "out of memory"}} for one in ranked()]
    assert set(LAYOUTS) <= copied(sweep_view(to_dict(sweep_detail()), [], failed), width)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_layout_after_each_change_that_an_explanation_tells_can_be_copied_whole(width: int) -> None:
    explained = to_dict(explanation())
    changed = {from_dict(Layout, change["layout"]) for change in (*explained["helpful"], *explained["too_large"])}
    assert changed
    assert changed <= copied(explanation_view(explained), width)


def test_a_wide_terminal_has_a_line_for_each_layout_and_a_narrow_one_puts_it_above_its_figures() -> None:
    view = prediction_table(predictions(predicted(1), predicted(2, Layout())), title="all")
    assert sum(str(LONG) in line and "40.0" in line for line in printed(view, 200).splitlines()) == 1
    lines = [line.strip() for line in printed(view, 110).splitlines()]
    at = lines.index(f"1  {LONG}")
    assert lines[at + 1].startswith("40.0 ±")
