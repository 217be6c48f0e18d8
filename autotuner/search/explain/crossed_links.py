"""Which groups of a layout reach over the links that are not healthy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotuner.core.choices import ContextExchange, RankPlacement
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import (
    context_spread,
    dealt_crosses,
    expert_spread,
    pair_crosses,
    pipeline_crosses,
    replicate_spreads,
    ring_crosses,
    shard_spread,
    tensor_spread,
)
from autotuner.search.text.links import link_in_words
from autotuner.search.text.sentences import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedLink:
    """A link that is not healthy, and what of a layout passes it.

    Attributes:
        axes: Whose groups talk over it: ``tensor``, ``context``, ``expert``, ``pipeline`` and ``data``, of both
            its axes; none where the layout leaves the link alone.
        sentence: Without a full stop.
    """

    health: LinkHealth
    axes: tuple[str, ...]
    sentence: str


def crossed_links(layout: Layout, job: Job) -> tuple[CrossedLink, ...]:
    """Every link of the cluster of which something is known, in its order."""
    return tuple(_crossed(health, layout, job) for health in job.cluster.link_health if not health.is_healthy)


def _crossed(health: LinkHealth, layout: Layout, job: Job) -> CrossedLink:
    axes = tuple(_axes(health, layout, job))
    over = f"{listed(axes)} groups reach over it" if axes else "no group of ranks reaches over it"
    return CrossedLink(health=health, axes=axes, sentence=f"{link_in_words(health)}: {over}")


def _axes(health: LinkHealth, x: Layout, job: Job) -> Iterator[str]:
    cluster = job.cluster
    is_dealt = x.rank_placement == RankPlacement.CYCLIC
    ring, pairs = (dealt_crosses, dealt_crosses) if is_dealt else (ring_crosses, pair_crosses)
    if ring(tensor_spread(x), health, cluster):
        yield "tensor"
    meets_all = x.context_exchange == ContextExchange.ALL_TO_ALL
    context = pairs if meets_all else ring
    if context(context_spread(x), health, cluster):
        yield "context"
    if pairs(expert_spread(x, job), health, cluster):
        yield "expert"
    if pipeline_crosses(x, health, cluster):
        yield "pipeline"
    data = (shard_spread(x), *replicate_spreads(x))
    if any(ring(spread, health, cluster) for spread in data):
        yield "data"
