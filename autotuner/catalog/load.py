"""Accelerators, models and clusters by name, from the tables in this folder.

Names are read in upper or lower case. The tables, and every answer, spell them in lower case.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from autotuner.catalog.cores import core_collectives, core_times
from autotuner.catalog.tariffs import usual_tariff
from autotuner.catalog.topology.presets import load_preset
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import AttentionKernel, Fp8Recipe
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.link import Link
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.wire import from_dict

__all__ = [
    "Fact",
    "accelerator_facts",
    "accelerators",
    "is_as_catalogued",
    "link_facts",
    "link_names",
    "load_accelerator",
    "load_cluster",
    "load_link",
    "load_model",
    "load_stack",
    "model_aliases",
    "models",
    "node_size",
    "stack_origin",
    "stacks",
]

_BETWEEN_CORES = "loopback"
_ORIGIN = "origin"
_ABOUT_A_MODEL = ("source", "date", "aliases")
_KEPT_BY_A_PROFILE = ("kind", "fp32_flop_per_s", "bf16_flop_per_s", "fp8_flop_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value of the catalog, where it was read and when (ISO date).

    Attributes:
        borrowed: Whose it is, where it was not read of this very thing; empty where it was.
    """

    value: Any
    source: str
    date: str
    borrowed: str = ""


def accelerators() -> tuple[str, ...]:
    """Every accelerator's name, in the order of the table; aliases are not listed."""
    return tuple(_accelerator_tables())


def models() -> tuple[str, ...]:
    """Every model's name, in the order of the table."""
    return tuple(_model_tables())


def model_aliases() -> Mapping[str, str]:
    """Other names of models: alias to name."""
    return {alias: name for name, table in _model_tables().items() for alias in table.get("aliases", ())}


def stacks() -> tuple[str, ...]:
    """Every software stack's name, in the order of the table."""
    return tuple(_stack_tables())


def accelerator_facts(name: str) -> Mapping[str, Fact]:
    """Everything the catalog knows of an accelerator, by field name, each value with its source.

    Raises:
        NotFound: With the nearest name.
    """
    return _accelerator_tables()[_canonical(name)]


def load_accelerator(name: str) -> Accelerator:
    """The accelerator of that name or alias (``h100`` is ``h100-sxm``).

    Raises:
        NotFound: With the nearest name.
    """
    canonical = _canonical(name)
    facts = _accelerator_tables()[canonical]
    peak = facts["bf16_flop_per_s"]
    return Accelerator(
        name=canonical,
        kind=facts["kind"].value,
        memory_bytes=facts["memory_bytes"].value,
        memory_bandwidth_bytes_per_s=facts["memory_bandwidth_bytes_per_s"].value,
        fp32_flop_per_s=float(facts["fp32_flop_per_s"].value),
        bf16_flop_per_s=float(peak.value),
        fp8_flop_per_s=float(facts["fp8_flop_per_s"].value),
        peak_source=f"{peak.source}, {peak.date}",
        host_bandwidth_bytes_per_s=float(facts["host_bandwidth_bytes_per_s"].value),
        power_w=float(facts["power_w"].value),
        sustained_share=facts["sustained_share"].value,
        fp8_sustained_share=facts["fp8_sustained_share"].value if "fp8_sustained_share" in facts else None,
        fp4_sustained_share=facts["fp4_sustained_share"].value if "fp4_sustained_share" in facts else None,
        kernel_launch_s=facts["kernel_launch_s"].value,
        attention_kernels=tuple(AttentionKernel.from_label(k) for k in facts["attention_kernels"].value),
        fp4_flop_per_s=float(facts["fp4_flop_per_s"].value),
        fp8_recipes=tuple(Fp8Recipe.from_label(recipe) for recipe in facts["fp8_recipes"].value),
        core=core_times() if facts["kind"].value == "cpu" else None,
    )


def is_as_catalogued(accelerator: Accelerator) -> bool:
    """Whether this is the table's own entry of that name.

    A device that a user describes is none of them, whatever it is called: its peaks must be those of the table, which a
    profile of the very device leaves as they are.
    """
    facts = _accelerator_tables().get(accelerator.name)
    return facts is not None and all(getattr(accelerator, name) == facts[name].value for name in _KEPT_BY_A_PROFILE)


def load_model(name: str) -> TransformerSpec:
    """The model of that name.

    Raises:
        NotFound: With the nearest name.
    """
    tables = _model_tables()
    key = _key("model", name, tables)
    shapes = {field: value for field, value in tables[key].items() if field not in _ABOUT_A_MODEL}
    return from_dict(TransformerSpec, {"name": key, **shapes})


def load_stack(name: str) -> Stack:
    """The software stack of that name.

    Raises:
        NotFound: With the nearest name.
    """
    tables = _stack_tables()
    key = _key("stack", name, tables)
    return from_dict(Stack, {"name": key, **{field: v for field, v in tables[key].items() if field != _ORIGIN}})


