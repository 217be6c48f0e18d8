"""Slurm's ``topology.yaml``: a list of topologies, each a tree of switches, blocks of nodes, or flat.

topology.yaml(5) of Slurm 25.05. The one that is the cluster's default is read, else the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

import yaml

from autotuner.catalog.topology.host_lists import names_of
from autotuner.catalog.topology.switch_tree import Switch, blocks_topology, tree_topology
from autotuner.catalog.topology.topology import FileKind, Topology
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Network

__all__ = ["is_slurm_yaml", "read_slurm_yaml"]

_KINDS = ("tree", "block", "flat")

_DEEPEST = 20
"""Brackets in brackets; the parser takes long for many more, and no file has more than a handful."""


def is_slurm_yaml(text: str) -> bool:
    """Whether the text looks like one."""
    return any(line.lstrip("- \t").startswith("topology:") for line in text.splitlines())


def read_slurm_yaml(text: str) -> Topology:
    """The network of the cluster's default topology.

    Raises:
        InvalidInput: It is no YAML, or describes no topology; with the line.
    """
    topologies = [_fields(item) for item in _items(_document(text))]
    if not topologies:
        raise InvalidInput("line 1", text[:60], "must be a list with a topology", "- topology: default")
    chosen = next((each for each in topologies if _text(each.get("cluster_default")).lower() == "true"), topologies[0])
    name, kind = _text(chosen.get("topology")) or "slurm", _kind(chosen)
    others = ", ".join(_text(each.get("topology")) for each in topologies if each is not chosen)
    more = f"not read of the file, as {name} is the cluster's default or its first: {others[:100]}"
    found = _read(kind, name, chosen[kind])
    if len(topologies) == 1:
        return found
    return Topology(kind=found.kind, network=found.network, nodes=found.nodes, notes=(*found.notes, more))


def _read(kind: str, name: str, node: yaml.Node) -> Topology:
    """One topology, by what is below the name of its kind."""
    match kind:
        case "tree":
            switches = _switches(_field(node, "switches"), "switch")
            return tree_topology(FileKind.SLURM_YAML, name, switches)
        case "block":
            sizes = tuple(_whole(each) for each in _items(_field(node, "block_sizes")))
            return blocks_topology(FileKind.SLURM_YAML, name, _switches(_field(node, "blocks"), "block"), sizes)
    network = Network(name=name, source=FileKind.SLURM_YAML.in_words)
    return Topology(kind=FileKind.SLURM_YAML, network=network, notes=("flat: one switch between all nodes",))


def _switches(node: yaml.Node, named: str) -> Iterator[Switch]:
    for item in _items(node):
        fields, where = _fields(item), f"line {_line(item)}"
        for field in fields:
            if field not in (named, "nodes", "children"):
                near = get_close_matches(field, (named, "nodes", "children"), 1, cutoff=0.4)
                raise InvalidInput(where, field, f"must be {named}, nodes or children", near[0] if near else named)
        if not (name := _text(fields.get(named))):
            raise InvalidInput(where, sorted(fields), f"must have a name: {named}", f"{named}: s0")
        nodes, children = (
            names_of(said, where) if (said := _text(fields.get(field))) else () for field in ("nodes", "children")
        )
        yield Switch(name=name, number=_line(item), nodes=nodes, children=children)


def _kind(chosen: dict[str, yaml.Node]) -> str:
    kinds = [field for field in chosen if field not in ("topology", "cluster_default")]
    if len(kinds) == 1 and kinds[0] in _KINDS:
        return kinds[0]
    near = get_close_matches(kinds[0], _KINDS, 1, cutoff=0.4) if kinds else []
    number = _line(next(iter(chosen.values()))) if chosen else 1
    raise InvalidInput(f"line {number}", kinds, f"must be one of {', '.join(_KINDS)}", near[0] if near else "tree")


# ---------------------------------------------------------------- YAML with its lines
def _document(text: str) -> yaml.Node:
    """The root of the document; nothing is made of it but text, and what is said once by an anchor is not repeated."""
    if max(_depths(text), default=0) > _DEEPEST:
        raise InvalidInput("document", text[:60], f"must not have more than {_DEEPEST} brackets in brackets")
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        rule = f"must be YAML: {getattr(error, 'problem', None) or 'it cannot be parsed'}"
        raise InvalidInput(f"line {mark.line + 1 if mark else 1}", text[:60], rule) from error
    if root is None:
        raise InvalidInput("line 1", text[:60], "must be a list with a topology", "- topology: default")
    return root


def _depths(text: str) -> Iterator[int]:
    depth = 0
    for each in text:
        depth += (each in "[{") - (each in "]}")
        yield depth


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _items(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        raise InvalidInput(f"line {_line(node)}", _text(node)[:60], "must be a list, items behind dashes", "- x")
    items: list[yaml.Node] = node.value
    return items


def _fields(node: yaml.Node) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInput(f"line {_line(node)}", _text(node)[:60], "must be fields with their values", "topology: x")
    return {_text(key): value for key, value in node.value}


def _field(node: yaml.Node, name: str) -> yaml.Node:
    fields = _fields(node)
    if name not in fields:
        near = get_close_matches(name, fields, 1, cutoff=0.4)
        rule = f"must have {name}" + (f", which is not {near[0]}" if near else "")
        raise InvalidInput(f"line {_line(node)}", sorted(fields), rule, name)
    return fields[name]


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _whole(node: yaml.Node) -> int:
    said = _text(node)
    if not (said.isascii() and said.isdigit() and len(said) < 7):
        raise InvalidInput(f"line {_line(node)}", said, "must be a number of nodes", 18)
    return int(said)
