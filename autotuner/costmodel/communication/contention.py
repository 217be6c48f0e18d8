"""Contention: collectives of different axes that share links.

A flow is the traffic of one axis through one port. Bandwidth is shared between flows by max-min fairness: both flows
get the same rate until a link is full; then the flow on that link keeps its rate, and the other flow gets more. All
groups of an axis are alike, so that two flows are enough (the closed form of ``flows.filling`` for two kinds of flows).

Tensor, context and expert collectives and sends run between a rank's own products. They and the data-parallel
collectives slow each other down, and no computation hides the delay of the former.
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
"""Index of the port among the links of a group. Index 0 is the link inside a node; the network's links follow after the
port."""


class Slowdowns(NamedTuple):
    """The factors by which two axes of parallelism slow each other's traffic down, one row per layout.

    ``one`` is the slowdown of the first axis, ``other`` that of the second axis. 1 means no slowdown.
    """

    one: Floats
    other: Floats


def fair_slowdowns(one: Iterable[LinkTime], other: Iterable[LinkTime]) -> Slowdowns:
    """Return the factors by which two axes slow each other down on the network links that they share.

    The factors are 1 if the groups of either axis stay inside their nodes.

    Args:
        one: For each link, the seconds per byte for which the traffic of the first axis keeps the link busy. The links
            are in the order of ``Group.ring_links``.
        other: The seconds per byte of the second axis, in the same order.
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
"""Small number that replaces 0 in a denominator, in rows without traffic."""


def _by_flow(links: Iterable[LinkTime]) -> Floats:
    """Return the load of each link of the network per byte through a port, of shape (links, layouts)."""
    times: Floats = np.stack(np.broadcast_arrays(*(link.s_per_byte for link in links)))[_PORT:]
    return np.where(times[0] > 0, times / np.maximum(times[0], _NOTHING), 0.0)


def _what_is_left(own: Floats, held: Floats, level: Floats) -> Floats:
    """Return the rate of a flow on links that another flow uses at the rate ``level``."""
    left = (1 - held * level) / np.maximum(own, _NOTHING)
    rate: Floats = np.where(own > 0, left, 1 / _NOTHING).min(axis=0)
    return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTraffic:
    """Seconds that one pass of a micro-batch (forward or backward) spends in collectives of each axis and in sends."""

    tensor_s: Floats
    """Time in collectives of the tensor group during the pass."""
    context_s: Floats
    """Time in collectives of the context group."""
    expert_s: Floats
    """Time in collectives of the expert group."""
    sent_s: Floats
    """Time in sends to the next stage."""


@dataclass(frozen=True, eq=False, slots=True)
class _Met:
    """The traffic of one axis during a pass.

    It has the seconds of the traffic, its slowdown, and the slowdown of data-parallel collectives by it.
    """

    seconds: Floats
    slowed: Floats
    slows: Floats


@dataclass(frozen=True, eq=False)
class ContendingTraffic:
    """Traffic of tensor, context, expert and pipeline groups that shares network links with data-parallel collectives.

    It describes one pass (forward or backward) of a micro-batch, with one row per layout.
    """

    axes: Sequence[_Met]

    @classmethod
    def of(cls, x: LayoutColumns, job: Job, passes: PassTraffic) -> ContendingTraffic:
        """Return the traffic that tensor, context, expert and pipeline groups send between nodes during one pass.

        Args:
            x: Layouts, one per row.
            job: The job.
            passes: Seconds that the pass spends in collectives of each axis and in pipeline sends.
        """
        data = list(_data_links(x, job))
        met = []
        for seconds, group, links in _others(x, job, passes):
            if group.crosses_nodes.any():
                lost = fair_slowdowns(data, links)
                met.append(_Met(seconds, slowed=lost.other, slows=lost.one))
        return cls(axes=met)

    def added_s(self, wire_s: Floats, window_s: Floats) -> Floats:
        """Return the seconds that traffic on shared links adds to a pass and to its exposed data-parallel collectives.

        The data-parallel collectives and the other traffic slow each other down while both run. The caller has already
        counted the collectives as if only computation hid them. Since the other traffic also hides them, the result may
        be 0.

        Args:
            wire_s: Seconds of the data-parallel collectives if nothing shares their links.
            window_s: Seconds of computation that hide the collectives. With 0 nothing is added.
        """
        progress_s, stretch_s = window_s, np.zeros_like(wire_s)
        for met in self.axes:
            progress_s = progress_s + met.seconds * met.slowed / met.slows
            stretch_s = stretch_s + met.seconds * (met.slowed - 1)
        running = np.minimum(1.0, wire_s / np.maximum(progress_s, 1e-30))
        together_s = running * stretch_s + np.maximum(wire_s - progress_s, 0.0)
        return np.where(window_s > 0, np.maximum(together_s - np.maximum(wire_s - window_s, 0.0), 0.0), 0.0)


def _data_links(x: LayoutColumns, job: Job) -> Iterator[LinkTime]:
    """Yield the links that data-parallel collectives use.

    These are the links of the shards' collectives, or of the replicas' if all shards stay inside their nodes.
    """
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
