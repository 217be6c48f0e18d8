"""The grid of ranks, one axis per kind of parallelism in ``Layout``'s order, and which layers a stage holds."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from autotuner.domain.layout import Layout

__all__ = ["AXES", "Grid", "stage_layers"]

AXES = ("pp", "dp_replicate", "dp_shard", "tp")
"""Outermost first: neighbours in the tensor group are neighbours in rank, so they share a node."""


class Grid:
    """The ranks of a layout as a mesh, and where this rank lies on it."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.layout = layout
        self._mesh: DeviceMesh = init_device_mesh(
            device.type,
            (
                layout.pipeline_parallel_degree,
                layout.data_parallel_replicate_degree,
                layout.data_parallel_shard_degree,
                layout.tensor_parallel_degree,
            ),
            mesh_dim_names=AXES,
        )

    def axis(self, *names: str) -> DeviceMesh:
        """The part of the mesh along these axes that this rank belongs to."""
        return self._mesh[names]

    def position(self, name: str) -> int:
        """Index of this rank on an axis."""
        return self._mesh.get_local_rank(name)

    @property
    def replica(self) -> int:
        """Index of the batch slice this rank works on; the replicate axis is the outer one."""
        return self.position("dp_replicate") * self.layout.data_parallel_shard_degree + self.position("dp_shard")

    @property
    def is_first_stage(self) -> bool:
        """This rank embeds the tokens."""
        return self.position("pp") == 0

    @property
    def is_last_stage(self) -> bool:
        """This rank computes logits and loss."""
        return self.position("pp") == self.layout.pipeline_parallel_degree - 1


def stage_layers(num_layers: int, num_stages: int, stage: int) -> range:
    """Layers of a stage: as even as they come, the odd ones on the earliest stages.

    The last stage multiplies by the vocabulary as well, so it is the last to get one more.
    """
    share, extra = divmod(num_layers, num_stages)
    start = stage * share + min(stage, extra)
    return range(start, start + share + (stage < extra))
