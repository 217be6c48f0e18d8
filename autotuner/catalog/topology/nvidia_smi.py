"""What ``nvidia-smi topo -m`` prints: a matrix of what lies between the GPUs and the network ports of a node.

Its words, from the legend that it prints: NV# a set of # NVLinks, PIX at most one PCIe bridge, PXB several of them, PHB
a PCIe host bridge, NODE several of these in one NUMA node, SYS (SOC before driver 390) the link between NUMA nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

from autotuner.catalog.topology.partition import Partition
from autotuner.catalog.topology.ports import nearest_ports
from autotuner.catalog.topology.topology import MOST_NVLINKS, FileKind, Topology, mesh_note
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Groups, PortPath, Wiring

__all__ = ["is_nvidia_smi", "read_nvidia_smi"]

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d{1,3})$")
_NVLINKS = re.compile(r"NV(\d{1,3})$")
_PORT_NAME = re.compile(r"\s*(NIC\d{1,3}):\s*(\S{1,60})\s*$")

_BELOW_A_SWITCH = ("PIX", "PXB")
_IN_A_SOCKET = (*_BELOW_A_SWITCH, "PHB", "NODE")
_WORDS = ("X", *_IN_A_SOCKET, "SYS", "SOC")
_PATHS: Mapping[str, PortPath] = {"PIX": "pcie_switch", "PXB": "pcie_switch", "PHB": "host_bridge", "NODE": "numa_node"}

_Between: TypeAlias = Mapping[tuple[int | str, int | str], str]
"""The cell of two devices: GPUs by their numbers, others by their names."""

_MOST_DEVICES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A line of the matrix.

    Attributes:
        number: Of the line in the text, from 1.
        cells: What lies between its device and each device, in the order of the head.
        numa_nodes: Those that it is near, as the line has them; empty where it says none.
    """

    number: int
    cells: tuple[str, ...]
    numa_nodes: str


def is_nvidia_smi(text: str) -> bool:
    """Whether the text looks like the matrix."""
    return any(line.split()[:1] == ["GPU0"] for line in _STYLE.sub("", text).splitlines())


def read_nvidia_smi(text: str) -> Topology:
    """The wiring of the node whose matrix it is.

    Raises:
        InvalidInput: The matrix is not whole, or says what it does not know; with the line.
    """
    lines = _STYLE.sub("", text).splitlines()
    devices, rows = _matrix(lines)
    _require_symmetry(devices, rows)
    gpus = {device: int(found[1]) for device in devices if (found := _GPU.match(device))}
    if sorted(gpus.values()) != list(range(len(gpus))):
        raise InvalidInput("GPUs", sorted(gpus), f"must be numbered from 0 to {len(gpus) - 1}")
    between: _Between = {
        (gpus.get(one, one), gpus.get(other, other)): cell
        for one, row in rows.items()
        for other, cell in zip(devices, row.cells, strict=True)
    }
    numbers = range(len(gpus))
    nvlink_groups = _joined(between, _is_nvlink).groups(numbers)
    wiring = Wiring(
        name="nvidia-smi",
        nvlink_groups=nvlink_groups,
        switches=_joined(between, _BELOW_A_SWITCH.__contains__).groups(numbers),
        sockets=_sockets(between, {gpus[gpu]: rows[gpu].numa_nodes for gpu in gpus}),
        ports=nearest_ports(_port_paths(between, [each for each in devices if each not in gpus], numbers, lines)),
        source="nvidia-smi topo -m",
    )
    mesh_peers, notes = _mesh(between, nvlink_groups)
    return Topology(
        kind=FileKind.NVIDIA_SMI, wiring=wiring, num_accelerators=len(gpus), mesh_peers=mesh_peers, notes=notes
    )


