"""The grid of ranks, one axis per kind of parallelism in ``Layout``'s order."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy, GradientSync
from autotuner.core.layout import Layout
from autotuner.core.placement import Nodes, places, rank_at
from autotuner.training.communicator import Communicator, TorchCommunicator
from autotuner.training.two_level import communicator_of


class Grid:
    """The device mesh of a layout, with the position of this rank on each axis.

    Ranks are numbered with the tensor axis innermost, then context, data shard, data replicate, and pipeline outermost.
    So the ranks of a tensor group have consecutive numbers and share a node. The layout may swap the two outermost
    axes. It may also rotate the pipeline, which assigns the stages to other ranks of the pipeline. Context ranks have
    the same parameters and different tokens, so parameters are sharded over them as well. Therefore the axis ``shard``
    combines the data shard axis and the context axis. DTensor needs ``shard`` and the tensor axis on one mesh, so the
    context axis alone is on a separate mesh.
    """

    def __init__(self, layout: Layout, device: torch.device, nodes: Nodes | None = None) -> None:
        """Make the mesh. Without ``nodes``, data-parallel ranks communicate as if all of them were on one node."""
        self.layout = layout
        stages, replicas = layout.pipeline_parallel_degree, layout.data_parallel_replicate_degree
        shards = layout.data_parallel_shard_degree * layout.context_parallel_degree
        self.device = device
        self._pipeline: dist.ProcessGroup | None = None
        self._own_replica: dist.ProcessGroup | None = None
        self._mesh = self._of(pp=stages, dp_replicate=replicas, shard=shards, tp=layout.tensor_parallel_degree)
        self._context = self._replicas = self._experts = None
        if layout.context_parallel_degree > 1:
            outside = stages * layout.data_parallel_degree
            cp, tp = layout.context_parallel_degree, layout.tensor_parallel_degree
            self._context = self._of(outside=outside, cp=cp, inside=tp)
            self._replicas = self._of(outside=stages, replicas=replicas * shards, inside=tp)

        if (num_expert_ranks := layout.expert_parallel_degree) > 1:
            same = shards * layout.tensor_parallel_degree // num_expert_ranks
            self._experts = self._of(pp=stages, dp_replicate=replicas, expert_shard=same, expert=num_expert_ranks)

        if layout.stage_rotation:
            self._pipeline = _rotated_pipeline(layout)
        if not self.sums_over_replicas:
            self._own_replica = _own_replica(layout)
        self._communicators = {} if nodes is None else self._of_own_collectives(nodes)

    def axis(self, *names: str) -> DeviceMesh:
        """Return the submesh with this rank along the named axes (``pp``, ``dp_replicate``, ``shard``, ``tp``)."""
        return self._mesh[names]

    def experts(self, *names: str) -> DeviceMesh:
        """Return the submesh with this rank along the named axes (``dp_replicate``, ``expert_shard``, ``expert``).

        The axes exist only with expert parallelism. Ranks along ``expert`` have consecutive numbers and hold different
        experts. Ranks along ``expert_shard`` hold the same experts.
        """
        assert self._experts is not None
        return self._experts[names]

    @property
    def pipeline(self) -> dist.ProcessGroup:
        """The process group of this rank's pipeline, in the order of its stages."""
        return self._mesh["pp"].get_group() if self._pipeline is None else self._pipeline

    @property
    def context(self) -> DeviceMesh:
        """The mesh of the ranks that split sequences with this rank. It exists only with context parallelism."""
        assert self._context is not None
        return self._context["cp"]

    @property
    def sums_over_replicas(self) -> bool:
        """True if replicas sum their whole gradients in every step.

        It is False if they exchange only a part of the gradients, or average their parameters every few steps.
        """
        return self.layout.gradient_sync == GradientSync.FULL

    @property
    def replicas(self) -> DeviceMesh:
        """The mesh of the ranks that hold the same parameters as this rank and sum gradients with it.

        These ranks work on different tokens. The mesh exists only if no parameters are sharded over data-parallel
        ranks.
        """
        assert self.layout.data_parallel_shard_degree == 1
        if not self.sums_over_replicas:
            return self._mesh["shard"]
        return self._mesh["dp_replicate"] if self._replicas is None else self._replicas["replicas"]

    @property
    def gradient(self) -> dist.ProcessGroup:
        """The process group of the ranks that together hold the gradient of one copy of the model.

        It consists of all ranks of the job if replicas sum their whole gradients, else of the ranks of one replica.
        """
        whole = dist.group.WORLD if self._own_replica is None else self._own_replica
        assert whole is not None
        return whole

    def communicator(self, axis: DeviceMesh) -> Communicator:
        """Return the object that sums gradients and gathers parameters over the data-parallel ranks along an axis."""
        found = self._communicators.get(tuple(axis.mesh.tolist()))
        return TorchCommunicator(axis.get_group()) if found is None else found

    @property
    def has_own_collectives(self) -> bool:
        """True if at least one communicator of the grid is our own implementation and not torch's."""
        return bool(self._communicators)

    def _of_own_collectives(self, nodes: Nodes) -> dict[tuple[int, ...], Communicator]:
        """Return our own communicators, by the ranks that they connect; every rank creates those of all axes."""
        layout = self.layout
        algorithm = CollectiveAlgorithm.AUTO if self.device.type == "cuda" else layout.collective_algorithm
        if layout.collective_hierarchy == CollectiveHierarchy.FLAT and algorithm == CollectiveAlgorithm.AUTO:
            return {}
        found: dict[tuple[int, ...], Communicator] = {}
        for partition in self._data_parallel_axes():
            communicator = communicator_of(
                partition, nodes, hierarchy=layout.collective_hierarchy, algorithm=algorithm, device=self.device
            )
            found[next(ranks for ranks in partition if dist.get_rank() in ranks)] = communicator
        return found

    def _data_parallel_axes(self) -> list[tuple[tuple[int, ...], ...]]:
        """Return the groups of each axis along which ranks read different tokens with the same parameters.

        Axes with a single rank per group are left out.
        """
        axes = [_groups(self._mesh, name) for name in ("dp_replicate", "shard")]
        if self._replicas is not None:
            axes.append(_groups(self._replicas, "replicas"))
        if self._experts is not None:
            axes.append(_groups(self._experts, "expert_shard"))
        return [groups for groups in dict.fromkeys(axes) if len(groups[0]) > 1]

    def _of(self, **degrees: int) -> DeviceMesh:
        """Return a mesh with other axes over the same ranks.

        Along ``pp``, ranks are in the order of the job, not rotated.
        """
        unrotated = replace(self.layout, stage_rotation=0)
        ranks = torch.tensor([rank_at(unrotated, place) for place in places(unrotated)], dtype=torch.int)
        return DeviceMesh(self.device.type, ranks.view(*degrees.values()), mesh_dim_names=tuple(degrees))

    def position(self, name: str) -> int:
        """Return the index of this rank along an axis (``pp``, ``dp_replicate``, ``shard`` or ``tp``)."""
        if name == "pp":
            return dist.get_rank(self.pipeline)
        return self._mesh.get_local_rank(name)

    @property
    def context_rank(self) -> int:
        """The index of this rank among the ranks that together hold a sequence."""
        return self.position("shard") % self.layout.context_parallel_degree

    @property
    def data_parallel_rank(self) -> int:
        """The index of this rank's slice of the global batch.

        The index counts along the data shard axis first, then along the data replicate axis.
        """
        data_shard = self.position("shard") // self.layout.context_parallel_degree
        return self.position("dp_replicate") * self.layout.data_parallel_shard_degree + data_shard

    @property
    def num_losses(self) -> int:
        """The number of ranks that hold the same stage, work on different tokens and sum their gradients.

        Each of these ranks computes the loss of a part of the batch.
        """
        replicas = self.layout.data_parallel_replicate_degree if self.sums_over_replicas else 1
        return replicas * self.layout.data_parallel_shard_degree * self.layout.context_parallel_degree


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a DTensor, without a copy; return any other tensor unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _groups(mesh: DeviceMesh, name: str) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of every group along an axis of a mesh, including the groups without this rank."""
    assert mesh.mesh_dim_names is not None
    axis = mesh.mesh_dim_names.index(name)
    return tuple(tuple(ranks) for ranks in mesh.mesh.movedim(axis, -1).reshape(-1, mesh.size(axis)).tolist())


def _rotated_pipeline(layout: Layout) -> dist.ProcessGroup:
    """Return this rank's pipeline as a group in the order of its stages; a mesh would use the order of the job."""
    own = None
    for place in places(layout):
        if place.stage == 0:
            ranks = [rank_at(layout, place._replace(stage=i)) for i in range(layout.pipeline_parallel_degree)]
            group = dist.new_group(ranks, sort_ranks=False)  # every rank of the job has to hear of every group
            own = group if dist.get_rank() in ranks else own
    assert isinstance(own, dist.ProcessGroup)  # every rank is in one
    return own


def _own_replica(layout: Layout) -> dist.ProcessGroup:
    """Return the group of ranks that train one copy of the model together with this rank."""
    own = None
    for number in range(layout.data_parallel_replicate_degree):
        ranks = [rank_at(layout, place) for place in places(layout) if place.replica == number]
        group = dist.new_group(sorted(ranks))  # every rank of the job has to hear of every group
        own = group if dist.get_rank() in ranks else own
    assert isinstance(own, dist.ProcessGroup)  # every rank is in one
    return own
