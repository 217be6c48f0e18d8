"""Ports: which of a node's are nearest to which accelerator."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.core.network import Port, PortPath

__all__ = ["nearest_ports"]

_PATHS: tuple[PortPath, ...] = ("pcie_switch", "host_bridge", "numa_node", "sockets")
"""The nearest first."""


def nearest_ports(
    paths: Mapping[str, Mapping[int, PortPath]], bandwidths_bytes_per_s: Mapping[str, float | None] | None = None
) -> tuple[Port, ...]:
    """The ports that some accelerator has none nearer than, in the order of the accelerators that they are near to.

    A port that every accelerator has a nearer one than, as those of storage are, is none of the network's.

    Args:
        paths: Of each port by its name, what lies between it and each accelerator.
        bandwidths_bytes_per_s: Of each port, where they are told.
    """
    accelerators = next(iter(paths.values()), {})
    nearest = {each: min(_PATHS.index(path[each]) for path in paths.values()) for each in accelerators}
    told = bandwidths_bytes_per_s or {}
    ports = []
    for name, path in paths.items():
        near = tuple(each for each in accelerators if _PATHS.index(path[each]) == nearest[each])
        if near:
            ports.append(Port(name=name, nearest=near, path=path[near[0]], bandwidth_bytes_per_s=told.get(name)))
    return tuple(sorted(ports, key=lambda port: (port.nearest[0], _PATHS.index(port.path))))
