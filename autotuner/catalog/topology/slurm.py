"""Reader of Slurm's ``topology.conf`` and ``topology.yaml``: trees of switches and nodes, or blocks of nodes.

The formats are those of the manual pages topology.conf(5) and topology.yaml(5) of Slurm 25.05. ``topology.conf`` has
lines such as ``SwitchName=s0 Nodes=node[0-15]`` or ``BlockName=b0 Nodes=node[01-18]``. Names of parameters may have
upper and lower case, ``#`` begins a comment, and LinkSpeed has no defined unit and is ignored. ``topology.yaml`` is a
list of topologies; each is a tree of switches, blocks of nodes, or flat. The cluster's default topology is read;
without a default, the first one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from itertools import product

import yaml

from autotuner.catalog.topology.topology import FileKind, Topology
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Network, Tier

_MOST_NAMES = 200_000
"""Maximum number of names in one list and in one file. The largest clusters have a tenth of that."""

# ---------------------------------------------------------------- lists of names: node[01-18,20],login1
_PART = re.compile(r"(?:[^,\[\]\s]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?$")


def names_of(text: str, where: str) -> tuple[str, ...]:
    """Return all host names that a Slurm host list such as ``node[01-18,20],login1`` stands for, in the list's order.

    Args:
        text: Host list, as in Slurm's configuration files.
        where: Place of the list in its file, which an error names.

    Raises:
        InvalidInput: The text is not a host list, or stands for too many names.
    """
    parts = _PART.findall(text)
    if not parts or ",".join(parts) != text.strip(", \t"):
        raise InvalidInput(where, text, "must be names of nodes or switches, for example node[01-18]")
    names: list[str] = []
    for part in parts:
        pieces = [(plain,) if plain else tuple(_numbers(inside, where)) for inside, plain in _PIECE.findall(part)]
        for number, name in enumerate(product(*pieces), len(names)):
            if number >= _MOST_NAMES:
                raise InvalidInput(where, text, f"must expand to at most {_MOST_NAMES:,} names")
            names.append("".join(name))
    return tuple(names)


def _numbers(inside: str, where: str) -> Iterator[str]:
    """Yield each number inside a pair of brackets, with as many digits as the first number of its range."""
    for each in inside.split(","):
        found = _RANGE.match(each.strip())
        if found is None:
            raise InvalidInput(
                where,
                f"[{inside}]",
                "must be numbers and ranges of numbers, with commas between them, for example [0-3,7]",
            )
        first, last = found[1], found[2] or found[1]
        if not int(first) <= int(last) < int(first) + _MOST_NAMES:
            rule = f"must be a range of fewer than {_MOST_NAMES:,} numbers, with the smaller number first"
            raise InvalidInput(where, each, rule, f"{last}-{first}" if int(last) < int(first) else None)
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


# ---------------------------------------------------------------- switches, and the tiers that they make
_TIER_NAMES = ("leaf", "spine", "core")
"""Names of the levels of switches, from the switches of the nodes upwards. Higher levels are named by their number."""

_UNTOLD = "the file does not say how much of its traffic a switch passes up: all of it is assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switch:
    """A switch, or a block of nodes, as the file describes it."""

    name: str
    number: int
    """Line number in the file, from 1."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes that are plugged into the switch."""
    children: tuple[str, ...] = ()
    """Names of the switches below this one."""


def _tree(kind: FileKind, name: str, switches: Iterable[_Switch]) -> Topology:
    """Return the levels of switches: first the switches that nodes are plugged into, then those above them.

    If the switches of a level differ in size, all of them are assumed to be as large as the largest.

    Raises:
        InvalidInput: A switch is named twice, is missing, or is below itself; or a node is below two switches.
    """
    by_name = _by_name(switches)
    heights = _heights(by_name)
    joined = {child for switch in by_name.values() for child in switch.children}
    roots = [name for name in by_name if name not in joined]
    sizes = _tier_sizes(by_name, heights)
    tier_names = (*_TIER_NAMES, *(f"tier {place}" for place in range(len(_TIER_NAMES) + 1, len(sizes) + 1)))
    tiers = tuple(Tier(name=each, nodes_per_switch=size) for each, size in zip(tier_names, sizes, strict=False))
    notes = [_UNTOLD, *_uneven(by_name)]
    if len(roots) > 1:
        notes.append(f"no switch joins {', '.join(roots[:3])}: a switch that passes all traffic is assumed above them")
    network = Network(name=name, tiers=tiers, source=kind.value)
    nodes = tuple(_nodes_below(by_name, roots))
    return Topology(kind=kind, network=network, nodes=nodes, notes=tuple(notes))


