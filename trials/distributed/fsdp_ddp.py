"""Data parallelism of a rank's part of the model: replicas, shards, or both."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel

from autotuner.core.choices import GradientClip, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.stages import ONE_STAGE_SCHEDULES
from autotuner.core.units import MIB
from autotuner.training.communicator import Communicator
from autotuner.trials.distributed.expert import experts_of
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.model.experts import Experts

# FSDP2's collectives in our own hands: gathers, reduce-scatters, and what replicas of shards sum.


class _Allocates:
    """Allocates memory as torch does."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return an uninitialised tensor for a collective's input or output."""
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Allocates):
    """An ``AllGather`` for ``torch.distributed.fsdp``.

    The communicator uses its own group and ignores the given one.
    """

    def __init__(self, shards: Communicator) -> None:
        self._shards = shards

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        del group, async_op
        self._shards.all_gather(output_tensor, input_tensor).wait()


class _ReduceScatter(_Allocates):
    """A ``ReduceScatter`` for ``torch.distributed.fsdp`` that only computes sums."""

    def __init__(self, shards: Communicator) -> None:
        self._shards = shards

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> None:
        del group, async_op
        assert op == dist.ReduceOp.SUM, op
        self._shards.reduce_scatter(output_tensor, input_tensor).wait()


def communicate_by(module: FSDPModule, shards: Communicator, replicas: Communicator | None) -> None:
    """Make an FSDP module use our communicators to gather parameters, to reduce gradients and to sum over replicas.

    The result is a mean: FSDP divides the sum over shards, and each gradient is divided by the number of replicas
    before it is summed over replicas. FSDP waits for these collectives in the same way as for its own.

    Args:
        module: The sharded module.
        shards: Communicates among the ranks over which the module's parameters are sharded.
        replicas: Sums over ranks that hold the same shard; None: there are no replicas.
    """
    module.set_custom_all_gather(_AllGather(shards))  # type: ignore[arg-type]  # torch asks for a subclass of its own
    module.set_custom_reduce_scatter(_ReduceScatter(shards))  # type: ignore[arg-type]
    module.set_force_sum_reduction_for_comms(enable=True)
    if replicas is not None:
        module.set_all_reduce_hook(partial(_average, replicas))


def _average(replicas: Communicator, reduced: Tensor) -> None:
    reduced /= replicas.size
    replicas.all_reduce(reduced).wait()


_FSDP_LEVELS = (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)


def shard(module: nn.Module, grid: Grid) -> None:
    """Apply FSDP2 to a module, or HSDP if the layout has several replicas of the shards.

    If the layout shards neither gradients nor parameters, nothing happens. Parameters are sharded over context ranks,
    too, because these ranks hold the same parameters and work on different tokens. If replicas do not sum their whole
    gradients in every step, each replica is sharded by itself, and FSDP does not know of the other replicas.
    """
    layout = grid.layout
    if layout.shard_level not in _FSDP_LEVELS:
        return
    # the logits of a tensor rank are a view of a DTensor; the warning is for those who write into them
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    _fully_shard(module, grid.axis, "shard", grid)


def shard_experts(layer: nn.Module, grid: Grid) -> None:
    """Shard the experts of a layer with FSDP2 over the ranks that hold the same experts. Call it before ``shard``.

    Without expert parallelism, nothing happens.
    """
    layout = grid.layout
    if layout.shard_level not in _FSDP_LEVELS or layout.expert_parallel_degree == 1:
        return
    hybrid = _is_hybrid(grid)
    if hybrid or grid.experts("expert_shard").size() > 1:
        for experts in experts_of(layer):
            _fully_shard(experts, grid.experts, "expert_shard", grid)


def _is_hybrid(grid: Grid) -> bool:
    return grid.layout.data_parallel_replicate_degree > 1 and grid.sums_over_replicas


def _fully_shard(module: nn.Module, axis: Callable[..., DeviceMesh], shards: str, grid: Grid) -> None:
    """Shard a module over an axis and sum over replicas, with FSDP's collectives or with our own."""
    layout, is_own = grid.layout, grid.has_own_collectives
    mesh = axis("dp_replicate", shards) if _is_hybrid(grid) and not is_own else axis(shards)
    sharded = fully_shard(
        module,
        mesh=mesh,
        reshard_after_forward=layout.reshard_after_forward,
        mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32 if layout.fp32_gradient_reduce else None),
        shard_placement_fn=_expert_dim(module, mesh) if isinstance(module, Experts) else None,
        ignored_params=_held_by_expert_ranks(module, grid),
    )
    if is_own:
        replicas = grid.communicator(axis("dp_replicate")) if _is_hybrid(grid) else None
        communicate_by(sharded, grid.communicator(axis(shards)), replicas)


def _expert_dim(experts: Experts, mesh: DeviceMesh) -> Callable[[nn.Parameter], Shard]:
    """Return how parameters are sharded: whole experts per shard if they divide evenly, else parts of each matrix."""
    dim = 1 if len(experts.indices) % mesh.size(-1) else 0
    return lambda parameter: Shard(dim)


def _held_by_expert_ranks(module: nn.Module, grid: Grid) -> set[nn.Parameter]:
    """Return the parameters of a module's experts if expert parallelism splits them over ranks, else none."""
    if grid.layout.expert_parallel_degree == 1 or isinstance(module, Experts):
        return set()
    return {parameter for experts in experts_of(module) for parameter in experts.parameters()}


def reshard(model: nn.Module) -> None:
    """Free the gathered parameters of a sharded model. The next forward pass gathers them again."""
    for module in _sharded_modules(model):
        module.reshard()


def replicated_or_sharded(part: nn.Module, grid: Grid) -> nn.Module:
    """Apply FSDP, DDP or neither to a part of the model, as the layout says, and return the part.

    If the layout shards, the layers inside the part must be sharded already. The part stays unchanged if flat gradient
    buckets (see ``optimizer_shards``) replace DDP, or if there is only one data-parallel rank.
    """
    layout = grid.layout
    shard(part, grid)
    if layout.shard_level == ShardLevel.GRADIENTS:
        for module in _sharded_modules(part):
            module.set_reshard_after_backward(reshard_after_backward=False)
    if layout.shard_level != ShardLevel.NONE or grid.num_losses == 1 or not _suits_ddp(part, layout):
        return part
    if layout.tensor_parallel_degree > 1:
        _pre_dp_module_transform(part)  # DDP reduces plain tensors, the forward gets its DTensors back
    return _replica(part, grid)


def _suits_ddp(part: nn.Module, layout: Layout) -> bool:
    """Return True if DistributedDataParallel (DDP) can reduce the gradients of this part.

    Its reducer needs a single backward pass at a time through one module, and does not recognise tied DTensors. It also
    does not recognise copies of a parameter on tensor ranks, which are only clipped alike in buckets of their own.
    """
    if layout.gradient_clip != GradientClip.POST or layout.pipeline_schedule not in ONE_STAGE_SCHEDULES:
        return False
    num_places = len(list(part.named_parameters(remove_duplicate=False)))
    ties = num_places > len(list(part.parameters()))
    return not (ties and layout.tensor_parallel_degree > 1)


def _replica(part: nn.Module, grid: Grid) -> DistributedDataParallel:
    return DistributedDataParallel(
        part,
        process_group=grid.replicas.get_group(),
        init_sync=False,  # the first values are equal by construction
        gradient_as_bucket_view=True,
        bucket_cap_mb=grid.layout.gradient_bucket_bytes / MIB,
    )


def _sharded_modules(model: nn.Module) -> Iterator[FSDPModule]:
    return (module for module in model.modules() if isinstance(module, FSDPModule))
