"""What NCCL is told of a layout."""

from __future__ import annotations

from autotuner.domain.layouts.choice import CollectiveAlgorithm, CollectiveProtocol
from autotuner.domain.layouts.layout import Layout

__all__ = ["collective_environment"]

_NCCL_ALGORITHMS = {
    CollectiveAlgorithm.RING: "ring",
    CollectiveAlgorithm.TREE: "tree",
    CollectiveAlgorithm.NVLS: "nvls,nvlstree",  # inside a node, and where a group lies on several
    CollectiveAlgorithm.COLLNET: "collnetdirect,collnetchain",  # whichever the node's wires allow
}
"""Names of NCCL 2.24 and later, which also lets one function be named, so that gathers stay free."""


def collective_environment(layout: Layout) -> dict[str, str]:
    """The variables by which NCCL communicates as the layout says, read when the process group starts.

    What is left to NCCL sets none, so that an operator's own variables hold.
    """
    variables: dict[str, str] = {}
    if layout.collective_algorithm != CollectiveAlgorithm.AUTO:
        variables["NCCL_ALGO"] = f"allreduce:{_NCCL_ALGORITHMS[layout.collective_algorithm]}"
    if layout.collective_protocol != CollectiveProtocol.AUTO:
        variables["NCCL_PROTO"] = layout.collective_protocol.label
    if layout.collective_channels:
        variables |= dict.fromkeys(("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), str(layout.collective_channels))
    return variables
