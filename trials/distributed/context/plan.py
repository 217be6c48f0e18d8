"""Context parallelism: attention over sequences that are split over ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from autotuner.core.choices import ContextExchange
from trials.batches.documents import WHOLE_ROWS, Documents
from trials.distributed.context.allgather_kv import all_gather_kv_attention
from trials.distributed.context.block_attention import BlockKernel, block_kernel
from trials.distributed.context.ring import ring_attention
from trials.distributed.context.ulysses import ulysses_attention
from trials.distributed.context.zigzag import ContextPart
from trials.distributed.mesh import Grid
from trials.model.attention import AttentionCore

_Blockwise = Callable[[Tensor, Tensor, Tensor, BlockKernel, ContextPart, ProcessGroup], Tensor]


def context_part(grid: Grid) -> ContextPart:
    """What this rank holds of every sequence."""
    return ContextPart(rank=grid.context_rank, num_ranks=grid.layout.context_parallel_degree)


def context_core(core: AttentionCore, grid: Grid, device: torch.device) -> AttentionCore:
    """The attention core of a rank that holds its part of every sequence; ``core`` attends to whole ones.

    Where heads are exchanged for tokens it is ``core`` that attends, else the blocks of the layout's kernel.
    """
    layout, part = grid.layout, context_part(grid)
    if layout.context_parallel_degree == 1:
        return core
    group = grid.context.get_group()
    if layout.context_exchange == ContextExchange.ALL_TO_ALL:
        return _of_whole_rows(partial(ulysses_attention, core=core, part=part, group=group))
    attend = ring_attention if layout.context_exchange == ContextExchange.RING else all_gather_kv_attention
    kernel = block_kernel(layout.attention_kernel, device)
    return _of_whole_rows(partial(_by_blocks, attend=attend, kernel=kernel, part=part, group=group))


def _of_whole_rows(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> AttentionCore:
    """A core for rows that are one sequence each."""

    def core(q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor, documents: Documents = WHOLE_ROWS, /) -> Tensor:
        assert not documents, "packing needs whole sequences, says a rule"
        return attend(q_BSHE, k_BSKE, v_BSKE)

    return core


def _by_blocks(
    q_BSHE: Tensor,
    k_BSKE: Tensor,
    v_BSKE: Tensor,
    *,
    attend: _Blockwise,
    kernel: BlockKernel,
    part: ContextPart,
    group: ProcessGroup,
) -> Tensor:
    q_BHSE, k_BKSE, v_BKSE = (x.transpose(1, 2) for x in (q_BSHE, k_BSKE, v_BSKE))
    return attend(q_BHSE, k_BKSE, v_BKSE, kernel, part, group).transpose(1, 2)
