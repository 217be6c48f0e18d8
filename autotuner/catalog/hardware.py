"""Accelerators, links, CPU cores, tariffs and clusters by name, from the tables of this folder.

Names are read in upper or lower case. The tables, and every answer, spell them in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

from autotuner.catalog.facts import Fact, find_name, not_found, read_facts, read_tables
from autotuner.catalog.networks import load_preset
from autotuner.core.accelerator import Accelerator, CoreTimes
from autotuner.core.choices import AttentionKernel, Fp8Recipe
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.link import Link, MeasuredCollective

_ACCELERATORS = "accelerators.toml"
_LINKS = "links.toml"
_CORES = "cores.toml"
_TARIFFS = "tariffs.toml"

_BETWEEN_CORES = "loopback"
_KEPT_BY_A_PROFILE = ("kind", "fp32_flop_per_s", "bf16_flop_per_s", "fp8_flop_per_s")

_WRITTEN_WHOLE = (
    *("fp32_flop_per_s", "bf16_flop_per_s", "fp8_flop_per_s", "fp4_flop_per_s"),
    *("host_bandwidth_bytes_per_s", "power_w"),
)
"""Fields whose values may be written in the table without a decimal point."""

_MAX_DIGITS = 7
"""Maximum number of digits of a number of accelerators. A longer number is a typing error."""


# ---------------------------------------------------------------- accelerators
def accelerators() -> tuple[str, ...]:
    """Return the names of all accelerators of the catalog, in the order of its table, without their aliases."""
    return tuple(read_facts(_ACCELERATORS))


def accelerator_facts(name: str) -> Mapping[str, Fact]:
    """Return all catalog values of an accelerator by field name; each value comes with its source and date.

    Args:
        name: Name or alias of the accelerator, in upper or lower case.

    Raises:
        NotFound: No accelerator has this name or alias. The error suggests the most similar name.
    """
    return read_facts(_ACCELERATORS)[_canonical(name)]


def load_accelerator(name: str) -> Accelerator:
    """Return the accelerator of the catalog that has this name or alias (``h100`` is an alias of ``h100-sxm``).

    Args:
        name: Name or alias of the accelerator, in upper or lower case.

    Raises:
        NotFound: No accelerator has this name or alias. The error suggests the most similar name.
    """
    facts = accelerator_facts(name)
    values = {field.name: facts[field.name].value for field in fields(Accelerator) if field.name in facts}
    values |= {field: float(values[field]) for field in _WRITTEN_WHOLE}
    values["attention_kernels"] = tuple(map(AttentionKernel.from_label, values["attention_kernels"]))
    values["fp8_recipes"] = tuple(map(Fp8Recipe.from_label, values["fp8_recipes"]))
    peak = facts["bf16_flop_per_s"]
    core = core_times() if values["kind"] == "cpu" else None
    return Accelerator(name=_canonical(name), peak_source=f"{peak.source}, {peak.date}", core=core, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedAccelerator:
    """An accelerator of the catalog, together with the source and the date of each of its values."""

    accelerator: Accelerator
    facts: dict[str, Fact]
    """Facts by field name: the value, its source, and the date on which the source was read."""


def sourced_accelerator(name: str) -> SourcedAccelerator:
    """Return an accelerator of the catalog, found by name or alias, together with the source of each of its values.

    Raises:
        NotFound: No accelerator has this name or alias. The error suggests the most similar name.
    """
    return SourcedAccelerator(accelerator=load_accelerator(name), facts=dict(accelerator_facts(name)))


def is_as_catalogued(accelerator: Accelerator) -> bool:
    """Return True if the accelerator is the catalog's own entry, and not a user's description with the same name.

    The function compares the kind and the peaks in FLOP/s with those of the catalog. A measured profile of a catalog
    GPU changes only other constants, so that the result stays True.
    """
    facts = read_facts(_ACCELERATORS).get(accelerator.name)
    return facts is not None and all(getattr(accelerator, name) == facts[name].value for name in _KEPT_BY_A_PROFILE)


def node_size(accelerator: Accelerator) -> int | None:
    """Return the usual number of accelerators per node, from the catalog; None if the catalog lacks the accelerator."""
    facts = read_facts(_ACCELERATORS).get(accelerator.name)
    return None if facts is None else int(facts["accelerators_per_node"].value)


def _canonical(name: str) -> str:
    tables, key = read_facts(_ACCELERATORS), name.lower()
    if key in tables:
        return key
    owners = (owner for owner, facts in tables.items() if key in facts["aliases"].value)
    if (owner := next(owners, None)) is None:
        aliases = (alias for facts in tables.values() for alias in facts["aliases"].value)
        raise not_found("accelerator", name, (*tables, *aliases))
    return owner


# ---------------------------------------------------------------- CPU cores and links
@cache
def core_times() -> CoreTimes:
    """Return the measured extra times of a CPU core, such as the launch of operations, from ``cores.toml``.

    The file names the machine on which they were measured.
    """
    return from_plain(CoreTimes, read_tables(_CORES)["core"], "core")


@cache
def core_collectives() -> tuple[MeasuredCollective, ...]:
    """Return the measured times of gloo collectives between CPU cores, from ``cores.toml``.

    The file names the machine on which they were measured. Each entry gives a start time and a time per byte.
    """
    return tuple(from_plain(MeasuredCollective, line, "collectives") for line in read_tables(_CORES)["collectives"])


def link_facts(name: str) -> Mapping[str, Fact]:
    """Return all catalog values of a link by field name, with their sources; empty if the catalog lacks the link."""
    return read_facts(_LINKS).get(name, {})


def link_names() -> tuple[str, ...]:
    """Return the names of all links of the catalog, in the order of its table."""
    return tuple(read_facts(_LINKS))


def load_link(name: str) -> Link:
    """Return the link of the catalog that has this name; ``research/fit_links.py`` fitted its constants.

    Args:
        name: Name of the link, in upper or lower case.

    Raises:
        NotFound: No link has this name. The error suggests the most similar name.
    """
    key = find_name("link", name, link_names())
    measured = core_collectives() if key == _BETWEEN_CORES else ()
    return Link(name=key, measured=measured, **{field: fact.value for field, fact in link_facts(key).items()})


# ---------------------------------------------------------------- tariffs
@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region where a cluster may stand, with the carbon intensity of its energy and its building overhead."""

    name: str
    """Name of the region, as tariffs use it."""
    co2_kg_per_kwh: float
    """Carbon intensity of the region's energy mix."""
    power_usage_effectiveness: float
    """Power usage effectiveness of the region's buildings."""
    source: str
    """Publication that states these numbers, and the assumptions in them."""
    date: str
    """ISO date on which the publication was written or read."""

    @property
    def tariff_fields(self) -> dict[str, float]:
        """The fields of a ``Tariff`` that the region decides (CO2 per kWh, power overhead of buildings), by name."""
        return {name: getattr(self, name) for name in ("co2_kg_per_kwh", "power_usage_effectiveness")}