def _matrix(lines: list[str]) -> tuple[list[str], dict[str, _Row]]:
    """Devices in the order of the head, and the line of each."""
    heads = (number for number, line in enumerate(lines) if line.split()[:1] == ["GPU0"])
    start = next((number for number in heads if "X" not in lines[number].split()), None)
    if start is None:
        raise InvalidInput("line 1", lines[0][:60] if lines else "", "must be a head with GPU0, GPU1 and so on")
    devices = lines[start].split("CPU Affinity")[0].split()
    if len(set(devices)) < len(devices) or len(devices) > _MOST_DEVICES:
        raise InvalidInput(f"line {start + 1}", lines[start][:60], "must name each device once, and no more than 256")
    rows = dict(_rows(lines[start + 1 :], devices, start + 2))
    for device in devices:
        if device not in rows:
            raise InvalidInput(f"line {start + 1}", device, "has no line of its own", next(iter(rows), None))
    return devices, rows


def _rows(lines: list[str], devices: list[str], first: int) -> Iterator[tuple[str, _Row]]:
    for number, line in enumerate(lines, first):
        words = line.split()
        if not words or words[0] not in devices:
            continue
        cells = tuple(words[1 : len(devices) + 1])
        if len(cells) < len(devices):
            raise InvalidInput(f"line {number}", line[:60], f"must have {len(devices)} cells behind its name")
        for cell in cells:
            if cell not in _WORDS and not _is_nvlink(cell):
                near = get_close_matches(cell.upper(), (*_WORDS, "NV4"), 1, cutoff=0.3)
                rule = f"must be one of {', '.join(_WORDS)} or NV with a number"
                raise InvalidInput(f"line {number}", cell, rule, near[0] if near else "SYS")
        rest = words[len(devices) + 1 :]
        yield words[0], _Row(number=number, cells=cells, numa_nodes=rest[1] if len(rest) > 1 else "")


def _require_symmetry(devices: list[str], rows: Mapping[str, _Row]) -> None:
    for place, one in enumerate(devices):
        for other_place, other in enumerate(devices):
            there, back = rows[one].cells[other_place], rows[other].cells[place]
            if there != back or (there == "X") != (one == other):
                rule = f"must be what {other} has for {one}" if one != other else "must be X, the device itself"
                raise InvalidInput(f"line {rows[one].number}", there, rule, back if one != other else "X")


def _is_nvlink(cell: str) -> bool:
    return _NVLINKS.match(cell) is not None


def _joined(between: _Between, joins: Callable[[str], bool]) -> Partition:
    """Devices, joined where the cell between them says so."""
    partition = Partition()
    for (one, other), cell in between.items():
        if joins(cell):
            partition.join(one, other)
    return partition


def _sockets(between: _Between, numa_nodes: Mapping[int, str]) -> Groups:
    """GPUs by NUMA node: as their lines say it, and as what is near to both says of those that NVLink joins."""
    partition = _joined(between, _IN_A_SOCKET.__contains__)
    for gpu, near in numa_nodes.items():
        if near.isdecimal():
            partition.join(gpu, f"NUMA node {near}")
    groups = partition.groups(numa_nodes, least=1)
    return groups if len(groups) > 1 else ()


def _port_paths(
    between: _Between, ports: list[str], numbers: range, lines: list[str]
) -> dict[str, dict[int, PortPath]]:
    """What lies between each port and each GPU, by the ports' names in the key that is printed below the matrix."""
    names = {found[1]: found[2] for line in lines if (found := _PORT_NAME.match(line))}
    return {
        names.get(port, port): {gpu: _PATHS.get(between[gpu, port], "sockets") for gpu in numbers} for port in ports
    }


def _mesh(between: _Between, groups: Groups) -> tuple[int, tuple[str, ...]]:
    """Others that each GPU has NVLinks of its own to, without a switch, and what is to be said of that."""
    counts = {count for group in groups for count in _links_within(between, group)}
    if 0 in counts:
        return 0, ("NVLink joins not each GPU with each: others pass on what is sent between some of them",)
    sizes = {len(group) for group in groups}
    if len(counts) != 1 or len(sizes) != 1:
        return 0, ()
    (num_links,), peers = counts, sizes.pop() - 1
    if peers < 2 or num_links * peers > MOST_NVLINKS:
        return 0, ()
    return peers, (mesh_note(num_links, peers),)


def _links_within(between: _Between, group: tuple[int, ...]) -> Iterator[int]:
    """How many NVLinks join each pair of a group."""
    for one in group:
        for other in group:
            if one != other:
                found = _NVLINKS.match(between[one, other])
                yield int(found[1]) if found else 0
