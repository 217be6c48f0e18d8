"""Expert parallelism: each of a group's ranks holds whole experts, and tokens travel to them and back.

The group's ranks are neighbours: tensor ranks first, then context ranks, then data shards. Ranks with the same place
in different groups hold the same experts, and shard or replicate them among each other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor, Shard

from trials.distributed.functional_collectives import all_to_all, exchange
from trials.distributed.mesh import Grid
from trials.model.counts import on_host
from trials.model.experts import ALL_EXPERTS, Compute, Experts, ExpertShare
from trials.model.reorder import inverse, reordered

__all__ = ["expert_share", "experts_of", "spread_experts"]


def expert_share(grid: Grid) -> ExpertShare:
    """The experts of this rank."""
    layout = grid.layout
    if layout.expert_parallel_degree == 1:
        return ALL_EXPERTS
    axis = grid.experts("expert")
    # see _ExpertRanks: the mean over ranks with the same experts counts each token share once per tensor rank
    scale = layout.tensor_parallel_degree / layout.expert_parallel_degree
    return ExpertShare(
        rank=axis.get_local_rank(), num_ranks=axis.size(), exchange=_ExpertRanks(axis.get_group(), scale)
    )


def experts_of(module: nn.Module) -> list[Experts]:
    """The experts in a module."""
    return [part for part in module.modules() if isinstance(part, Experts)]


def spread_experts(layer: nn.Module, grid: Grid) -> None:
    """Declare the experts that this rank holds a part of those there are."""
    if grid.layout.expert_parallel_degree == 1:
        return
    for experts in experts_of(layer):
        for name, parameter in list(experts.named_parameters()):
            whole = DTensor.from_local(parameter.detach(), grid.experts("expert"), [Shard(0)], run_check=False)
            setattr(experts, name, nn.Parameter(whole))


class _ExpertRanks:
    """Sends each row to the rank of its expert and what became of it back; an ``ExpertExchange``.

    An expert's gradient is thereby a sum over the group, each rank's loss being a mean over its own tokens; the ranks
    with the same experts then take the mean among each other. What is wanted is the sum over all of them, divided by
    the number of losses: ``gradient_scale`` times that mean. It scales what goes into the experts' backward pass, and
    what comes out of it for the rows is scaled back.
    """

    def __init__(self, group: ProcessGroup, gradient_scale: float) -> None:
        self._group = group
        self._gradient_scale = gradient_scale

    def __call__(self, x_AD: Tensor, counts_N: Tensor, compute: Compute) -> Tensor:
        """See ``ExpertExchange``."""
        num_ranks = self._group.size()
        each = [len(counts_N) // num_ranks] * num_ranks
        coming = all_to_all(counts_N, each, each, self._group).view(num_ranks, -1)  # of each rank, for each expert here
        totals = torch.cat((counts_N.view(num_ranks, -1).sum(1), coming.sum(1)))
        numbers = on_host(totals, total=2 * len(x_AD))  # without values as many rows come as go
        sent, received = numbers[:num_ranks], numbers[num_ranks:]
        rows = exchange(x_AD, sent, received, self._group)
        order = _by_expert(coming, len(rows))
        back = inverse(order)
        rows = _scaled(reordered(rows, order, back), 1 / self._gradient_scale)
        answers = _scaled(compute(rows, coming.sum(0)), self._gradient_scale)
        return exchange(reordered(answers, back, order), received, sent, self._group)


def _by_expert(counts: Tensor, num_rows: int) -> Tensor:
    """The order that brings rows that came rank by rank, each rank's by expert, to the order of the experts."""
    experts = torch.arange(counts.shape[1], device=counts.device).repeat(counts.shape[0])
    return experts.repeat_interleave(counts.flatten(), output_size=num_rows).argsort(stable=True)


def _scaled(rows: Tensor, scale: float) -> Tensor:
    """The rows themselves, whose gradients are multiplied."""
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
