"""Which part of a ``Breakdown`` a collective belongs to, by any of the names it goes by."""

from __future__ import annotations

from typing import Literal

Communication = Literal["all_reduce_s", "all_gather_s", "reduce_scatter_s", "all_to_all_s", "send_receive_s"]

_PARTS: tuple[tuple[str, Communication], ...] = (
    ("reducescatter", "reduce_scatter_s"),
    ("allgather", "all_gather_s"),
    ("alltoall", "all_to_all_s"),
    ("sendrecv", "send_receive_s"),
    ("send", "send_receive_s"),
    ("recv", "send_receive_s"),
    ("broadcast", "all_gather_s"),  # an optimizer that is sharded tells its parameters to the others
    ("gather", "all_gather_s"),
    ("scatter", "all_gather_s"),
    ("reduce", "all_reduce_s"),
    ("barrier", "all_reduce_s"),
)
"""What a name without its underscores contains, the longer words first."""


def communication_part(name: str) -> Communication | None:
    """``all_gather_s`` for ``c10d::_allgather_base_``, ``gloo:all_gather`` and ``ncclDevKernel_AllGather_RING_LL``.

    None for what is no collective.
    """
    bare = name.replace("_", "").lower()
    return next((part for word, part in _PARTS if word in bare), None)
