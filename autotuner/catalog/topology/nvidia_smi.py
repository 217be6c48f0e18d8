"""Reader of the output of ``nvidia-smi topo -m``: a matrix of the connections of GPUs and network ports of a node.

Its words, from the legend that the command prints: NV# means # NVLinks, PIX at most one PCIe bridge, PXB several PCIe
bridges, PHB a PCIe host bridge, NODE several host bridges in one NUMA node, SYS (SOC before driver 390) the link
between NUMA nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import permutations
from typing import TypeAlias

from autotuner.catalog.topology.topology import FileKind, Topology, groups_of, nearest_ports, nvlink_mesh, sockets_of
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Groups, Port, PortPath, Wiring

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d{1,3})$")
_NVLINKS = re.compile(r"NV(\d{1,3})$")
_PORT_NAME = re.compile(r"\s*(NIC\d{1,3}):\s*(\S{1,60})\s*$")

_BELOW_A_SWITCH = ("PIX", "PXB")
_IN_A_SOCKET = (*_BELOW_A_SWITCH, "PHB", "NODE")
_WORDS = ("X", *_IN_A_SOCKET, "SYS", "SOC")
_PATHS: Mapping[str, PortPath] = {"PIX": "pcie_switch", "PXB": "pcie_switch", "PHB": "host_bridge", "NODE": "numa_node"}

_Between: TypeAlias = Mapping[tuple[int | str, int | str], str]
"""Connections by pair of devices. A GPU is given by its number, another device by its name."""

_MOST_DEVICES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A line of the matrix, for one device."""

    number: int
    """Line number in the text, from 1."""
    cells: tuple[str, ...]
    """Connections of the line's device with each device, in the order of the header."""
    numa_nodes: str
    """NUMA nodes near the device, as the line states them; empty if it states none."""


def is_nvidia_smi(text: str) -> bool:
    """Return True if the text looks like the connection matrix that ``nvidia-smi topo -m`` prints."""
    return any(line.split()[:1] == ["GPU0"] for line in _STYLE.sub("", text).splitlines())


def read_nvidia_smi(text: str) -> Topology:
    """Return the wiring of the node that the connection matrix of ``nvidia-smi topo -m`` describes.

    Args:
        text: Output of the command. Lines around the matrix are allowed.

    Raises:
        InvalidInput: The matrix is incomplete, or has unknown words. The error names the line.
    """
    lines = _STYLE.sub("", text).splitlines()
    devices, rows = _matrix(lines)
    _require_symmetry(devices, rows)
    gpus = {device: int(found[1]) for device in devices if (found := _GPU.match(device))}
    if sorted(gpus.values()) != list(range(len(gpus))):
        raise InvalidInput(
            "GPUs",
            sorted(gpus.values()),
            "must be all numbers of GPUs from 0 on without a gap; copy the whole output of `nvidia-smi topo -m`",
        )
    between: _Between = {
        (gpus.get(one, one), gpus.get(other, other)): cell
        for one, row in rows.items()
        for other, cell in zip(devices, row.cells, strict=True)
    }
    numbers = range(len(gpus))
    nvlink_groups = groups_of(_pairs(between, _is_nvlink), numbers)
    wiring = Wiring(
        name="nvidia-smi",
        nvlink_groups=nvlink_groups,
        switches=groups_of(_pairs(between, _BELOW_A_SWITCH.__contains__), numbers),
        sockets=sockets_of(_socket_pairs(between, {gpus[gpu]: rows[gpu].numa_nodes for gpu in gpus}), numbers),
        ports=_ports(between, [each for each in devices if each not in gpus], numbers, lines),
        source=FileKind.NVIDIA_SMI.value,
    )
    mesh_peers, notes = _mesh(between, nvlink_groups)
    return Topology(
        kind=FileKind.NVIDIA_SMI, wiring=wiring, num_accelerators=len(gpus), mesh_peers=mesh_peers, notes=notes
    )


