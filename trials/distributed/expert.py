"""Experts on several ranks: each tensor rank holds a part of every expert, or each expert rank holds whole experts.

Ranks that share the whole experts are neighbours: first tensor ranks, then context ranks, then data shards. Tokens are
sent to their experts and back. Ranks with the same position in different groups hold the same experts, and shard or
replicate them among each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, SequenceParallel

from autotuner.core.layout import Layout
from autotuner.trials.distributed.mesh import Grid, local_part
from autotuner.trials.model.experts import Compute, Experts, LocalExperts, count_on_host, inverse, permuted

# Collectives on plain tensors that return a new one and can be waited for later.
#
# They are the operations under ``torch.distributed._functional_collectives``, whose Python names change from version
# to version. The compiler can trace them, and a selective recomputation knows them.

_operations = torch.ops._c10d_functional


def all_gather(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """Gather the tensors of all ranks in the group, and return them concatenated along dim 0."""
    return wait(_operations.all_gather_into_tensor(tensor.contiguous(), group.size(), group.group_name))


def reduce_scatter(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """Sum a tensor over all ranks in the group, and return this rank's part of the sum along dim 0."""
    return wait(_operations.reduce_scatter_tensor(tensor.contiguous(), "sum", group.size(), group.group_name))


def start_all_to_all(tensor: Tensor, sent: Sequence[int], received: Sequence[int], group: ProcessGroup) -> Tensor:
    """Start an all-to-all: send rows to every rank in the group, and receive rows from every rank.

    Args:
        tensor: The rows to send, in the order of the receiving ranks.
        sent: Number of rows for each rank.
        received: Number of rows from each rank.
        group: The ranks that take part.

    Returns:
        The received rows, in the order of the sending ranks. They are valid after ``wait``.
    """
    begun: Tensor = _operations.all_to_all_single(tensor.contiguous(), received, sent, group.group_name)
    return begun


def all_to_all(tensor: Tensor, sent: Sequence[int], received: Sequence[int], group: ProcessGroup) -> Tensor:
    """Send rows to every rank in the group, and return the rows received, in the order of the sending ranks.

    Args:
        tensor: The rows to send, in the order of the receiving ranks.
        sent: Number of rows for each rank.
        received: Number of rows from each rank.
        group: The ranks that take part.
    """
    return wait(start_all_to_all(tensor, sent, received, group))


def wait(begun: Tensor) -> Tensor:
    """Wait for a collective that was started, and return its result."""
    result: Tensor = _operations.wait_tensor(begun)
    return result


