"""Links: what ails the links between the ranks of a trial at this moment, as far as software has to emulate it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Self

from autotuner.core.cluster import Cluster
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import Place, rank_at
from trials.pipelines.conditions import LinkCondition, LinkConditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What is emulated of a cluster's links.

    Attributes:
        cluster: With nothing but what is assumed of its links: what was measured there is slow by itself.
    """

    cluster: Cluster

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Those of a cluster that nothing befalls but what is assumed of it all along."""
        assumed = tuple(health for health in cluster.link_health if not health.source)
        return cls(cluster=replace(cluster, link_health=assumed))

    def befallen_by(self, faults: Sequence[LinkHealth]) -> Links:
        """The links while faults are added; of one link the fault's word counts."""
        return Links(cluster=self.cluster.with_link_health(faults))

    @property
    def are_healthy(self) -> bool:
        """Whether there is nothing to emulate."""
        return all(health.is_healthy for health in self.cluster.link_health)

    def between(self, one: int, other: int) -> LinkHealth | None:
        """What ails the link between two ranks of the job; None where nothing does."""
        found = self.cluster.health_between(self.cluster.link_end(one), self.cluster.link_end(other))
        return None if found is None or found.is_healthy else found

    def in_ring(self, ranks: Sequence[int]) -> LinkHealth | None:
        """The worst of the links between neighbours of a ring."""
        return _worst(self.between(one, other) for one, other in zip(ranks, [*ranks[1:], ranks[0]], strict=True))

    def among(self, ranks: Sequence[int]) -> LinkHealth | None:
        """The worst of the links between any two."""
        return _worst(self.between(one, other) for one, other in combinations(ranks, 2))


def pipeline_conditions(links: Links, layout: Layout, place: Place) -> LinkConditions:
    """What messages between the stages of one rank's pipeline meet."""
    ranks = [rank_at(layout, place._replace(stage=stage)) for stage in range(layout.pipeline_parallel_degree)]
    hops = [(stage, (stage + 1) % len(ranks)) for stage in range(len(ranks))]
    met = {(min(hop), max(hop)): links.between(ranks[hop[0]], ranks[hop[1]]) for hop in hops if hop[0] != hop[1]}
    return LinkConditions(of_pairs={pair: _condition(health) for pair, health in met.items() if health is not None})


def _condition(health: LinkHealth) -> LinkCondition:
    return LinkCondition(
        delay_s=health.delay_s,
        jitter_s=health.jitter_s,
        bandwidth_bytes_per_s=health.bandwidth_bytes_per_s,
        is_dead=health.is_dead,
    )


def _worst(found: Iterable[LinkHealth | None]) -> LinkHealth | None:
    """The dead one, else the one that is latest; its bandwidth is the least of any."""
    known = [health for health in found if health is not None]
    if not known:
        return None
    rates = [health.bandwidth_bytes_per_s for health in known if health.bandwidth_bytes_per_s is not None]
    worst = max(known, key=lambda health: (health.is_dead, health.delay_s))
    return replace(worst, bandwidth_bytes_per_s=min(rates, default=None))
