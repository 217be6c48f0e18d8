"""PlanRequest: what a plan is asked about, and what is assumed where nobody knows."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from annotated_types import Ge, Le, Len, MaxLen

from autotuner.core import documents
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.documents import Named, OnlyNamed
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec
from autotuner.core.requests import GivenAxes, GivenTariff
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.value import NonNegative, Share, value
from autotuner.core.workload import Workload
from autotuner.search.planning.goal import Failures, Goal

_MOST_NAMED = 64

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
    """A training run to plan: which cluster to take for it.

    Attributes:
        model: As for a prediction.
        workload: Of one optimizer step.
        goal: How much is trained, by when and for how much.
        stack: Name of the software that would run it, from the catalog.
        accelerators: Names of the catalog; empty: those that anybody can rent at a listed price.
        sizes: Numbers of accelerators; empty: powers of two of nodes that suit the goal.
        network_factors: Times the usual bandwidth between nodes; other than 1 are hypothetical clusters.
        extra_memory_bytes: More than an accelerator's usual memory; other than 0 are hypothetical clusters.
        clusters: Whole clusters beside those, each as for a prediction; then accelerators must be named to be compared.
        prices: US dollars per accelerator and hour by accelerator, in the place of the catalog's.
        tariff: What of the power, emissions and spot hours of the catalog's clusters is otherwise, as for a prediction.
        change_prices: What hypothetical clusters cost more.
        failures: How often jobs are interrupted, and what that takes.
        space: Values of a layout's options; what is left out takes what suits each cluster and keeps the mathematics.
        max_accelerators: Of clusters whose size nobody named.
    """

    model: Named[TransformerSpec]
    workload: Workload
    goal: Goal
    stack: OnlyNamed[Stack] = "torch"
    accelerators: Annotated[tuple[str, ...], MaxLen(_MOST_NAMED)] = ()
    sizes: Annotated[tuple[Annotated[int, Ge(1), Le(2**20)], ...], MaxLen(_MOST_NAMED)] = ()
    network_factors: Annotated[tuple[float, ...], Len(1, 8)] = (1.0,)
    extra_memory_bytes: Annotated[tuple[int, ...], Len(1, 8)] = (0,)
    clusters: Annotated[tuple[Named[Cluster], ...], MaxLen(_MOST_NAMED)] = ()
    prices: Annotated[dict[str, float], MaxLen(_MOST_NAMED)] = field(default_factory=dict)
    tariff: GivenTariff = field(default_factory=dict)
    change_prices: ChangePrices = field(default_factory=ChangePrices)
    failures: Failures = field(default_factory=Failures)
    space: GivenAxes = field(default_factory=dict)
    max_accelerators: Annotated[int, Ge(1), Le(2**20)] = 16_384

    def __post_init__(self) -> None:
        space = documents.read(SearchSpace, to_plain(dict(self.space)), "space")  # JSON says a choice by its word
        object.__setattr__(self, "space", {name: getattr(space, name) for name in self.space})
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