def stack_origin(name: str) -> Mapping[str, Any]:
    """Framework, versions and date of the stack of that name, and its left-out error where it has one."""
    origin: Mapping[str, Any] = _stack_tables()[name][_ORIGIN]
    return origin


def link_names() -> tuple[str, ...]:
    """Every link's name, in the order of the table."""
    return tuple(_fact_tables("links.toml"))


def link_facts(name: str) -> Mapping[str, Fact]:
    """Everything the catalog knows of a link, by field name; nothing of one that it does not have."""
    return _fact_tables("links.toml").get(name, {})


def load_link(name: str) -> Link:
    """The link of that name, with the constants that ``bench/fit_links.py`` fitted.

    Raises:
        NotFound: With the nearest name.
    """
    tables = _fact_tables("links.toml")
    key = _key("link", name, tables)
    measured = core_collectives() if key == _BETWEEN_CORES else ()
    return Link(name=key, measured=measured, **{field: fact.value for field, fact in tables[key].items()})


def node_size(accelerator: Accelerator) -> int | None:
    """Accelerators of a usual node; None for one that the catalog does not know."""
    facts = _accelerator_tables().get(accelerator.name)
    return None if facts is None else int(facts["accelerators_per_node"].value)


def load_cluster(description: str) -> Cluster:
    """The cluster a short form describes, on the catalog's usual nodes, links and price.

    ``h100`` is one accelerator, ``h100:64`` is 64 of them (whole nodes, or a part of one node), ``h100:8x4`` is
    8 nodes of 4. ``gb200:128`` is 32 nodes of 4, which NVLink joins 16 by 16. ``h100:64@fat-tree-2to1`` names the
    network between the nodes (``networks.toml``). The cluster's name is the short form in lower case.

    Raises:
        NotFound: No such accelerator or network; with the nearest name.
        InvalidInput: The count is no count, or neither whole nodes nor less than one, or the network cannot join so
            many nodes; with the nearest that is or that it can.
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


_MAX_DIGITS = 7  # millions of accelerators; more is a slip of the hand


def _nodes(count: str, per_node: int) -> tuple[int, int]:
    parts = [part for part in count.split("x") if part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS]
    numbers = [int(part) for part in parts]
    if len(numbers) != count.count("x") + 1 or len(numbers) > 2 or min(numbers) < 1:
        raise InvalidInput("cluster", count, "must be a number of accelerators, or nodes x accelerators per node", 1)
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    (total,) = numbers
    if total < per_node:
        return 1, total
    if total % per_node:
        nearest = max(1, round(total / per_node)) * per_node
        rule = f"must be whole nodes of {per_node}, or less than one; write nodes x accelerators for another shape"
        raise InvalidInput("cluster", total, rule, nearest)
    return total // per_node, per_node


def _canonical(name: str) -> str:
    tables = _accelerator_tables()
    key = name.lower()
    if key in tables:
        return key
    aliases = {alias: owner for owner, facts in tables.items() for alias in facts["aliases"].value}
    if key in aliases:
        return aliases[key]
    raise _not_found("accelerator", name, (*tables, *aliases))


def _key(kind: str, name: str, tables: Mapping[str, object]) -> str:
    """Return the spelling that a table has of a name.

    Raises:
        NotFound: With the nearest name.
    """
    key = name.lower()
    if key not in tables:
        raise _not_found(kind, name, tables)
    return key


def _not_found(kind: str, name: str, known: Iterable[str]) -> NotFound:
    near = get_close_matches(name.lower(), tuple(known), 1, cutoff=0.4)
    return NotFound(kind, name, near[0] if near else None)


def _accelerator_tables() -> Mapping[str, Mapping[str, Fact]]:
    return _fact_tables("accelerators.toml")


@cache
def _model_tables() -> Mapping[str, Mapping[str, Any]]:
    return MappingProxyType(_read("models.toml"))


@cache
def _stack_tables() -> Mapping[str, Mapping[str, Any]]:
    return MappingProxyType(_read("stacks.toml"))


@cache
def _fact_tables(file_name: str) -> Mapping[str, Mapping[str, Fact]]:
    tables = _read(file_name)
    sources = tables.pop("sources")
    return MappingProxyType(
        {name: MappingProxyType({key: _fact(v, sources) for key, v in table.items()}) for name, table in tables.items()}
    )


def _fact(entry: Any, sources: Mapping[str, Mapping[str, str]]) -> Fact:
    if not isinstance(entry, dict):
        return Fact(value=entry, source="", date="")
    source = sources[entry["source"]]
    borrowed = source.get("borrowed", "")
    return Fact(value=entry["value"], source=source["title"], date=source["date"], borrowed=borrowed)


def _read(file_name: str) -> dict[str, Any]:
    return tomllib.loads(files("autotuner.catalog").joinpath(file_name).read_text(encoding="utf-8"))
