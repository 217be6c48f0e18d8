"""PlanRequest: what a plan is asked about, and what is assumed where nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from autotuner.core import documents
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.value import Count, NonNegative, Share, value
from autotuner.core.workload import Workload
from autotuner.search.planning.goal import Failures, Goal

MOST_CLUSTERS = 512
"""Compared by one plan: each takes up to a tenth of a second."""


@value
class ChangePrices:
    """What changes of a cluster cost that nobody has a price list of.

    Attributes:
        network_share: Of a cluster's price, what its network is; twice the bandwidth costs as much again. The default
            is an assumption.
        memory_per_gb_hour: US dollars of a gigabyte (10^9) more and an hour. The default is what an H200 costs more
            than an H100 (0.59 dollars in Modal's price lists of 2025 and 2026) over the 65 GB that it has more.
    """

    network_share: Share = 0.10
    memory_per_gb_hour: NonNegative = 0.009


@value
class PlanRequest:
    """A training run, and the clusters that are compared for it.

    Attributes:
        model: What is trained.
        workload: Of one optimizer step.
        goal: How much is trained, by when and for how much.
        stack: Software that would run it.
        accelerators: Names of the catalog; empty: those that anybody can rent, with a list price.
        sizes: Numbers of accelerators; empty: powers of two of nodes that suit the goal.
        network_factors: Times the usual bandwidth between nodes.
        extra_memory_bytes: More than the usual memory of an accelerator.
        clusters: Whole ones to compare beside those.
        prices: US dollars per accelerator and hour by name of the catalog, in the place of the catalog's.
        tariff: Fields of the tariff that are otherwise than on clusters of the catalog, which say the rest.
        change_prices: What hypothetical clusters cost more.
        failures: How often jobs are interrupted.
        axes: Values of a layout's options; others take what keeps the mathematics.
        max_accelerators: Of a cluster whose size nobody named.
    """

    model: TransformerSpec
    workload: Workload
    goal: Goal
    stack: Stack = field(default_factory=Stack)
    accelerators: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    network_factors: tuple[float, ...] = (1.0,)
    extra_memory_bytes: tuple[int, ...] = (0,)
    clusters: tuple[Cluster, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    tariff: Mapping[str, Any] = field(default_factory=dict)
    change_prices: ChangePrices = field(default_factory=ChangePrices)
    failures: Failures = field(default_factory=Failures)
    axes: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    max_accelerators: Count = 16_384

    def __post_init__(self) -> None:
        space = documents.read(SearchSpace, to_plain(dict(self.axes)), "axes")  # JSON says a choice by its word
        object.__setattr__(self, "axes", {name: getattr(space, name) for name in self.axes})
        _require(all(size > 0 for size in self.sizes), "sizes", self.sizes, "must be above 0")
        factors, sizes = self.network_factors, self.extra_memory_bytes
        _require(bool(factors), "network_factors", (), "must name one factor at least", 1.0)
        _require(
            all(0 < one <= 1000 for one in factors), "network_factors", factors, "must lie above 0, up to 1000", 1.0
        )
        _require(bool(sizes), "extra_memory_bytes", (), "must name one size at least", 0)
        _require(all(one >= 0 for one in sizes), "extra_memory_bytes", sizes, "must be 0 or more", 0)
        for name, price in self.prices.items():
            _require(price > 0, f"prices.{name}", price, "must be above 0")


def _require(holds: bool, field: str, value: object, rule: str, nearest: object = None) -> None:
    if not holds:
        raise InvalidInput(field, value, rule, nearest)
