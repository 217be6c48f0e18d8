"""Rules for the links that each parallel dimension may cross."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from autotuner.core.choices import ContextExchange, P2PTransport, RankOrder
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import (
    context_spread,
    expert_shard_spread,
    expert_spread,
    pair_crosses,
    pipeline_crosses,
    replicate_spreads,
    ring_crosses,
    shard_spread,
    tensor_spread,
)
from autotuner.core.rules.rule import Limit, Rule, named, refuse

_Reaches: TypeAlias = Callable[[Layout, Job, LinkHealth], bool]
"""A function that returns True if ranks of a layout communicate over the given link."""


def _heads(x: Layout, j: Job, link: LinkHealth) -> bool:
    swaps_heads = (x.context_exchange == ContextExchange.ALL_TO_ALL) & (x.context_parallel_degree > 1)
    return swaps_heads & pair_crosses(context_spread(x), link, j.cluster)


def _expert(x: Layout, j: Job, link: LinkHealth) -> bool:
    holders = ring_crosses(expert_shard_spread(x, j), link, j.cluster) & (x.expert_parallel_degree > 1)
    return pair_crosses(expert_spread(x, j), link, j.cluster) | holders


def _replicate(x: Layout, j: Job, link: LinkHealth) -> bool:
    replicas, _ = replicate_spreads(x)
    return ring_crosses(replicas, link, j.cluster)


def _stages(x: Layout, j: Job, link: LinkHealth) -> bool:
    return pipeline_crosses(x, link, j.cluster) & (x.p2p_transport == P2PTransport.INLINE)


def _any_dead(reaches: _Reaches, x: Layout, j: Job) -> bool:
    verdict = False
    for link in j.cluster.link_health:
        if link.is_dead:
            verdict = verdict | reaches(x, j, link)
    return verdict


def _dead(reaches: _Reaches, x: Layout, j: Job) -> LinkHealth:
    return next(link for link in j.cluster.link_health if link.is_dead and reaches(x, j, link))


def _avoids(field: str, ranks: str, reaches: _Reaches) -> Limit:
    """Return the rule that all links between ranks of one axis work.

    The rule offers no nearest degree, because another degree also moves the other axes to other ranks.
    """
    return refuse(
        field,
        lambda x, j: _any_dead(reaches, x, j),
        lambda x, j: (
            f"{ranks} ranks communicate over link {_dead(reaches, x, j)}, which link_health reports as dead; "
            "choose degrees that need no transfer over it"
        ),
        is_of_hardware=True,
    )


def _other_order(x: Layout, j: Job) -> str | None:
    """Return the other rank order if it keeps replicas off links that do not work; otherwise None."""
    other = next(order for order in RankOrder if order != x.rank_order)
    swapped = replace(x, rank_order=other)
    means_something = x.pipeline_parallel_degree > 1 and x.data_parallel_replicate_degree > 1
    return other.label if means_something and not _any_dead(_replicate, swapped, j) else None


LINK_RULES: tuple[Rule, ...] = named(
    {
        "tensor-ranks-avoid-dead-links": _avoids(
            "tensor_parallel_degree", "tensor", lambda x, j, link: ring_crosses(tensor_spread(x), link, j.cluster)
        ),
        "context-ranks-avoid-dead-links": _avoids(
            "context_parallel_degree", "context", lambda x, j, link: ring_crosses(context_spread(x), link, j.cluster)
        ),
        "shard-ranks-avoid-dead-links": _avoids(
            "data_parallel_shard_degree",
            "shard",
            lambda x, j, link: ring_crosses(shard_spread(x), link, j.cluster) & (x.data_parallel_shard_degree > 1),
        ),
        "expert-ranks-avoid-dead-links": _avoids("expert_parallel_degree", "expert", _expert),
        "heads-avoid-dead-links": refuse(
            "context_exchange",
            lambda x, j: _any_dead(_heads, x, j),
            lambda x, j: (
                "the context exchange all_to_all needs every link between context ranks, and link "
                f"{_dead(_heads, x, j)} is dead"
            ),
            ContextExchange.RING,
            is_of_hardware=True,
        ),
        "replicas-avoid-dead-links": refuse(
            "rank_order",
            lambda x, j: _any_dead(_replicate, x, j),
            lambda x, j: (
                f"data-parallel replicas communicate over link {_dead(_replicate, x, j)}, which is dead; choose "
                "another rank order or other degrees"
            ),
            _other_order,
            is_of_hardware=True,
        ),
        "stages-avoid-dead-links": refuse(
            "p2p_transport",
            lambda x, j: _any_dead(_stages, x, j),
            lambda x, j: (
                f"stages communicate over link {_dead(_stages, x, j)}, which is dead; delegates (helper processes that "
                "send for a rank) go around it over the network of the hosts"
            ),
            P2PTransport.DELEGATED,
            is_of_hardware=True,
        ),
    }
)
