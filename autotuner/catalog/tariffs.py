"""What clusters cost and emit where nobody says otherwise, and regions by name, from ``tariffs.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from autotuner.core.accelerator import Accelerator
from autotuner.core.cluster import Tariff
from autotuner.core.errors import NotFound

__all__ = ["Region", "region", "regions", "usual_tariff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Where a cluster stands, as far as its energy goes.

    Attributes:
        name: What a tariff calls it.
        co2_kg_per_kwh: Of the energy's mix.
        power_usage_effectiveness: Of buildings there.
        source: Where that was read, and what of it is assumed.
        date: When it was written or read, ISO.
    """

    name: str
    co2_kg_per_kwh: float
    power_usage_effectiveness: float
    source: str
    date: str

    @property
    def tariff_fields(self) -> dict[str, float]:
        """Fields of a ``Tariff`` that it says."""
        return {
            "co2_kg_per_kwh": self.co2_kg_per_kwh,
            "power_usage_effectiveness": self.power_usage_effectiveness,
        }


def usual_tariff(accelerator: Accelerator, price_per_accelerator_hour: float) -> Tariff:
    """What hosts and ports around such accelerators draw, and what spot hours cost beside that price."""
    usual = {name: float(fact["value"]) for name, fact in _tables()["usual"].items()}
    return Tariff(
        spot_price_per_accelerator_hour=round(usual["spot_price_share"] * price_per_accelerator_hour, 4),
        host_power_w=round(usual["host_power_share"] * accelerator.power_w, 1),
        network_j_per_byte=usual["network_j_per_byte"],
    )


def regions() -> tuple[Region, ...]:
    """All that a tariff may name, in the order of the table."""
    return tuple(_regions().values())


def region(name: str) -> Region:
    """The region of that name.

    Raises:
        NotFound: With the nearest name.
    """
    if name not in _regions():
        near = get_close_matches(name.lower(), tuple(_regions()), 1, cutoff=0.4)
        raise NotFound("region", name, near[0] if near else None)
    return _regions()[name]


@cache
def _regions() -> Mapping[str, Region]:
    table, sources = _tables()["regions"], _tables()["sources"]
    building = table["power_usage_effectiveness"]
    mixes = dict(table["co2_kg_per_kwh"])
    said, assumed = sources[mixes.pop("source")], sources[building["source"]]
    return MappingProxyType(
        {
            name: Region(
                name=name,
                co2_kg_per_kwh=float(mix),
                power_usage_effectiveness=float(building["value"]),
                source=f"{said['title']}; buildings: {assumed['title']}",
                date=said["date"],
            )
            for name, mix in mixes.items()
        }
    )


@cache
def _tables() -> Mapping[str, Any]:
    text = files("autotuner.catalog").joinpath("tariffs.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))
