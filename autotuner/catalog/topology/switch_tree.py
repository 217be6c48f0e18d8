"""Switches by name, each with nodes or switches below it, as Slurm has them; and the tiers that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from autotuner.catalog.topology.host_lists import MOST_NAMES
from autotuner.catalog.topology.topology import FileKind, Topology
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Network, Tier

__all__ = ["Switch", "blocks_topology", "tree_topology"]

_TIER_NAMES = ("leaf", "spine", "core")
"""From the switches that nodes are plugged into upwards; a higher one is called by its number."""

_UNTOLD = "how much a switch passes up is not told: taken as all that it gets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch, or a block of nodes.

    Attributes:
        number: Of the line that says it, from 1.
        nodes: Plugged into it.
        children: Switches below it, by name.
    """

    name: str
    number: int
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


def tree_topology(kind: FileKind, name: str, switches: Iterable[Switch]) -> Topology:
    """The tiers that switches make: those that nodes are plugged into are the first, those above these the next.

    Where switches of a tier differ in size, all are taken to be as large as the largest.

    Raises:
        InvalidInput: A switch is named twice, or is not there, or lies below itself; a node lies below two.
    """
    by_name = _by_name(switches)
    heights = _heights(by_name)
    joined = {child for switch in by_name.values() for child in switch.children}
    roots = [name for name in by_name if name not in joined]
    sizes = _tier_sizes(by_name, heights)
    tiers = tuple(Tier(name=_tier_name(place), nodes_per_switch=size) for place, size in enumerate(sizes))
    notes = [_UNTOLD, *_uneven(by_name)]
    if len(roots) > 1:
        notes.append(f"no switch joins {', '.join(roots[:3])}: taken as joined by one that passes all")
    network = Network(name=name, tiers=tiers, source=kind.in_words)
    nodes = tuple(_in_order(by_name, roots))
    return Topology(kind=kind, network=network, nodes=nodes, notes=tuple(notes))


def blocks_topology(kind: FileKind, name: str, blocks: Iterable[Switch], sizes: tuple[int, ...]) -> Topology:
    """The tiers that blocks of nodes make: a block, and as many of them as the sizes behind the first say.

    Args:
        kind: Whose file it was.
        name: What answers call the network.
        blocks: With their nodes.
        sizes: Nodes that Slurm plans by, of a block and of larger ones; a block may have spare nodes above the first.

    Raises:
        InvalidInput: A block is named twice or has no nodes, a node lies in two, a size is no multiple of the first.
    """
    by_name = _by_name(blocks)
    _require_one_place(by_name)
    largest = max(len(block.nodes) for block in by_name.values())
    base = sizes[0] if sizes else largest
    for size in sizes:
        if size < 1 or size % base:
            raise InvalidInput("block_sizes", size, f"must be a multiple of the first, {base}", base)
    factors = sorted({size // base for size in sizes} | {1})
    names = ["block" if factor == 1 else f"{factor} blocks" for factor in factors]
    tiers = tuple(
        Tier(name=name, nodes_per_switch=factor * largest) for name, factor in zip(names, factors, strict=True)
    )
    network = Network(name=name, tiers=tiers, source=kind.in_words)
    notes = [_UNTOLD, "a block is taken as an NVLink domain where the accelerator has domains of several nodes"]
    nodes = tuple(node for block in by_name.values() for node in block.nodes)
    return Topology(kind=kind, network=network, nodes=nodes, notes=(*notes, *_uneven(by_name)))


def _by_name(switches: Iterable[Switch]) -> dict[str, Switch]:
    """The switches by name; they may be made one by one, so that no file makes more nodes than there are."""
    by_name: dict[str, Switch] = {}
    num_names = 0
    for switch in switches:
        num_names += len(switch.nodes) + len(switch.children)
        if num_names > MOST_NAMES:
            raise InvalidInput(f"line {switch.number}", switch.name, f"is beyond the first {MOST_NAMES:,} names")
        if switch.name in by_name:
            rule = f"must be named once; line {by_name[switch.name].number} names it, too"
            raise InvalidInput(f"line {switch.number}", switch.name, rule)
        if bool(switch.nodes) == bool(switch.children):
            raise InvalidInput(f"line {switch.number}", switch.name, "must have nodes or switches below it, not both")
        by_name[switch.name] = switch
    if not by_name:
        raise InvalidInput("line 1", "", "names no switch and no block", "SwitchName=s0 Nodes=node[0-3]")
    return by_name


def _require_one_place(by_name: Mapping[str, Switch]) -> None:
    places: dict[str, Switch] = {}
    for switch in by_name.values():
        for node in switch.nodes:
            if node in places:
                rule = f"must be plugged into one switch; line {places[node].number} has it below {places[node].name}"
                raise InvalidInput(f"line {switch.number}", node, rule)
            places[node] = switch


def _heights(by_name: Mapping[str, Switch]) -> dict[str, int]:
    """How many switches lie below each on the longest way down, those without any first."""
    parents: dict[str, list[str]] = {}
    waiting = {name: len(switch.children) for name, switch in by_name.items()}
    for switch in by_name.values():
        for child in switch.children:
            if child not in by_name:
                near = get_close_matches(child, by_name, 1, cutoff=0.3)
                raise InvalidInput(f"line {switch.number}", child, "names no switch", near[0] if near else None)
            if parents.setdefault(child, []):
                rule = f"must lie below one switch; it lies below {parents[child][0]}, too"
                raise InvalidInput(f"line {switch.number}", child, rule)
            parents[child].append(switch.name)
    heights = {name: 0 for name, count in waiting.items() if count == 0}
    ready = list(heights)
    for name in ready:
        for parent in parents.get(name, ()):
            waiting[parent] -= 1
            heights[parent] = max(heights.get(parent, 0), heights[name] + 1)
            if waiting[parent] == 0:
                ready.append(parent)
    if len(ready) < len(by_name):
        left = next(each for each in by_name.values() if each.name not in set(ready))
        raise InvalidInput(f"line {left.number}", left.name, "must not lie below itself")
    _require_one_place(by_name)
    return {name: heights[name] for name in ready}


def _in_order(by_name: Mapping[str, Switch], roots: list[str]) -> Iterator[str]:
    """The nodes below some switches, those of one child after those of another."""
    open_ = roots[::-1]
    while open_:
        switch = by_name[open_.pop()]
        yield from switch.nodes
        open_.extend(reversed(switch.children))


def _tier_sizes(by_name: Mapping[str, Switch], heights: Mapping[str, int]) -> list[int]:
    """Nodes below a switch of each tier, as if all were as large as the largest; tiers that join nothing are none."""
    sizes: list[int] = []
    for height in range(max(heights.values()) + 1):
        own = [by_name[name] for name, found in heights.items() if found == height]
        most = max(max(len(each.nodes), len(each.children)) for each in own)
        size = most * (sizes[-1] if sizes else 1)
        if not sizes or size > sizes[-1]:
            sizes.append(size)
    return sizes


def _uneven(by_name: Mapping[str, Switch]) -> Iterator[str]:
    """What is said where some of the lowest switches have fewer nodes than others."""
    counts = sorted({len(switch.nodes) for switch in by_name.values() if switch.nodes})
    if len(counts) > 1:
        yield f"the lowest switches have {counts[0]} to {counts[-1]} nodes: all are taken to have {counts[-1]}"


def _tier_name(place: int) -> str:
    return _TIER_NAMES[place] if place < len(_TIER_NAMES) else f"tier {place + 1}"
