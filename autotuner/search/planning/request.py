"""PlanRequest: how much to train, until when and at which cost, and the assumptions of a plan."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Annotated

from annotated_types import Ge, Le, Len, MaxLen

from autotuner.core import documents
from autotuner.core.amounts import (
    read_amount,
    read_duration_s,
    read_gigabytes,
    read_prices,
    written_amount,
    written_duration,
    written_giga,
    written_prices,
)
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.documents import Named, OnlyNamed
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec
from autotuner.core.requests import GivenAxes, GivenTariff
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.value import Caption, Flag, Hint, NonNegative, Positive, Rare, Seconds, Share, Topic, Typed, value
from autotuner.core.workload import Workload

USUAL_SEQ_LEN = 8192
USUAL_GLOBAL_BATCH = 1024
"""Tokens per sequence and sequences per step if the request does not state them: as Llama 3 was trained (arXiv
2407.21783)."""

_S_PER_HOUR = 3600.0


@value
class Goal:
    """The goal of a training run: its number of tokens, its deadline and its price limit."""

    num_tokens: Annotated[float, Typed(read_amount, written_amount, "15.6T, 400B or 2e12")]
    """Number of tokens that the model is trained on."""
    deadline_s: Annotated[float | None, Typed(read_duration_s, written_duration, "60d, 8w or 36h"), Hint("none")] = None
    """Time from the start of the run until it should be done; None: there is no deadline."""
    price_limit: Annotated[float | None, Typed(read_amount, written_amount, "3.5M"), Hint("none")] = None
    """Maximum cost in US dollars; None: there is no limit."""
    broken_weight: Annotated[NonNegative, Caption("Penalty for a missed limit"), Rare()] = 3.0
    """Penalty for a run that breaks a limit, as a multiple of a run's cost. The default is an assumption: a cluster
    that breaks a limit in every third case is as good as one at twice its price that never does."""

    def __post_init__(self) -> None:
        for name in ("num_tokens", "deadline_s", "price_limit"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidInput(name, value, "must be a finite number above 0")


@value
class Failures:
    """The rate of interruptions by failures of accelerators, hosts and networks, and the time lost by each.

    The defaults come from Llama 3 405B (arXiv 2407.21783, section 3.3.4): 419 unexpected interruptions in 54 days on
    16,384 H100, with more than 90 % of the time effective. This means that each interruption costs 19.5 minutes. Other
    clusters have other rates. The model assumes that the true losses lie within a factor of 2 of these values in 80 of
    100 cases.
    """

    hours_between: Annotated[Positive, Flag("hours-between-failures")] = 50_676.0
    """Mean number of hours that one accelerator runs between two interruptions of its job."""
    lost_s: Annotated[Seconds, Flag("lost-per-failure"), Caption("Time lost per failure")] = 1_173.0
    """Seconds that an interruption costs: loading a checkpoint, and repeating the training since that checkpoint."""
    spread: Annotated[float, Flag("failure-spread"), Caption("Uncertainty factor")] = 2.0
    """Factor by which the losses may be larger or smaller in 80 of 100 cases."""

    def __post_init__(self) -> None:
        if not self.spread >= 1.0:
            raise InvalidInput("spread", self.spread, "must be 1.0 or more", 1.0)

    def log_slowdown(self, num_accelerators: int) -> float:
        """Return the natural logarithm of the job's time divided by its time without interruptions.

        Interruptions are a Poisson process, and one may also occur during the recovery from another. The time grows by
        exp(rate x time lost per interruption) if recoveries are short compared with the time between failures (Daly
        2006, Future Generation Computer Systems 22).
        """
        return num_accelerators * self.lost_s / (self.hours_between * _S_PER_HOUR)

    def goodput(self, num_accelerators: int) -> float:
        """Return the share of the time, 0..1, in which a job on this many accelerators makes progress."""
        return math.exp(-self.log_slowdown(num_accelerators))


_MOST_NAMED = 64
_CLUSTERS, _PRICES = Topic("Clusters to compare"), Topic("Prices")

MOST_CLUSTERS = 512
"""Most clusters that one plan compares. Each takes up to a tenth of a second."""


@value
class ChangePrices:
    """Prices of changes to a cluster (faster network, more memory), as assumptions, because no price list has them."""

    network_share: Annotated[Share, Flag("network-price-share")] = 0.10
    """Share of the network in a cluster's price. Twice the bandwidth costs this share once more. The default is an
    assumption."""
    memory_per_gb_hour: Annotated[NonNegative, Flag("memory-price")] = 0.009
    """US dollars per hour for an additional gigabyte (10^9 bytes). The default is the difference between an H200 and an
    H100 (0.59 dollars in Modal's price lists of 2025 and 2026) divided by the 65 GB that the H200 has more."""


@value
class PlanRequest:
    """A request for a plan, which recommends a cluster for a training run."""

    model: Named[TransformerSpec]
    """Name of a stored or catalog model, or the model itself, as for a prediction."""
    workload: Workload
    """Workload of one optimizer step."""
    goal: Goal
    """Amount of training, deadline and budget."""
    stack: Annotated[OnlyNamed[Stack], Rare()] = "torch"
    """Name of the software that would run the training, from the catalog."""
    accelerators: Annotated[tuple[str, ...], MaxLen(_MOST_NAMED), _CLUSTERS, Hint("all with a list price")] = ()
    """Accelerators of the catalog to compare; empty: all with a listed rental price."""
    sizes: Annotated[
        tuple[Annotated[int, Ge(1), Le(2**20)], ...], MaxLen(_MOST_NAMED), _CLUSTERS, Hint("suitable sizes")
    ] = ()
    """Numbers of accelerators; empty: powers of two of nodes that suit the goal."""
    network_factors: Annotated[
        tuple[float, ...], Len(1, 8), Flag("network"), Caption("Network bandwidth, ×"), _CLUSTERS
    ] = (1.0,)
    """Multiples of the usual bandwidth between nodes; values other than 1 are hypothetical clusters."""
    extra_memory_bytes: Annotated[
        tuple[Annotated[int, Typed(read_gigabytes, written_giga, "in GB")], ...],
        Len(1, 8),
        Flag("more-memory"),
        _CLUSTERS,
    ] = (0,)
    """Additional memory per accelerator; values other than 0 are hypothetical clusters."""
    clusters: Annotated[tuple[Named[Cluster], ...], MaxLen(_MOST_NAMED), Flag("cluster"), _CLUSTERS] = ()
    """Whole clusters to compare, each written as for a prediction. If any are given, accelerators are compared only if
    they are named too."""
    prices: Annotated[
        dict[str, float],
        MaxLen(_MOST_NAMED),
        Flag("price"),
        Typed(read_prices, written_prices, "h100=2.1, b200=4"),
        _PRICES,
    ] = field(default_factory=dict)
    """US dollars per accelerator and hour, by accelerator. They replace the catalog's prices."""
    tariff: Annotated[GivenTariff, _PRICES] = field(default_factory=dict)
    """Tariff in place of the catalog's: a region, or fields of a tariff."""
    change_prices: Annotated[ChangePrices, _PRICES] = field(default_factory=ChangePrices)
    """Extra prices of hypothetical clusters."""
    failures: Annotated[Failures, Topic("Interruptions")] = field(default_factory=Failures)
    """Rate and cost of interruptions."""
    space: Annotated[GivenAxes, Rare()] = field(default_factory=dict)
    """Values of options to search. Options that are left out take values that suit each cluster and are numerically
    equivalent."""
    max_accelerators: Annotated[int, Ge(1), Le(2**20), _CLUSTERS] = 16_384
    """Largest number of accelerators, for clusters whose size the request does not state."""

    def __post_init__(self) -> None:
        space = documents.read(SearchSpace, to_plain(dict(self.space)), "space")  # JSON says a choice by its word
        object.__setattr__(self, "space", {name: getattr(space, name) for name in self.space})
        _require(all(size > 0 for size in self.sizes), "sizes", self.sizes, "must be above 0")
        factors, sizes = self.network_factors, self.extra_memory_bytes
        _require(bool(factors), "network_factors", (), "must name at least one factor, for example 1.0")
        _require(
            all(0 < one <= 1000 for one in factors), "network_factors", factors, "must be above 0 and at most 1000"
        )
        _require(bool(sizes), "extra_memory_bytes", (), "must name at least one size, for example 0")
        _require(all(one >= 0 for one in sizes), "extra_memory_bytes", sizes, "must be 0 or more")
        for name, price in self.prices.items():
            _require(price > 0, f"prices.{name}", price, "must be above 0")


def _require(holds: bool, field: str, value: object, rule: str, nearest: object = None) -> None:
    if not holds:
        raise InvalidInput(field, value, rule, nearest)
