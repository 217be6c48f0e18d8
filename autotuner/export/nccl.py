"""What a script tells NCCL of a layout, in its environment: read for every format alike.

Source of names and values: NCCL 2.28, docs/userguide/source/env.rst. ``collective_environment`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from autotuner.core.choices import CollectiveAlgorithm, CollectiveProtocol
from autotuner.core.layout import OPTIONS
from autotuner.export.target import Imported, Note, NoteKind

COLLECTIVES = "NCCL_(?:ALGO|PROTO|M(?:IN|AX)_NCHANNELS|PXN_DISABLE|IB_QPS_PER_CONNECTION|IB_SPLIT_DATA_ON_QPS)"
"""Variables that a layout has fields for, as a pattern."""

_SET = re.compile(rf"""(?:^|[\s"';{{,])({COLLECTIVES})=["']?([^\s"'}}\\]*)""", re.MULTILINE)

_ALGORITHMS = {
    "ring": CollectiveAlgorithm.RING,
    "tree": CollectiveAlgorithm.TREE,
    "nvls": CollectiveAlgorithm.NVLS,
    "nvls,nvlstree": CollectiveAlgorithm.NVLS,
    "collnetdirect": CollectiveAlgorithm.COLLNET,
    "collnetchain": CollectiveAlgorithm.COLLNET,
    "collnetdirect,collnetchain": CollectiveAlgorithm.COLLNET,
    "collnetdirect,collnetchain,ring": CollectiveAlgorithm.COLLNET,
}
_PROTOCOLS = {member.label: member for member in CollectiveProtocol if member != CollectiveProtocol.AUTO}
_FIELDS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "NCCL_ALGO": {
        f"{prefix}{word}": {"collective_algorithm": algorithm}
        for prefix in ("", "allreduce:")
        for word, algorithm in _ALGORITHMS.items()
    },
    "NCCL_PROTO": {word: {"collective_protocol": protocol} for word, protocol in _PROTOCOLS.items()},
    "NCCL_PXN_DISABLE": {"0": {"pxn": True}, "1": {"pxn": False}},
    "NCCL_IB_SPLIT_DATA_ON_QPS": {"1": {}},
}
"""Fields by variable and by its value in small letters."""

_COUNTED = {
    "NCCL_MIN_NCHANNELS": "collective_channels",
    "NCCL_MAX_NCHANNELS": "collective_channels",
    "NCCL_IB_QPS_PER_CONNECTION": "queue_pairs",
}
_UNKNOWN = {
    "NCCL_IB_SPLIT_DATA_ON_QPS": "whole messages take turns here, and a layout's queue pairs share the bytes of each",
    "NCCL_PXN_DISABLE": "must be 0 or 1",
    "NCCL_IB_QPS_PER_CONNECTION": "must be a whole number from 1 to 999",
}
"""What is said where a value stands for no field."""

_MOST_DIGITS = 3


def with_collectives(imported: Imported, text: str) -> Imported:
    """What was read of a text, with what its variables tell NCCL; one rank has nobody to communicate with."""
    said = dict(_SET.findall(text))
    if not said or imported.layout.world_size == 1:
        return imported
    layout, notes = imported.layout, []
    for name, value in said.items():
        fields = _fields(name, value)
        if fields is None:
            detail = _UNKNOWN.get(name, "a layout has no such choice for all-reduces")
            notes.append(Note(kind=NoteKind.IGNORED, setting=f"{name}={value}"[:60], detail=detail))
        else:
            layout = replace(layout, **fields)  # type: ignore[arg-type]  # each field has its own type
    return replace(imported, layout=layout, notes=(*imported.notes, *notes))


def _fields(name: str, value: str) -> Mapping[str, object] | None:
    """The field that a variable says; None: it says none."""
    if name in _FIELDS:
        return _FIELDS[name].get(value.lower())
    is_number = value.isdecimal() and value.isascii() and len(value) <= _MOST_DIGITS
    return {_COUNTED[name]: int(value)} if is_number and int(value) >= OPTIONS[_COUNTED[name]].lowest else None
