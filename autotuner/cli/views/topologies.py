"""Networks and nodes as files describe them, and networks by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text


def topology_view(found: Mapping[str, Any]) -> RenderableType:
    """What was read, what it means, and what was assumed."""
    return Group(*map(Text, _lines(found)))


def network_lines(networks: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Each network that a cluster can name, with where its numbers are from below it."""
    return Group(*_network_lines(networks))


def _network_lines(networks: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    for each in networks:
        yield Text.assemble((each["network"]["name"], "bold"), f": {each['meaning']}")
        yield Padding(Text(f"{each['source']}, {each['date']}", style="dim"), (0, 0, 0, 4), expand=False)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"read: {', '.join(found['read'])}"
    if found["num_nodes"]:
        is_whole = len(found["nodes"]) == found["num_nodes"]  # of many, the service names the first
        last = found["nodes"][-1:] if is_whole else []
        names = found["nodes"][:3] + (["..."] if found["num_nodes"] > 4 else []) + last
        yield f"{found['num_nodes']} nodes, those below one switch beside each other: {', '.join(dict.fromkeys(names))}"
    if found["num_accelerators"]:
        yield f"{found['num_accelerators']} accelerators per node"
    yield from (f"  {sentence}" for sentence in found["said"])
    yield from (f"note: {note}" for note in found["notes"])
