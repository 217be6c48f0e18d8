"""Our own JSON: a network, a wiring, or an object with either or both."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from autotuner.catalog.topology.topology import FileKind, Topology
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Network, Wiring
from autotuner.core.wire import from_dict

__all__ = ["read_json"]

_PARTS = {"network": Network, "wiring": Wiring}


def read_json(text: str) -> Topology:
    """What a JSON object says: ``{"network": {...}, "wiring": {...}}``, or the fields of one of them alone.

    Raises:
        InvalidInput: It is no JSON object, with the line; or a field does not fit, with its path.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        lines = text.splitlines()[error.lineno - 1 : error.lineno]
        raise InvalidInput(f"line {error.lineno}", "".join(lines)[:60], f"must be JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput("line 1", text[:60], "must be JSON that is not nested so deep") from error
    if not isinstance(document, dict):
        raise InvalidInput("line 1", text[:60], "must be an object", '{"network": {"name": "ours"}}')
    parts = document if _PARTS.keys() & document.keys() else {_part_of(document): document}
    for name in parts:
        if name not in _PARTS:
            raise InvalidInput(name, parts[name], "must be network or wiring", "network")
    network = from_dict(Network, parts["network"], "network") if parts.get("network") is not None else None
    wiring = from_dict(Wiring, parts["wiring"], "wiring") if parts.get("wiring") is not None else None
    return Topology(kind=FileKind.JSON, network=network, wiring=wiring)


def _part_of(document: dict[str, Any]) -> str:
    """What an object is the fields of: whichever has more of them."""
    return max(_PARTS, key=lambda part: len({field.name for field in fields(_PARTS[part])} & document.keys()))
