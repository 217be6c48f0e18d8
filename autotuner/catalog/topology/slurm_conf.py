"""Slurm's ``topology.conf``: lines of ``SwitchName=s0 Nodes=node[0-15]`` or ``BlockName=b0 Nodes=node[01-18]``.

topology.conf(5) of Slurm 25.05: names of parameters count in any case, ``#`` begins a comment, LinkSpeed is in units of
the reader's choice and used for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from autotuner.catalog.topology.host_lists import names_of
from autotuner.catalog.topology.switch_tree import Switch, blocks_topology, tree_topology
from autotuner.catalog.topology.topology import FileKind, Topology
from autotuner.core.errors import InvalidInput

__all__ = ["is_slurm_conf", "read_slurm_conf"]

_PARAMETERS = ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes")
_BY_LOWER = {name.lower(): name for name in _PARAMETERS}
_BEGINS = re.compile(r"^\s*(?:SwitchName|BlockName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)


def is_slurm_conf(text: str) -> bool:
    """Whether the text looks like one."""
    return _BEGINS.search(text) is not None


def read_slurm_conf(text: str) -> Topology:
    """The network that the lines describe.

    Raises:
        InvalidInput: A line says what Slurm does not know, or switches make no tree; with the line.
    """
    lines = [(number, _parameters(number, line)) for number, line in _lines(text)]
    switches = [line for line in lines if "SwitchName" in line[1]]
    blocks = [line for line in lines if "BlockName" in line[1]]
    if switches and blocks:
        number, told = blocks[0]
        rule = "must not be in one file with switches: Slurm reads the ones or the others"
        raise InvalidInput(f"line {number}", told["BlockName"], rule)
    if not blocks:
        return tree_topology(FileKind.SLURM_CONF, "slurm", (_switch("SwitchName", *line) for line in switches))
    sizes = [_sizes(number, told["BlockSizes"]) for number, told in lines if "BlockSizes" in told]
    found = (_switch("BlockName", *line) for line in blocks)
    return blocks_topology(FileKind.SLURM_CONF, "slurm", found, sizes[-1] if sizes else ())


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, with the numbers of the first of those that a backslash joins."""
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        said = line.partition("#")[0].rstrip()
        begun, first = begun + said.removesuffix("\\"), first or number
        if said.endswith("\\"):
            continue
        if begun.strip():
            yield first, begun.strip()
        begun, first = "", 0
    if begun.strip():
        yield first, begun.strip()


def _parameters(number: int, line: str) -> dict[str, str]:
    told: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        name = _BY_LOWER.get(key.lower())
        if not equals or name is None:
            near = get_close_matches(key, _PARAMETERS, 1, cutoff=0.4)
            rule = f"must be one of {', '.join(_PARAMETERS)}, each with = and a value"
            raise InvalidInput(f"line {number}", word, rule, near[0] if near else None)
        if name in told or not value:
            raise InvalidInput(f"line {number}", word, "must be said once, with a value")
        told[name] = value
    if not told.keys() & {"SwitchName", "BlockName", "BlockSizes"}:
        rule = "must name a switch or a block"
        raise InvalidInput(f"line {number}", line[:60], rule, f"SwitchName=s0 {line[:30]}")
    return told


def _switch(named: str, number: int, told: Mapping[str, str]) -> Switch:
    nodes, children = (
        names_of(told[parameter], f"line {number}") if parameter in told else () for parameter in ("Nodes", "Switches")
    )
    return Switch(name=told[named], number=number, nodes=nodes, children=children)


def _sizes(number: int, said: str) -> tuple[int, ...]:
    """Of one size, all that are powers of two of it are meant; they change nothing that is predicted."""
    parts = said.split(",")
    if not all(part.isascii() and part.isdigit() and 0 < len(part) < 7 for part in parts):
        raise InvalidInput(f"line {number}", said, "must be numbers of nodes", "18,36")
    return tuple(map(int, parts))