def _matrix(lines: list[str]) -> tuple[list[str], dict[str, _Row]]:
    """Return the device names in the order of the header, and the line of each device."""
    heads = (number for number, line in enumerate(lines) if line.split()[:1] == ["GPU0"])
    start = next((number for number in heads if "X" not in lines[number].split()), None)
    if start is None:
        raise InvalidInput(
            "line 1",
            lines[0][:60] if lines else "",
            "must be the head of a table with the columns GPU0, GPU1 and so on",
        )
    devices = lines[start].split("CPU Affinity")[0].split()
    if len(set(devices)) < len(devices) or len(devices) > _MOST_DEVICES:
        raise InvalidInput(
            f"line {start + 1}", lines[start][:60], "must name each device once, and at most 256 devices"
        )
    rows = dict(_rows(lines[start + 1 :], devices, start + 2))
    for device in devices:
        if device not in rows:
            raise InvalidInput(
                f"line {start + 1}",
                device,
                "is a column of the table, but no line begins with this name; copy the whole table",
            )
    return devices, rows


def _rows(lines: list[str], devices: list[str], first: int) -> Iterator[tuple[str, _Row]]:
    for number, line in enumerate(lines, first):
        words = line.split()
        if not words or words[0] not in devices:
            continue
        cells = tuple(words[1 : len(devices) + 1])
        if len(cells) < len(devices):
            raise InvalidInput(
                f"line {number}", line[:60], f"must have {len(devices)} cells after the name of the device"
            )
        for cell in cells:
            if cell not in _WORDS and not _is_nvlink(cell):
                near = get_close_matches(cell.upper(), (*_WORDS, "NV4"), 1, cutoff=0.3)
                rule = f"must be one of {', '.join(_WORDS)}, or NV with a number such as NV18"
                raise InvalidInput(f"line {number}", cell, rule, near[0] if near else None)
        rest = words[len(devices) + 1 :]
        yield words[0], _Row(number=number, cells=cells, numa_nodes=rest[1] if len(rest) > 1 else "")


def _require_symmetry(devices: list[str], rows: Mapping[str, _Row]) -> None:
    for place, one in enumerate(devices):
        for other_place, other in enumerate(devices):
            there, back = rows[one].cells[other_place], rows[other].cells[place]
            if there != back or (there == "X") != (one == other):
                rule = (
                    f"must be the same from {one} to {other} as from {other} to {one}, because the table is symmetric"
                    if one != other
                    else "must be X, because a device has no link to itself"
                )
                raise InvalidInput(f"line {rows[one].number}", there, rule, back if one != other else "X")


def _is_nvlink(cell: str) -> bool:
    return _NVLINKS.match(cell) is not None


def _pairs(between: _Between, joins: Callable[[str], bool]) -> Iterator[tuple[object, object]]:
    """Yield the pairs of devices whose connection satisfies ``joins``."""
    return (pair for pair, cell in between.items() if joins(cell))


def _socket_pairs(between: _Between, numa_nodes: Mapping[int, str]) -> Iterator[tuple[object, object]]:
    """Yield pairs of a GPU with a device or a NUMA node of its socket.

    A device that is near two GPUs shows that both have the same socket, even if NVLink joins them.
    """
    yield from _pairs(between, _IN_A_SOCKET.__contains__)
    yield from ((gpu, f"NUMA node {near}") for gpu, near in numa_nodes.items() if near.isdecimal())


def _ports(between: _Between, devices: list[str], numbers: range, lines: list[str]) -> tuple[Port, ...]:
    """Return the ports that are nearest to some GPU.

    Their names are read from the legend below the matrix.
    """
    names = {found[1]: found[2] for line in lines if (found := _PORT_NAME.match(line))}
    paths = {each: {gpu: _PATHS.get(between[gpu, each], "sockets") for gpu in numbers} for each in devices}
    return nearest_ports({names.get(each, each): path for each, path in paths.items()})


def _mesh(between: _Between, groups: Groups) -> tuple[int, tuple[str, ...]]:
    """Return the number of peers of each GPU in an NVLink mesh, and a note.

    In a mesh, each GPU has as many NVLinks to every other one; otherwise the number is 0.
    """
    counts = {_num_nvlinks(between[pair]) for group in groups for pair in permutations(group, 2)}
    if 0 in counts:
        return 0, ("NVLink does not join every pair of GPUs: other GPUs forward the data of some pairs",)
    sizes = {len(group) for group in groups}
    if len(counts) != 1 or len(sizes) != 1:
        return 0, ()
    return nvlink_mesh(counts.pop(), sizes.pop() - 1)


def _num_nvlinks(cell: str) -> int:
    found = _NVLINKS.match(cell)
    return int(found[1]) if found else 0
