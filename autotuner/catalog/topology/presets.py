"""Networks by name, from ``networks.toml``: what they join is fitted to a cluster's number of nodes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.network import Network, torus_lengths
from autotuner.core.wire import from_dict

__all__ = ["NetworkPreset", "load_network", "load_preset", "network_presets"]


_ABOUT = ("meaning", "torus_dimensions", "nvlink_domain")
"""What a table says beside the network's own fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPreset:
    """A network that clusters name.

    Attributes:
        network: What it is for any number of nodes; of a torus the lengths are missing.
        meaning: What it is, in words without a full stop.
        source: Where its numbers are from, and which of them are assumed.
        date: When that was written or read, ISO.
        torus_dimensions: Of a torus, whose lengths the number of nodes decides; 0 where there are switches.
        nvlink_domain: Accelerators that NVLink joins in a cluster with this network; None: it does not say.
    """

    network: Network
    meaning: str
    source: str
    date: str
    torus_dimensions: int = 0
    nvlink_domain: int | None = None

    @property
    def name(self) -> str:
        """What a cluster calls it."""
        return self.network.name

    def joining(self, num_nodes: int) -> Network:
        """The network of a cluster of so many nodes.

        Raises:
            InvalidInput: No torus of its dimensions has so many; with the nearest number that one has.
        """
        if not self.torus_dimensions or num_nodes == 1:
            return self.network
        lengths = torus_lengths(num_nodes, self.torus_dimensions)
        if not lengths:
            rule = f"must be a product of {self.torus_dimensions} lengths of 2 or more, which {self.name} joins"
            raise InvalidInput("num_nodes", num_nodes, rule, self._nearest(num_nodes))
        return replace(self.network, torus=lengths)

    def _nearest(self, num_nodes: int) -> int:
        least = 2**self.torus_dimensions
        around = range(max(least, num_nodes - least), num_nodes + least + 1)
        fitting = (number for number in around if torus_lengths(number, self.torus_dimensions))
        return min(fitting, key=lambda number: abs(number - num_nodes), default=least)


def network_presets() -> tuple[NetworkPreset, ...]:
    """All of them, in the order of the table."""
    return tuple(_presets().values())


def load_preset(name: str) -> NetworkPreset:
    """The preset of that name.

    Raises:
        NotFound: With the nearest name.
    """
    if name not in _presets():
        near = get_close_matches(name.lower(), tuple(_presets()), 1, cutoff=0.4)
        raise NotFound("network", name, near[0] if near else None)
    return _presets()[name]


def load_network(name: str, num_nodes: int) -> Network:
    """The network of that name, between so many nodes.

    Raises:
        NotFound: With the nearest name.
        InvalidInput: It cannot join so many; with the nearest number that it can.
    """
    return load_preset(name).joining(num_nodes)


@cache
def _presets() -> Mapping[str, NetworkPreset]:
    text = files("autotuner.catalog").joinpath("networks.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    sources = tables.pop("sources")
    return MappingProxyType({name: _preset(name, table, sources) for name, table in tables.items()})


def _preset(name: str, table: dict[str, object], sources: Mapping[str, Mapping[str, str]]) -> NetworkPreset:
    source = sources[str(table.pop("source"))]
    network: dict[str, object] = {"name": name, "source": f"preset {name}"}
    about: dict[str, object] = {"network": network, "source": source["title"], "date": source["date"]}
    for field, value in table.items():
        (about if field in _ABOUT else network)[field] = value
    return from_dict(NetworkPreset, about, name)