def exchange(tensor: Tensor, sent: Sequence[int], received: Sequence[int], group: ProcessGroup) -> Tensor:
    """Do an ``all_to_all`` through which autograd can compute gradients.

    The backward pass sends the gradient of each row back to the rank from which the row came.

    Args:
        tensor: The rows to send, in the order of the receiving ranks.
        sent: Number of rows for each rank.
        received: Number of rows from each rank.
        group: The ranks that take part.
    """
    result: Tensor = _Exchange.apply(  # type: ignore[no-untyped-call]  # torch leaves it without types
        tensor, tuple(sent), tuple(received), group
    )
    return result


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, sent: tuple[int, ...], received: tuple[int, ...], group: ProcessGroup
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return all_to_all(tensor, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return all_to_all(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def local_experts(grid: Grid) -> LocalExperts:
    """Return the experts that this rank holds, with the function that sends tokens to the ranks of their experts."""
    layout = grid.layout
    if layout.expert_parallel_degree == 1:
        return LocalExperts(local_part=local_part)
    axis = grid.experts("expert")
    # see _ExpertRanks: the mean over ranks with the same experts counts each part of the tokens once per tensor rank
    scale = layout.tensor_parallel_degree / layout.expert_parallel_degree
    return LocalExperts(
        rank=axis.get_local_rank(),
        num_ranks=axis.size(),
        exchange=_ExpertRanks(axis.get_group(), scale),
        local_part=local_part,
    )


def experts_of(module: nn.Module) -> list[Experts]:
    """Return all submodules of a module that contain the matrices of experts."""
    return [part for part in module.modules() if isinstance(part, Experts)]


def spread_experts(layer: nn.Module, grid: Grid) -> None:
    """Turn the expert parameters of a layer into DTensors, because this rank holds only some of the experts.

    Without expert parallelism, nothing changes.
    """
    if grid.layout.expert_parallel_degree == 1:
        return
    for experts in experts_of(layer):
        for name, parameter in list(experts.named_parameters()):
            whole = DTensor.from_local(parameter.detach(), grid.experts("expert"), [Shard(0)], run_check=False)
            setattr(experts, name, nn.Parameter(whole))


class _ExpertRanks:
    """Sends each row to the rank of its expert and the result back; an ``ExpertExchange``.

    The loss of a rank is a mean over its own tokens, so that the gradient of an expert is a sum over the ranks of the
    group. Ranks with the same experts then average this gradient. The correct gradient is the sum over all of them
    divided by the number of losses, which is ``gradient_scale`` times the average. Therefore the gradient that enters
    the experts' backward pass is multiplied by this factor, and the gradient of the rows that leaves it is divided by
    the factor again.
    """

    def __init__(self, group: ProcessGroup, gradient_scale: float) -> None:
        self._group = group
        self._gradient_scale = gradient_scale

    def __call__(self, x_AD: Tensor, counts_N: Tensor, compute: Compute) -> Tensor:
        """Send the rows to the ranks of their experts, compute there, and return the results in the rows' order."""
        num_ranks = self._group.size()
        each = [len(counts_N) // num_ranks] * num_ranks
        coming = all_to_all(counts_N, each, each, self._group).view(num_ranks, -1)  # of each rank, for each expert here
        totals = torch.cat((counts_N.view(num_ranks, -1).sum(1), coming.sum(1)))
        numbers = count_on_host(totals, total=2 * len(x_AD))  # without values as many rows come as go
        sent, received = numbers[:num_ranks], numbers[num_ranks:]
        rows = exchange(x_AD, sent, received, self._group)
        order = _by_expert(coming, len(rows))
        back = inverse(order)
        rows = _scaled(permuted(rows, order, back), 1 / self._gradient_scale)
        answers = _scaled(compute(rows, coming.sum(0)), self._gradient_scale)
        return exchange(permuted(answers, back, order), received, sent, self._group)


def _by_expert(counts: Tensor, num_rows: int) -> Tensor:
    """Return the order that sorts received rows by expert; they arrive rank by rank, and by expert for each rank."""
    experts = torch.arange(counts.shape[1], device=counts.device).repeat(counts.shape[0])
    return experts.repeat_interleave(counts.flatten(), output_size=num_rows).argsort(stable=True)


def _scaled(rows: Tensor, scale: float) -> Tensor:
    """Return the rows unchanged; their gradients are multiplied by ``scale``."""
    result: Tensor = _Scaled.apply(rows, scale)  # type: ignore[no-untyped-call]  # torch leaves it without types
    return result


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient * ctx.scale, None


def routed_plan(layout: Layout, path: str) -> dict[str, ParallelStyle]:
    """Return how DTensor splits a mixture of experts over the tensor ranks, as a parallel style for each submodule.

    Without expert parallelism, each tensor rank holds columns and rows of the matrices of all experts. Each rank sees
    all tokens, and routes them as the other ranks do. Its outputs and all gradients that it computes, including the
    gradient of the router, must be summed over the tensor ranks. With expert parallelism, a rank holds whole experts
    and routes only the tokens of its part of the sequence. The gradient of the router must be summed in this case, too.

    Args:
        layout: The layout of the trial.
        path: Name of the mixture of experts as a submodule of its layer.
    """
    between: Placement = Shard(1) if layout.sequence_parallel else Replicate()
    router = SequenceParallel(sequence_dim=0, use_local_output=True)
    if layout.expert_parallel_degree == 1:
        tokens = _Tokens(outside=between, inside=Replicate(), gradient=Partial(), answers=Partial())
        return {path: tokens, f"{path}.router": router, f"{path}.experts": _SplitMatrices()}
    part = Shard(1)
    return {path: _Tokens(outside=between, inside=part, gradient=part, answers=part), f"{path}.router": router}


class _Tokens(ParallelStyle):
    """Changes the placement of a module's input tokens, and changes that of its outputs back."""

    def __init__(self, *, outside: Placement, inside: Placement, gradient: Placement, answers: Placement) -> None:
        super().__init__()
        self._outside, self._inside = [outside], [inside]
        self._gradient, self._answers = [gradient], [answers]

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def enter(_: nn.Module, inputs: tuple[Any, ...]) -> Tensor:
            (x,) = inputs
            whole = x if isinstance(x, DTensor) else DTensor.from_local(x, device_mesh, self._outside, run_check=False)
            return whole.redistribute(placements=self._inside).to_local(grad_placements=self._gradient)

        def leave(_: nn.Module, _inputs: object, answers: Tensor) -> Tensor:
            whole = DTensor.from_local(answers, device_mesh, self._answers, run_check=False)
            return whole.redistribute(placements=self._outside).to_local()

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
        return module


class _SplitMatrices(ParallelStyle):
    """Splits the first matrices of every expert by rows of the output, and its last matrix by columns of the input."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters()):
            split = Shard(2 if name == "down" else 1)
            part = distribute_tensor(parameter.detach(), device_mesh, [split], src_data_rank=None)
            setattr(module, name, nn.Parameter(part))
        return module
