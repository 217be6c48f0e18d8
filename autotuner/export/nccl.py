"""What a script tells NCCL of a layout, in its environment: read for every format alike.

Source of names and values: NCCL 2.28, docs/userguide/source/env.rst. ``collective_environment`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from autotuner.domain.layouts.choice import CollectiveAlgorithm, CollectiveProtocol
from autotuner.export.target import Imported, Note, NoteKind

__all__ = ["with_collectives"]

_SET = re.compile(r"""(?:^|[\s"';{,])(NCCL_(?:ALGO|PROTO|M(?:IN|AX)_NCHANNELS))=["']?([^\s"'}\\]*)""", re.MULTILINE)

_ALGORITHMS = {
    "ring": CollectiveAlgorithm.RING,
    "tree": CollectiveAlgorithm.TREE,
    "nvls": CollectiveAlgorithm.NVLS,
    "nvls,nvlstree": CollectiveAlgorithm.NVLS,
}
_PROTOCOLS = {member.label: member for member in CollectiveProtocol if member != CollectiveProtocol.AUTO}
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
            detail = "a layout has no such choice for all-reduces"
            notes.append(Note(kind=NoteKind.IGNORED, setting=f"{name}={value}"[:60], detail=detail))
        else:
            layout = replace(layout, **fields)  # type: ignore[arg-type]  # each field has its own type
    return replace(imported, layout=layout, notes=(*imported.notes, *notes))


def _fields(name: str, value: str) -> Mapping[str, object] | None:
    """The field that a variable says; None: it says none."""
    if name == "NCCL_ALGO":
        algorithm = _ALGORITHMS.get(value.lower().removeprefix("allreduce:"))
        return None if algorithm is None else {"collective_algorithm": algorithm}
    if name == "NCCL_PROTO":
        protocol = _PROTOCOLS.get(value.lower())
        return None if protocol is None else {"collective_protocol": protocol}
    is_number = value.isdecimal() and value.isascii() and len(value) <= _MOST_DIGITS
    return {"collective_channels": int(value)} if is_number else None