def usual_tariff(accelerator: Accelerator, price_per_accelerator_hour: float) -> Tariff:
    """Return the usual tariff of a cluster with this accelerator: spot price, power of hosts, energy of the network.

    Args:
        accelerator: Accelerator of the cluster. The power of the host is a share of its highest power.
        price_per_accelerator_hour: Regular price in US dollars. The spot price is a share of it.
    """
    usual = {name: float(fact["value"]) for name, fact in read_tables(_TARIFFS)["usual"].items()}
    return Tariff(
        spot_price_per_accelerator_hour=round(usual["spot_price_share"] * price_per_accelerator_hour, 4),
        host_power_w=round(usual["host_power_share"] * accelerator.power_w, 1),
        network_j_per_byte=usual["network_j_per_byte"],
    )


def regions() -> tuple[Region, ...]:
    """Return all regions that a tariff may name, in the order of the catalog's table."""
    return tuple(_regions().values())


def region(name: str) -> Region:
    """Return the region of the catalog that has exactly this name.

    Raises:
        NotFound: No region has this name. The error suggests the most similar name.
    """
    if name not in _regions():
        raise not_found("region", name, _regions())
    return _regions()[name]


@cache
def _regions() -> Mapping[str, Region]:
    table, sources = read_tables(_TARIFFS)["regions"], read_tables(_TARIFFS)["sources"]
    mixes, building = dict(table["co2_kg_per_kwh"]), table["power_usage_effectiveness"]
    stated, assumed = sources[mixes.pop("source")], sources[building["source"]]
    return {
        name: Region(
            name=name,
            co2_kg_per_kwh=float(mix),
            power_usage_effectiveness=float(building["value"]),
            source=f"{stated['title']}; buildings: {assumed['title']}",
            date=stated["date"],
        )
        for name, mix in mixes.items()
    }


