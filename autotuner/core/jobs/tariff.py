"""Tariff: what a cluster's hours, energy and emissions cost beyond the price of an accelerator and hour."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core import check
from autotuner.errors import InvalidInput

__all__ = ["Tariff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """Prices, power around accelerators, and what energy emits.

    Attributes:
        spot_price_per_accelerator_hour: In US dollars, of hours that may be taken away; 0 where there is none.
        is_spot: The job runs on those hours; else on reserved ones, at the cluster's price.
        interrupted_share: Of spot hours, lost to interruptions and to what is computed again after them.
        energy_price_per_kwh: In US dollars, paid beside the hours, as owners of machines do; 0: hours include it.
        co2_kg_per_kwh: Of the energy's mix, in kg of CO2 equivalents; 0 where it is not known.
        host_power_w: What a node's host, memory and fans draw per accelerator while it trains.
        network_j_per_byte: What ports and switches take for a byte that leaves a node.
        power_usage_effectiveness: Energy of the building over that of its machines.
    """

    spot_price_per_accelerator_hour: float = 0.0
    is_spot: bool = False
    interrupted_share: float = 0.05
    energy_price_per_kwh: float = 0.0
    co2_kg_per_kwh: float = 0.0
    host_power_w: float = 0.0
    network_j_per_byte: float = 0.0
    power_usage_effectiveness: float = 1.0

    def __post_init__(self) -> None:
        check.non_negative(self, "spot_price_per_accelerator_hour", "energy_price_per_kwh", "co2_kg_per_kwh")
        check.non_negative(self, "host_power_w", "network_j_per_byte")
        if not 0.0 <= self.interrupted_share < 1.0:
            raise InvalidInput("interrupted_share", self.interrupted_share, "must be 0 or more and below 1", 0.0)
        if not self.power_usage_effectiveness >= 1.0:
            raise InvalidInput("power_usage_effectiveness", self.power_usage_effectiveness, "must be 1.0 or more", 1.0)
