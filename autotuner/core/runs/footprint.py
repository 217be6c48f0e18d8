"""Footprint: what a job takes beside time while it runs by a layout."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core import check

__all__ = ["Footprint", "Power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Mean draw of a whole job while it trains, by what draws it.

    Attributes:
        accelerators_w: Of all accelerators.
        hosts_w: Of the nodes around them.
        network_w: Of ports and switches, for the bytes that leave nodes.
        building_w: What cooling and transformers add (power usage effectiveness).
        is_measured: The accelerators' part was measured; nothing else ever is.
    """

    accelerators_w: float
    hosts_w: float
    network_w: float
    building_w: float
    is_measured: bool = False

    def __post_init__(self) -> None:
        check.non_negative(self, "accelerators_w", "hosts_w", "network_w", "building_w")

    @property
    def total_w(self) -> float:
        """The sum of all parts."""
        return self.accelerators_w + self.hosts_w + self.network_w + self.building_w


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What runs beside the clock; figures per hour are of the whole job.

    Attributes:
        power: Mean draw; None where the accelerator's is not known.
        price_per_hour: US dollars of accelerators and of energy that is paid beside them; 0 where no price is known.
        co2_kg_per_hour: Of the energy; 0 where its mix is not known.
        complexity: Weighted count of what differs from plain, and of special hardware it needs (docs/objectives.md).
        robustness: Throughput under the sweep's fault trace over that of healthy steps; None without a trace.
    """

    power: Power | None
    price_per_hour: float
    co2_kg_per_hour: float
    complexity: float
    robustness: float | None = None

    def __post_init__(self) -> None:
        check.non_negative(self, "price_per_hour", "co2_kg_per_hour", "complexity")
