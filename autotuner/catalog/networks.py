"""Networks by name, from ``networks.toml``. A preset is adapted to a cluster's number of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from autotuner.catalog.facts import not_found, read_tables
from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Network, torus_lengths

_ABOUT = ("meaning", "torus_dimensions", "nvlink_domain")
"""Fields of a preset that a network itself does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPreset:
    """A network of the catalog that a cluster can name, such as ``fat-tree-2to1``."""

    network: Network
    """Network of the preset, for any number of nodes. The lengths of a torus are missing."""
    meaning: str
    """Description of the network, without a full stop."""
    source: str
    """Publication that states the numbers, and the assumptions in them."""
    date: str
    """ISO date on which the publication was written or read."""
    torus_dimensions: int = 0
    """Number of dimensions of a torus, whose lengths are computed from the number of nodes; 0 for a network of
    switches."""
    nvlink_domain: int | None = None
    """Number of accelerators that NVLink joins in a cluster with this network; None: the preset does not state it."""

    @property
    def name(self) -> str:
        """The name by which clusters refer to the network."""
        return self.network.name

    def joining(self, num_nodes: int) -> Network:
        """Return the network for a cluster with this number of nodes.

        Raises:
            InvalidInput: The network is a torus, and its dimensions cannot hold exactly this number of nodes. The error
                names the nearest number that they can hold.
        """
        if not self.torus_dimensions or num_nodes == 1:
            return self.network
        lengths = torus_lengths(num_nodes, self.torus_dimensions)
        if not lengths:
            rule = (
                f"must be a product of {self.torus_dimensions} lengths of 2 or more, because {self.name} is "
                f"a torus of {self.torus_dimensions} dimensions"
            )
            raise InvalidInput("num_nodes", num_nodes, rule, self._nearest(num_nodes))
        return replace(self.network, torus=lengths)

    def _nearest(self, num_nodes: int) -> int:
        least = 2**self.torus_dimensions
        around = range(max(least, num_nodes - least), num_nodes + least + 1)
        fitting = (number for number in around if torus_lengths(number, self.torus_dimensions))
        return min(fitting, key=lambda number: abs(number - num_nodes), default=least)


def network_presets() -> tuple[NetworkPreset, ...]:
    """Return all networks that a cluster can name, in the order of the catalog's table."""
    return tuple(_presets().values())


def load_preset(name: str) -> NetworkPreset:
    """Return the network of the catalog that has exactly this name.

    Raises:
        NotFound: No network has this name. The error suggests the most similar name.
    """
    if name not in _presets():
        raise not_found("network", name, _presets())
    return _presets()[name]


@cache
def _presets() -> Mapping[str, NetworkPreset]:
    tables = read_tables("networks.toml")
    return {name: _preset(name, table, tables["sources"]) for name, table in tables.items() if name != "sources"}


def _preset(name: str, table: Mapping[str, object], sources: Mapping[str, Mapping[str, str]]) -> NetworkPreset:
    source = sources[str(table["source"])]
    network = {field: value for field, value in table.items() if field not in (*_ABOUT, "source")}
    document = {
        **{field: table[field] for field in _ABOUT if field in table},
        "network": {**network, "name": name, "source": f"preset {name}"},
        "source": source["title"],
        "date": source["date"],
    }
    return from_plain(NetworkPreset, document, name)
