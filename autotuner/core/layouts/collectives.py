"""What NCCL is told of a layout."""

from __future__ import annotations

from autotuner.core.layouts.choice import CollectiveAlgorithm, CollectiveProtocol
from autotuner.core.layouts.layout import Layout

__all__ = ["collective_environment"]

_NCCL_ALGORITHMS = {
    CollectiveAlgorithm.RING: "ring",
    CollectiveAlgorithm.TREE: "tree",
    CollectiveAlgorithm.NVLS: "nvls,nvlstree",  # inside a node, and where a group lies on several
    CollectiveAlgorithm.COLLNET: "collnetdirect,collnetchain,ring",  # a group inside a node has only the last
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
    if layout.collective_algorithm == CollectiveAlgorithm.COLLNET:
        variables["NCCL_COLLNET_ENABLE"] = "1"  # off unless it is asked for
    if not layout.pxn:
        variables["NCCL_PXN_DISABLE"] = "1"
    if layout.queue_pairs > 1:
        variables["NCCL_IB_QPS_PER_CONNECTION"] = str(layout.queue_pairs)
        variables["NCCL_IB_SPLIT_DATA_ON_QPS"] = "1"  # since 2.20 whole messages take them in turn
    return variables
