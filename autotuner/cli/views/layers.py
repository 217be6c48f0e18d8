"""Layers of communication as tables: predicted, and measured where there are trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.search.text.sentences import percent, signed
from autotuner.units import format_seconds

__all__ = ["layers_view"]


def layers_view(answer: Mapping[str, Any]) -> RenderableType:
    """What each layer gives, one table for predictions and one for trials."""
    return Group(*_parts(answer))


def _parts(answer: Mapping[str, Any]) -> Iterator[RenderableType]:
    predicted, measured = answer["predicted"], answer["measured"]
    yield _table(predicted, "Layers searched together, by prediction", "expected MFU", "layouts")
    if measured is not None:
        yield _table(measured, "The same among trials", "reached", "trials")
    yield from (Text(f"• {gain['sentence']}") for gain in (measured or predicted)["gains"])
    yield from (Text(f"• {caveat}", style="dim") for caveat in predicted["caveats"])


def _table(report: Mapping[str, Any], title: str, value: str, counted: str) -> Table:
    table = Table(title=title, title_justify="left", caption=_total(report), caption_justify="left")
    table.add_column("with the layers up to", no_wrap=True)
    table.add_column("best layout", overflow="fold")
    for name in ("step", value, "gain", counted):
        table.add_column(name, justify="right", no_wrap=True)
    for number, gain in enumerate(report["gains"]):
        table.add_row(
            gain["layer"],
            gain["label"],
            format_seconds(gain["step_time_s"]),
            percent(gain["value"]) if gain["value"] <= 1 else f"{gain['value']:.4g}",
            signed(gain["gain"]) if number and gain["change"] else "",
            f"{gain['num_layouts']:,}",
        )
    return table


def _total(report: Mapping[str, Any]) -> str:
    return f"all together {signed(report['total_gain'])} over strategy alone"
