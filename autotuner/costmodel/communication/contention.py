"""Collectives of different axes that share links.

Max-min fair between flows, a flow being what one axis sends through one port: both get as much as each other, until a
link is full; then whoever passes it stays, and the other rises on. All groups of an axis are alike, so that two flows
say it of all (``flows.filling`` of two kinds of streams, in closed form).

They are slowed down by it, and slow it down, which nothing hides: tensor, context and expert collectives and sends
stand between a rank's own products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autotuner.core.choices import ContextExchange
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.communication.group import Group, LinkTime
from autotuner.costmodel.communication.layout_groups import (
    context_group,
    expert_group,
    pipeline_group,
    replicate_group,
    shard_group,
    tensor_group,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTraffic:
    """Seconds that one pass of a micro-batch, forward or backward, spends on traffic of each axis."""

    tensor_s: Floats
    """In collectives of the tensor group, as in the next two."""
    context_s: Floats
    """Of the context group."""
    expert_s: Floats
    """Of the expert group."""
    sent_s: Floats
    """In sends to the next stage."""


@dataclass(frozen=True, eq=False, slots=True)
class _Met:
    """Traffic of one axis during a pass: its seconds, and what it and data-parallel collectives lose together."""

    seconds: Floats
    slowed: Floats
    slows: Floats


@dataclass(frozen=True, eq=False)
class MetTraffic:
    """All traffic that data-parallel collectives meet under a pass, one row per layout."""

    axes: Sequence[_Met]

    @classmethod
    def of(cls, x: LayoutColumns, job: Job, passes: PassTraffic) -> MetTraffic:
        """The traffic of all axes whose groups leave their nodes."""
        data = list(_data_links(x, job))
        met = []
        for seconds, group, links in _others(x, job, passes):
            if group.crosses_nodes.any():
                lost = fair_slowdowns(data, links)
                met.append(_Met(seconds, slowed=lost.other, slows=lost.one))
        return cls(axes=met)

    def added_s(self, wire_s: Floats, window_s: Floats) -> Floats:
        """Seconds by which sharing links lengthens a pass and what of the collectives it does not hide.

        While the collectives last, other traffic is slower; while that lasts, they are. They were counted as hidden
        under computation alone, so that nothing is added where they could hide under other traffic as well.

        Args:
            wire_s: What the collectives take alone.
            window_s: Computation that hides them; where there is none, they meet nothing.
        """
        progress_s, stretch_s = window_s, np.zeros_like(wire_s)
        for met in self.axes:
            progress_s = progress_s + met.seconds * met.slowed / met.slows
            stretch_s = stretch_s + met.seconds * (met.slowed - 1)
        running = np.minimum(1.0, wire_s / np.maximum(progress_s, 1e-30))
        together_s = running * stretch_s + np.maximum(wire_s - progress_s, 0.0)
        return np.where(window_s > 0, np.maximum(together_s - np.maximum(wire_s - window_s, 0.0), 0.0), 0.0)


def _data_links(x: LayoutColumns, job: Job) -> Iterator[LinkTime]:
    """Links under the collectives of shards, or of replicas where shards stay inside their nodes."""
    shard, replicate = shard_group(x, job.cluster), replicate_group(x, job.cluster)
    for one, other in zip(shard.ring_links(), replicate.ring_links(), strict=True):
        yield LinkTime(one.name, np.where(shard.crosses_nodes, one.s_per_byte, other.s_per_byte))


def _others(x: LayoutColumns, job: Job, passes: PassTraffic) -> Iterator[tuple[Floats, Group, list[LinkTime]]]:
    tensor, context, pipeline = (group(x, job.cluster) for group in (tensor_group, context_group, pipeline_group))
    expert = expert_group(x, job)
    by_heads = x.context_exchange == ContextExchange.ALL_TO_ALL
    yield passes.tensor_s, tensor, list(tensor.ring_links())
    yield (
        passes.context_s,
        context,
        [
            LinkTime(ring.name, np.where(by_heads, pairs.s_per_byte, ring.s_per_byte))
            for ring, pairs in zip(context.ring_links(), context.all_to_all_links(), strict=True)
        ],
    )
    yield passes.expert_s, expert, list(expert.all_to_all_links())
    yield passes.sent_s, pipeline, list(pipeline.send_links())