# ---------------------------------------------------------------- clusters
def load_cluster(description: str) -> Cluster:
    """Return the cluster that a short form such as ``h100:64`` describes, with the catalog's usual nodes and links.

    ``h100`` is one accelerator, ``h100:64`` is 64 of them (whole nodes, or a part of one node), ``h100:8x4`` is
    8 nodes of 4. ``gb200:128`` is 32 nodes of 4; NVLink joins 16 nodes to one domain. ``h100:64@fat-tree-2to1`` names
    the network between the nodes (``networks.toml``). The cluster's name is the short form in lower case.

    Raises:
        NotFound: The catalog has no such accelerator or network. The error suggests the most similar name.
        InvalidInput: The count is not a number, or is neither whole nodes nor less than one node, or the network
            cannot join this number of nodes. The error names the nearest legal value.
    """
    description = description.lower()
    hardware, at, network = description.partition("@")
    name, _, count = hardware.partition(":")
    accelerator = load_accelerator(name)
    facts = accelerator_facts(name)
    num_nodes, per_node = _nodes(count or "1", facts["accelerators_per_node"].value)
    preset = load_preset(network) if at else None
    price = facts["price_per_accelerator_hour"].value
    domain = facts["nvlink_domain"].value if "nvlink_domain" in facts else None
    if preset is not None and preset.nvlink_domain is not None:
        domain = preset.nvlink_domain
    return Cluster(
        name=description,
        accelerator=accelerator,
        num_nodes=num_nodes,
        accelerators_per_node=per_node,
        intra_node_link=load_link(facts["intra_node_link"].value),
        inter_node_link=load_link(facts["inter_node_link"].value),
        price_per_accelerator_hour=price,
        tariff=usual_tariff(accelerator, price),
        nvlink_domain=max(domain, per_node) if domain else None,
        network=None if preset is None else preset.joining(num_nodes),
    )


def _nodes(count: str, per_node: int) -> tuple[int, int]:
    """Return the number of nodes, and the number of accelerators of each node.

    The text is a total such as ``64``, or nodes and accelerators such as ``8x4``.
    """
    parts = [part for part in count.split("x") if part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS]
    numbers = [int(part) for part in parts]
    if len(numbers) != count.count("x") + 1 or len(numbers) > 2 or min(numbers) < 1:
        raise InvalidInput(
            "cluster",
            count,
            "must be a number of accelerators such as 16, or nodes x accelerators per node such as 2x8",
        )
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    (total,) = numbers
    if total < per_node:
        return 1, total
    if total % per_node:
        nearest = max(1, round(total / per_node)) * per_node
        rule = (
            f"must be a multiple or a divisor of {per_node}, the accelerators of a node; for nodes of another size, "
            "write nodes x accelerators per node, such as 2x6"
        )
        raise InvalidInput("cluster", total, rule, nearest)
    return total // per_node, per_node