def _blocks(kind: FileKind, name: str, blocks: Iterable[_Switch], sizes: tuple[int, ...]) -> Topology:
    """Return the levels of switches for blocks of nodes: one level of blocks, and one for each larger size.

    Args:
        kind: The kind of file.
        name: The network's name in answers.
        blocks: The blocks with their nodes.
        sizes: Numbers of nodes in a block and in larger groups, for Slurm's scheduling. A block may have spare nodes in
            addition to the first size.

    Raises:
        InvalidInput: A block is named twice or has no nodes, a node is in two blocks, or a size is not a multiple of
            the first size.
    """
    by_name = _by_name(blocks)
    _require_one_place(by_name)
    largest = max(len(block.nodes) for block in by_name.values())
    base = sizes[0] if sizes else largest
    for size in sizes:
        if size < 1 or size % base:
            raise InvalidInput(
                "block_sizes",
                size,
                f"must be a multiple of the first block size, {base}",
                max(1, round(size / base)) * base,
            )
    tiers = tuple(
        Tier(name="block" if factor == 1 else f"{factor} blocks", nodes_per_switch=factor * largest)
        for factor in sorted({size // base for size in sizes} | {1})
    )
    network = Network(name=name, tiers=tiers, source=kind.value)
    notes = [_UNTOLD, "a block is taken as an NVLink domain if the accelerator has domains of several nodes"]
    nodes = tuple(node for block in by_name.values() for node in block.nodes)
    return Topology(kind=kind, network=network, nodes=nodes, notes=(*notes, *_uneven(by_name)))


def _by_name(switches: Iterable[_Switch]) -> dict[str, _Switch]:
    """Return the switches by name.

    The names are counted on the way, so that a file with too many names is refused early.
    """
    by_name: dict[str, _Switch] = {}
    num_names = 0
    for switch in switches:
        where = f"line {switch.number}"
        num_names += len(switch.nodes) + len(switch.children)
        if num_names > _MOST_NAMES:
            raise InvalidInput(where, switch.name, f"is past the limit: a file may have at most {_MOST_NAMES:,} names")
        if switch.name in by_name:
            rule = f"must be defined only once; line {by_name[switch.name].number} defines it too"
            raise InvalidInput(where, switch.name, rule)
        if bool(switch.nodes) == bool(switch.children):
            raise InvalidInput(where, switch.name, "must have either nodes or switches below it, and not both")
        by_name[switch.name] = switch
    if not by_name:
        raise InvalidInput(
            "line 1", "", "must define at least one switch or block, for example SwitchName=s0 Nodes=node[0-3]"
        )
    return by_name


def _require_one_place(by_name: Mapping[str, _Switch]) -> None:
    places: dict[str, _Switch] = {}
    for switch in by_name.values():
        for node in switch.nodes:
            if node in places:
                rule = (
                    f"must be connected to one switch only; line {places[node].number} connects it to "
                    f"{places[node].name}"
                )
                raise InvalidInput(f"line {switch.number}", node, rule)
            places[node] = switch


def _heights(by_name: Mapping[str, _Switch]) -> dict[str, int]:
    """Return for each switch the number of switches below it on the longest path down."""
    parents: dict[str, str] = {}
    for switch in by_name.values():
        for child in switch.children:
            if child not in by_name:
                near = get_close_matches(child, by_name, 1, cutoff=0.3)
                raise InvalidInput(
                    f"line {switch.number}",
                    child,
                    "is not the name of a switch in this file",
                    near[0] if near else None,
                )
            if child in parents:
                rule = f"must be below one switch only; it is also below {parents[child]}"
                raise InvalidInput(f"line {switch.number}", child, rule)
            parents[child] = switch.name
    sorter = TopologicalSorter({name: switch.children for name, switch in by_name.items()})
    with suppress(CycleError):  # it still gives those that lie above no cycle
        sorter.prepare()
    heights: dict[str, int] = {}
    while ready := sorter.get_ready():
        heights |= {name: max((1 + heights[child] for child in by_name[name].children), default=0) for name in ready}
        sorter.done(*ready)
    for name, switch in by_name.items():
        if name not in heights:
            raise InvalidInput(
                f"line {switch.number}", name, "must not be below itself, directly or through other switches"
            )
    _require_one_place(by_name)
    return heights


def _nodes_below(by_name: Mapping[str, _Switch], roots: list[str]) -> Iterator[str]:
    """Yield the names of all nodes below some switches, child after child."""
    open_ = roots[::-1]
    while open_:
        switch = by_name[open_.pop()]
        yield from switch.nodes
        open_.extend(reversed(switch.children))


def _tier_sizes(by_name: Mapping[str, _Switch], heights: Mapping[str, int]) -> list[int]:
    """Return the number of nodes below a switch of each level.

    All switches of a level are assumed to be as large as the largest.
    """
    sizes: list[int] = []
    for height in range(max(heights.values()) + 1):
        own = [by_name[name] for name, found in heights.items() if found == height]
        most = max(max(len(each.nodes), len(each.children)) for each in own)
        size = most * (sizes[-1] if sizes else 1)
        if not sizes or size > sizes[-1]:
            sizes.append(size)
    return sizes


def _uneven(by_name: Mapping[str, _Switch]) -> Iterator[str]:
    """Yield a note if some of the lowest switches have fewer nodes than others."""
    counts = sorted({len(switch.nodes) for switch in by_name.values() if switch.nodes})
    if len(counts) > 1:
        yield (
            f"the lowest switches have {counts[0]} to {counts[-1]} nodes: all of them are assumed to have {counts[-1]}"
        )


# ---------------------------------------------------------------- topology.conf
_PARAMETERS = ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes")
_BY_LOWER = {name.lower(): name for name in _PARAMETERS}
_BEGINS = re.compile(r"^\s*(?:SwitchName|BlockName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)


def is_slurm_conf(text: str) -> bool:
    """Return True if the text looks like Slurm's file ``topology.conf``."""
    return _BEGINS.search(text) is not None


def read_slurm_conf(text: str) -> Topology:
    """Return the network that Slurm's file ``topology.conf`` describes.

    Raises:
        InvalidInput: A line is not valid in this file, or the switches do not form a tree. The error names the line.
    """
    lines = [(number, _parameters(number, line)) for number, line in _conf_lines(text)]
    switches = [line for line in lines if "SwitchName" in line[1]]
    blocks = [line for line in lines if "BlockName" in line[1]]
    if switches and blocks:
        number, parameters = blocks[0]
        rule = "must not be in a file that also has switches, because Slurm reads either switches or blocks"
        raise InvalidInput(f"line {number}", parameters["BlockName"], rule)
    if not blocks:
        return _tree(FileKind.SLURM_CONF, "slurm", (_conf_switch("SwitchName", *line) for line in switches))
    sizes = [_block_sizes(number, line["BlockSizes"]) for number, line in lines if "BlockSizes" in line]
    found = (_conf_switch("BlockName", *line) for line in blocks)
    return _blocks(FileKind.SLURM_CONF, "slurm", found, sizes[-1] if sizes else ())


def _conf_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, each with its number.

    Lines that a backslash joins are one line with the number of the first.
    """
    begun, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        content = line.partition("#")[0].rstrip()
        begun, first = begun + content.removesuffix("\\"), first or number
        if content.endswith("\\"):
            continue
        if begun.strip():
            yield first, begun.strip()
        begun, first = "", 0


def _parameters(number: int, line: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        name = _BY_LOWER.get(key.lower())
        if not equals or name is None:
            near = get_close_matches(key, _PARAMETERS, 1, cutoff=0.4)
            rule = f"must be one of {', '.join(_PARAMETERS)}, followed by = and a value"
            raise InvalidInput(f"line {number}", word, rule, f"{near[0]}={value}" if near and value else None)
        if name in values or not value:
            raise InvalidInput(f"line {number}", word, "must appear only once in a line, and have a value")
        values[name] = value
    if not values.keys() & {"SwitchName", "BlockName", "BlockSizes"}:
        rule = "must define a switch or a block"
        raise InvalidInput(f"line {number}", line[:60], rule, f"SwitchName=s0 {line}")
    return values


def _conf_switch(named: str, number: int, values: Mapping[str, str]) -> _Switch:
    nodes, children = (
        names_of(values[name], f"line {number}") if name in values else () for name in ("Nodes", "Switches")
    )
    return _Switch(name=values[named], number=number, nodes=nodes, children=children)


def _block_sizes(number: int, text: str) -> tuple[int, ...]:
    """Return the block sizes that a line states.

    If it states only one size, its multiples by powers of two are left out, because they change no prediction.
    """
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and 0 < len(part) < 7 for part in parts):
        raise InvalidInput(
            f"line {number}",
            text,
            "must be block sizes, each as a number of nodes, with commas between them, for example 18,36",
        )
    return tuple(map(int, parts))


# ---------------------------------------------------------------- topology.yaml
_KINDS = ("tree", "block", "flat")

_DEEPEST = 20
"""Maximum depth of nested brackets. The parser is slow for deeper nesting, and no real file has more than a few
levels."""


def is_slurm_yaml(text: str) -> bool:
    """Return True if the text looks like Slurm's file ``topology.yaml``."""
    return any(line.lstrip("- \t").startswith("topology:") for line in text.splitlines())


def read_slurm_yaml(text: str) -> Topology:
    """Return the network that Slurm's file ``topology.yaml`` describes as the default topology of the cluster.

    Raises:
        InvalidInput: The text is not YAML, or does not describe a topology. The error names the line.
    """
    topologies = [_fields(item) for item in _items(_document(text))]
    if not topologies:
        raise InvalidInput(
            "line 1", text[:60], "must be a list with at least one topology, for example - topology: default"
        )
    chosen = next((each for each in topologies if _text(each.get("cluster_default")).lower() == "true"), topologies[0])
    name, kind = _text(chosen.get("topology")) or "slurm", _kind(chosen)
    others = ", ".join(_text(each.get("topology")) for each in topologies if each is not chosen)
    more = f"is not read, because {name} is the default of the cluster or the first in the file: {others[:100]}"
    found = _read_kind(kind, name, chosen[kind])
    return found if len(topologies) == 1 else replace(found, notes=(*found.notes, more))


def _read_kind(kind: str, name: str, node: yaml.Node) -> Topology:
    """Return the topology that the YAML node describes; the key above the node names the kind of topology."""
    if kind == "tree":
        return _tree(FileKind.SLURM_YAML, name, _yaml_switches(_field(node, "switches"), "switch"))
    if kind == "block":
        sizes = tuple(_whole(each) for each in _items(_field(node, "block_sizes")))
        return _blocks(FileKind.SLURM_YAML, name, _yaml_switches(_field(node, "blocks"), "block"), sizes)
    network = Network(name=name, source=FileKind.SLURM_YAML.value)
    return Topology(
        kind=FileKind.SLURM_YAML,
        network=network,
        notes=("the topology is flat: one switch between all nodes is assumed",),
    )


def _yaml_switches(node: yaml.Node, named: str) -> Iterator[_Switch]:
    known = (named, "nodes", "children")
    for item in _items(node):
        fields, where = _fields(item), f"line {_line(item)}"
        for field in fields:
            if field not in known:
                near = get_close_matches(field, known, 1, cutoff=0.4)
                raise InvalidInput(
                    where,
                    field,
                    f"is not a known field; the fields are {named}, nodes and children",
                    near[0] if near else None,
                )
        if not (name := _text(fields.get(named))):
            raise InvalidInput(f"{where}, {named}", None, f"is required, for example {named}: s0")
        nodes, children = (
            names_of(text, where) if (text := _text(fields.get(field))) else () for field in ("nodes", "children")
        )
        yield _Switch(name=name, number=_line(item), nodes=nodes, children=children)


def _kind(chosen: dict[str, yaml.Node]) -> str:
    kinds = [field for field in chosen if field not in ("topology", "cluster_default")]
    if len(kinds) == 1 and kinds[0] in _KINDS:
        return kinds[0]
    near = get_close_matches(kinds[0], _KINDS, 1, cutoff=0.4) if kinds else []
    number = _line(next(iter(chosen.values()))) if chosen else 1
    if len(kinds) == 1:
        raise InvalidInput(f"line {number}", kinds[0], f"must be one of {', '.join(_KINDS)}", *near)
    given = f"has {', '.join(kinds)}, but " if kinds else ""
    rule = f"{given}must have exactly one of the fields {', '.join(_KINDS)}"
    raise InvalidInput(f"line {number}", "topology", rule)


def _document(text: str) -> yaml.Node:
    """Return the root node of the YAML document, with line numbers.

    All values are read as texts, and anchors are not expanded.
    """
    depth = deepest = 0
    for each in text:
        depth += (each in "[{") - (each in "]}")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise InvalidInput("document", text[:60], f"must not have more than {_DEEPEST} levels of nested brackets")
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        rule = f"must be YAML: {getattr(error, 'problem', None) or 'it cannot be parsed'}"
        raise InvalidInput(f"line {mark.line + 1 if mark else 1}", text[:60], rule) from error
    if root is None:
        raise InvalidInput(
            "line 1", text[:60], "must be a list with at least one topology, for example - topology: default"
        )
    return root


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _items(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        raise InvalidInput(
            f"line {_line(node)}",
            _text(node)[:60],
            "must be a list with a dash before each item, for example - switch: s0",
        )
    items: list[yaml.Node] = node.value
    return items


def _fields(node: yaml.Node) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInput(
            f"line {_line(node)}", _text(node)[:60], "must be written as FIELD: VALUE, for example switch: s0"
        )
    return {_text(key): value for key, value in node.value}


def _field(node: yaml.Node, name: str) -> yaml.Node:
    fields = _fields(node)
    if name not in fields:
        near = get_close_matches(name, fields, 1, cutoff=0.4)
        rule = "is required" + (f"; rename the field {near[0]} to {name}" if near else "")
        raise InvalidInput(f"line {_line(node)}, {name}", None, rule)
    return fields[name]


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _whole(node: yaml.Node) -> int:
    text = _text(node)
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise InvalidInput(f"line {_line(node)}", text, "must be a number of nodes, for example 18")
    return int(text)
