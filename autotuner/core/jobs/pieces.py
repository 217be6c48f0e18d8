"""Pieces: how many a tensor is summed or gathered in on two levels, so that both levels are at work at once.

While a piece is between nodes, the next one is summed inside them. Work inside nodes then shows by one piece of n, and
each piece pays the latency of its messages: best is sqrt(work inside / latency of a piece). 8 MiB keep gloo 40 to 90 ms
inside a node of busy cores, and a piece costs 1 to 3 ms: four to eight. Between two nodes at 200 Mbit/s the sum took
442 ms whole, 409 in four, 369 in eight and 359 in sixteen pieces, at 1 Gbit/s 135, 99, 108 and 113.
"""

from __future__ import annotations

from autotuner.units import MIB

__all__ = ["MOST_PIECES", "PIECE_BYTES", "num_pieces"]

PIECE_BYTES = MIB
"""A piece's least: it is at work inside a node for several times what its messages are late."""

MOST_PIECES = 8
"""Beyond, little is left of the work inside to hide."""


def num_pieces(num_bytes: int) -> int:
    """Into how many a tensor of so many bytes is cut."""
    return min(max(num_bytes // PIECE_BYTES, 1), MOST_PIECES)
