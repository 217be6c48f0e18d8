"""Layers of communication as tables: predicted, and measured where there are trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.core.units import format_seconds
from autotuner.report.terminal import LayoutRow, LayoutTable
from autotuner.search.text.sentences import in_sentences, percent, signed


def layers_view(answer: Mapping[str, Any]) -> RenderableType:
    """What each layer gives, one table for predictions and one for trials."""
    return Group(*_parts(answer))


def _parts(answer: Mapping[str, Any]) -> Iterator[RenderableType]:
    predicted, measured = answer["predicted"], answer["measured"]
    yield Text("layers searched together, by prediction", style="bold")
    yield _table(predicted, "expected MFU", "layouts")
    yield Text(_total(predicted))
    if measured is not None:
        yield Text("the same among trials", style="bold")
        yield _table(measured, "reached", "trials")
        yield Text(_total(measured))
    yield from (Text(in_sentences([gain["sentence"]])) for gain in _giving(measured or predicted))
    yield Text(in_sentences(predicted["caveats"]), style="dim")


def _giving(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Strategies, and those of the other layers that change the best layout."""
    strategy, *others = report["gains"]
    yield strategy
    yield from (gain for gain in others if gain["change"])


def _table(report: Mapping[str, Any], value: str, counted: str) -> LayoutTable:
    is_share = value == "expected MFU" or all(gain["value"] <= 1 for gain in report["gains"])
    rows = [_row(gain, is_first=not number, is_share=is_share) for number, gain in enumerate(report["gains"])]
    return LayoutTable(keys=("up to layer",), heads=("step", value, "gain", counted), rows=rows)


def _row(gain: Mapping[str, Any], *, is_first: bool, is_share: bool) -> LayoutRow:
    cells = (
        format_seconds(gain["step_time_s"]),
        percent(gain["value"]) if is_share else f"{gain['value']:.4g}",
        signed(gain["gain"]) if gain["change"] and not is_first else "",
        f"{gain['num_layouts']:,}",
    )
    return LayoutRow(keys=(gain["layer"],), layout=gain["label"], cells=cells)


def _total(report: Mapping[str, Any]) -> str:
    """What all of them give together."""
    if not any(gain["change"] for gain in report["gains"][1:]):
        return "All together give nothing over strategy alone."
    return f"All together give {signed(report['total_gain'])} over strategy alone."
