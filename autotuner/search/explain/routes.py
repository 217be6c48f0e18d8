"""Routes: which links the traffic of each axis passes on a described network, and which one limits it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from autotuner.core.choices import ContextExchange, RankPlacement
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.units import format_rate
from autotuner.costmodel.communication.group import Group, LinkTime
from autotuner.costmodel.communication.layout_groups import (
    context_group,
    expert_group,
    pipeline_group,
    replicate_group,
    shard_group,
    tensor_group,
)

Traffic = Literal["ring", "all_to_all", "send"]
"""Around a ring, in equal shares to all, or to the next rank of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Links of one kind under the traffic of one axis.

    Attributes:
        link: Its name: a link of the catalog, ``leaf uplinks``, ``torus dimension 1``.
        busy_share: Time that they are busy over that of the limiting link, 0..1.
    """

    link: str
    busy_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The groups of one axis, all at work at the same time.

    Attributes:
        axis: ``tensor``, ``context``, ``expert``, ``pipeline``, ``shard`` or ``replicate``.
        traffic: What they do.
        num_ranks: Of one group.
        num_nodes: On which one group lies, or NVLink domains of several nodes.
        limiting_link: Name of the links that are busy longest.
        bytes_per_s: What each rank gets through in long messages: its bytes over the time that they take.
        links: All that their traffic passes, from inside nodes up.
        sentence: Without a full stop.
    """

    axis: str
    traffic: Traffic
    num_ranks: int
    num_nodes: int
    limiting_link: str
    bytes_per_s: float
    links: tuple[LinkUse, ...]
    sentence: str


def routes(layout: Layout, job: Job) -> tuple[Route, ...]:
    """The route of each axis with groups of more than one rank, innermost first; flat collectives are told as rings.

    None where the cluster describes neither network nor wiring, and deals ranks to nodes in blocks: each link then is
    what joins the ranks, and groups say it themselves.
    """
    if job.cluster.network is None and job.cluster.wiring is None and layout.rank_placement == RankPlacement.BLOCK:
        return ()
    x = LayoutColumns.from_layouts([layout])
    return tuple(
        _route(axis, traffic, group) for axis, traffic, group in _groups(layout, x, job) if group.num_ranks[0] > 1
    )


def _groups(layout: Layout, x: LayoutColumns, job: Job) -> Iterator[tuple[str, Traffic, Group]]:
    context: Traffic = _OF_EXCHANGE[layout.context_exchange]
    yield "tensor", "ring", tensor_group(x, job.cluster)
    yield "context", context, context_group(x, job.cluster)
    yield "expert", "all_to_all" if job.stack.dispatch != "all_gather" else "ring", expert_group(x, job)
    yield "pipeline", "send", pipeline_group(x, job.cluster)
    yield "shard", "ring", shard_group(x, job.cluster)
    yield "replicate", "ring", replicate_group(x, job.cluster)


_OF_EXCHANGE: dict[ContextExchange, Traffic] = {
    ContextExchange.RING: "send",
    ContextExchange.ALL_GATHER: "ring",
    ContextExchange.ALL_TO_ALL: "all_to_all",
}


def _route(axis: str, traffic: Traffic, group: Group) -> Route:
    used = [(link.name, float(link.s_per_byte[0])) for link in _links(traffic, group) if link.s_per_byte[0] > 0]
    limiting, longest = max(used, key=lambda use: use[1])
    # of a ring and an all-to-all the links were counted for the bytes of one rank of many
    sent = 1 if traffic == "send" else int(group.num_ranks[0]) - 1
    bytes_per_s = sent / longest
    nodes = int(group.num_nodes[0])
    where = f"on {nodes} nodes" if nodes > 1 else "inside a node"
    return Route(
        axis=axis,
        traffic=traffic,
        num_ranks=int(group.num_ranks[0]),
        num_nodes=nodes,
        limiting_link=limiting,
        bytes_per_s=bytes_per_s,
        links=tuple(LinkUse(link=name, busy_share=seconds / longest) for name, seconds in used),
        sentence=(
            f"{axis}: {_WORDS[traffic]} of {group.num_ranks[0]} ranks {where}, limited by {limiting} to "
            f"{format_rate(bytes_per_s, 'B/s')} for each rank"
        ),
    )


_WORDS: dict[Traffic, str] = {"ring": "rings", "all_to_all": "all-to-alls", "send": "sends"}


def _links(traffic: Traffic, group: Group) -> Iterable[LinkTime]:
    match traffic:
        case "ring":
            return group.ring_links()
        case "all_to_all":
            return group.all_to_all_links()
        case "send":
            return group.send_links()
