"""What groups of two axes leave each other where both are at work on the same links.

Max-min fair between flows, a flow being what one axis sends through one port: both get as much as each other, until a
link is full; then whoever passes it stays, and the other rises on. All groups of an axis are alike, so that two flows
say it of all (``flows.filling`` of two kinds of streams, in closed form).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from autotuner.core.columns import Floats
from autotuner.costmodel.communication.group import LinkTime

_PORT = 1
"""Place of the port among the links that a group lists, behind the link inside a node; the network's follow."""


class Slowdowns(NamedTuple):
    """Time that each of two axes takes beside the other over the time that it takes alone, one row per layout."""

    one: Floats
    other: Floats


def fair_slowdowns(one: Iterable[LinkTime], other: Iterable[LinkTime]) -> Slowdowns:
    """What two axes lose by sharing ports and what is above them; 1 where either stays inside its nodes.

    Args:
        one: Links under the traffic of one axis, as groups list them.
        other: The same links under that of the other.
    """
    mine, theirs = _by_flow(one), _by_flow(other)
    both = mine + theirs
    fullest = both.argmax(axis=0)[None, :]
    level = 1 / np.maximum(both.max(axis=0), _NOTHING)
    mine_stays, theirs_stays = (np.take_along_axis(load, fullest, axis=0)[0] > 0 for load in (mine, theirs))
    my_rate = np.where(mine_stays, level, _what_is_left(mine, theirs, level))
    their_rate = np.where(theirs_stays, level, _what_is_left(theirs, mine, level))
    meet = (mine[0] > 0) & (theirs[0] > 0)
    return Slowdowns(
        one=np.where(meet, 1 / np.maximum(my_rate * mine.max(axis=0), _NOTHING), 1.0),
        other=np.where(meet, 1 / np.maximum(their_rate * theirs.max(axis=0), _NOTHING), 1.0),
    )


_NOTHING = 1e-30
"""Stands for 0 below a fraction, in rows that use none of it."""


def _by_flow(links: Iterable[LinkTime]) -> Floats:
    """Load of each link of the network by one byte through a port, of shape (links, layouts); 0 without a port."""
    times: Floats = np.stack(np.broadcast_arrays(*(link.s_per_byte for link in links)))[_PORT:]
    return np.where(times[0] > 0, times / np.maximum(times[0], _NOTHING), 0.0)


def _what_is_left(own: Floats, held: Floats, level: Floats) -> Floats:
    """Rate that links allow a flow beside another that stays at its level."""
    left = (1 - held * level) / np.maximum(own, _NOTHING)
    rate: Floats = np.where(own > 0, left, 1 / _NOTHING).min(axis=0)
    return rate
