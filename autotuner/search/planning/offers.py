"""Offers: the clusters that a plan compares: catalog clusters, hypothetical changes of them, and the caller's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotuner.catalog.facts import Fact
from autotuner.catalog.hardware import accelerator_facts, accelerators, load_accelerator, load_cluster
from autotuner.core.choices import Precision
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.named import resolved
from autotuner.core.units import GIGA, format_bytes
from autotuner.search.planning.request import MOST_CLUSTERS, ChangePrices, PlanRequest

_NOT_RENTED = ("a100-64gb", "h100-64gb", "h100-96gb", "a800", "h800", "h20")
"""Accelerators that belong to one machine's owner or to one country's market. They are compared only if the request
names them."""

_GUESSED = "an assumption"
"""First words of the source of a price that no provider lists."""

RECALLED = "recalled, not looked up"
"""Last words of the source of a price that was not checked on its date."""

_SLOWER_LINKS = ("pcie4", "pcie5")
"""Links inside nodes that are so slow that such nodes are offered only if the request names them."""

_HIGHEST_MFU = 0.65
"""Highest MFU that is assumed possible, because no published run of ``tests/published`` exceeds it. A cluster that
would need more to meet the deadline is too small."""

_LONGEST_S = 366 * 86_400.0
"""Longest time of a run without a deadline: an assumption."""

_SHORTEST_S = 86_400.0
"""Time of a run at a third of the peak below which a cluster is larger than needed: an assumption."""

_USUAL_MFU = 1 / 3

_STATE_BYTES = 16
"""Bytes per parameter: weights, gradients, fp32 copies and two moments (Rajbhandari et al., arXiv 1910.02054, section
3). A cluster that cannot hold them is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price per hour and the power of an accelerator, each with its source."""

    accelerator: str
    """Name of the accelerator."""
    per_hour: float
    """Price in US dollars of one accelerator for an hour; 0 if it is not known."""
    source: str
    """Source of the price; empty if the caller gave the price."""
    date: str
    """ISO date on which the source was read; empty if there is no source."""
    power_w: float
    """Maximum power of the accelerator; 0 if it is unknown."""
    power_source: str
    """Source of the power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A cluster that a plan compares. It may be hypothetical: a catalog cluster with another network or memory."""

    cluster: Cluster
    """Cluster to compare, with the price that applies."""
    is_hypothetical: bool = False
    """True if the cluster is one of the catalog with another network or memory."""


def rentable() -> tuple[str, ...]:
    """Return the names of accelerators that have a list price, fast links in a node, and bf16."""
    return tuple(name for name in accelerators() if name not in _NOT_RENTED and _is_offered(name))


def _is_offered(name: str) -> bool:
    facts = accelerator_facts(name)
    price: Fact = facts["price_per_accelerator_hour"]
    is_listed = bool(price.value) and not price.source.startswith(_GUESSED)
    is_linked = facts["intra_node_link"].value not in _SLOWER_LINKS
    return facts["kind"].value != "cpu" and bool(facts["bf16_flop_per_s"].value) and is_listed and is_linked


def prices_of(request: PlanRequest, found: Sequence[Offer]) -> tuple[Price, ...]:
    """Return the price of each accelerator among the offers, with its source, in the order of the offers.

    Args:
        request: The plan request, whose own prices replace those of the catalog.
        found: Clusters that the plan compares.
    """
    own = {load_accelerator(name).name: price for name, price in request.prices.items()}
    clusters = {offer.cluster.accelerator.name: offer.cluster for offer in reversed(found) if not offer.is_hypothetical}
    names = dict.fromkeys(offer.cluster.accelerator.name for offer in found)
    return tuple(_price(name, clusters[name], own) for name in names if name in clusters)


def _price(name: str, cluster: Cluster, own: dict[str, float]) -> Price:
    facts = accelerator_facts(name) if name in accelerators() else None
    listed = facts["price_per_accelerator_hour"] if facts else None
    is_listed = listed is not None and name not in own and listed.value == cluster.price_per_accelerator_hour
    return Price(
        accelerator=name,
        per_hour=cluster.price_per_accelerator_hour,
        source=listed.source if listed is not None and is_listed else "",
        date=listed.date if listed is not None and is_listed else "",
        power_w=cluster.accelerator.power_w,
        power_source=f"{facts['power_w'].source}, {facts['power_w'].date}" if facts else "",
    )


def offers(request: PlanRequest) -> tuple[Offer, ...]:
    """Return every cluster that the plan compares, grouped by accelerator, the smallest first.

    Raises:
        InvalidInput: There are no clusters or too many, or a requested number of accelerators fills neither whole nodes
            nor a part of one node.
        NotFound: The catalog has no accelerator of a given name.
    """
    names = tuple(dict.fromkeys(load_accelerator(name).name for name in request.accelerators))
    names = names or (() if request.clusters else rentable())  # the caller's own clusters are not changed
    found = [offer for name in names for offer in _of_accelerator(request, name)]
    found += [Offer(cluster=resolved(cluster)) for cluster in request.clusters]
    if not found:
        limit = f"up to {request.max_accelerators:,} accelerators"
        rule = (
            f"cannot be reached: no cluster of {limit} holds the model and is fast enough; allow more "
            "accelerators, time or money"
        )
        goal = request.goal
        limits = [f"{goal.num_tokens:.3g} tokens"]
        limits += [f"{goal.deadline_s / 86_400:g} days"] if goal.deadline_s else []
        limits += [f"{goal.price_limit:,.0f} dollars"] if goal.price_limit else []
        raise InvalidInput("goal", ", ".join(limits), rule)
    if len(found) > MOST_CLUSTERS:
        rule = (
            f"is the number of clusters to compare, but one plan compares at most {MOST_CLUSTERS}; name fewer "
            "sizes or accelerators"
        )
        raise InvalidInput("sizes", len(found), rule, MOST_CLUSTERS)
    return tuple(found)


def _of_accelerator(request: PlanRequest, name: str) -> Iterator[Offer]:
    for size in request.sizes or _usual_sizes(request, name):
        try:
            cluster = _priced(load_cluster(f"{name}:{size}"), request)
        except InvalidInput as error:
            raise InvalidInput("sizes", error.value, error.rule, error.nearest) from error
        for factor in request.network_factors:
            for extra_bytes in request.extra_memory_bytes:
                if factor == 1.0 and not extra_bytes:
                    yield Offer(cluster=cluster)
                else:
                    hypothetical = changed(cluster, request.change_prices, factor, extra_bytes)
                    yield Offer(cluster=hypothetical, is_hypothetical=True)


def _priced(cluster: Cluster, request: PlanRequest) -> Cluster:
    own = {load_accelerator(name).name: price for name, price in request.prices.items()}
    price = own.get(cluster.accelerator.name, cluster.price_per_accelerator_hour)
    return replace(cluster, price_per_accelerator_hour=price, tariff=replace(cluster.tariff, **request.tariff))


def changed(cluster: Cluster, prices: ChangePrices, network_factor: float = 1.0, extra_bytes: int = 0) -> Cluster:
    """Return a hypothetical cluster with a faster network or more memory, and with a price that includes the change.

    Args:
        cluster: The cluster to change.
        prices: Prices of the changes.
        network_factor: Bandwidth between nodes as a multiple of the present one.
        extra_bytes: Memory to add to each accelerator.
    """
    link = cluster.inter_node_link
    base = cluster.price_per_accelerator_hour
    more = base * prices.network_share * (network_factor - 1) + prices.memory_per_gb_hour * extra_bytes / GIGA
    memory_bytes = cluster.accelerator.memory_bytes + extra_bytes
    words = [f"{network_factor:g} x network"] if network_factor != 1.0 else []
    words += [f"+{format_bytes(extra_bytes)}"] if extra_bytes else []
    return replace(
        cluster,
        name=" ".join((cluster.name, *words)),
        accelerator=replace(cluster.accelerator, memory_bytes=memory_bytes),
        inter_node_link=link.with_bandwidth(network_factor * link.bandwidth_bytes_per_s),
        price_per_accelerator_hour=base + more if base else 0.0,
    )


def _usual_sizes(request: PlanRequest, name: str) -> Iterator[int]:
    """Yield numbers of accelerators that hold the model and can meet the deadline.

    They are powers of two of nodes, as far as larger ones are useful.
    """
    facts, goal = accelerator_facts(name), request.goal
    per_node, peak_flop_per_s = int(facts["accelerators_per_node"].value), float(facts["bf16_flop_per_s"].value)
    model, workload = resolved(request.model), request.workload
    flop = model.model_flop_per_step(workload) * goal.num_tokens / workload.tokens_per_step
    peak_flop_per_s = max(peak_flop_per_s, load_accelerator(name).peak_flop_per_s(_fastest(request)))
    longest_s = goal.deadline_s or _LONGEST_S
    fewest = max(
        flop / (peak_flop_per_s * _HIGHEST_MFU * longest_s),
        _STATE_BYTES * model.num_parameters / facts["memory_bytes"].value,
    )
    most = max(flop / (peak_flop_per_s * _USUAL_MFU * min(_SHORTEST_S, longest_s)), 2 * fewest)
    first = max(0, math.ceil(math.log2(max(1.0, fewest / per_node))))
    for power in range(first, 32):
        size = per_node << power
        if size > request.max_accelerators or (size > most and power > first):
            return
        yield size


def _fastest(request: PlanRequest) -> Precision:
    """Return the number format with the highest peak among those that the request allows."""
    return Precision.FP8 if Precision.FP8 in (request.space.get("precision") or ()) else Precision.BF16
