"""Attention to gathered keys and values (arXiv 2407.21783, section 3.3.2): one collective, and nothing overlaps it.

Tensor suffixes: B sequences, H heads, K kv heads, S tokens of this rank, T tokens of the sequence, E head dim.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from trials.distributed.context.block_attention import BlockKernel
from trials.distributed.context.online_softmax import OnlineSoftmax, OnlineSoftmaxGradients
from trials.distributed.context.zigzag import ContextPart
from trials.distributed.functional_collectives import all_gather, reduce_scatter


def all_gather_kv_attention(
    q_BHSE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, kernel: BlockKernel, part: ContextPart, group: ProcessGroup
) -> Tensor:
    """Causal attention of this rank's two parts of each sequence to the whole of it.

    Besides its own keys, a rank's queries see all that lie before its first part, and those of its second part all
    that lie between the two. So no kernel needs a mask, and none computes a score that the mask would hide.
    """
    attended_BHSE: Tensor = _AllGatherKvAttention.apply(  # type: ignore[no-untyped-call]  # torch leaves it without types
        q_BHSE, k_BKSE, v_BKSE, kernel, part, group
    )
    return attended_BHSE


class _AllGatherKvAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_BHSE: Tensor,
        k_BKSE: Tensor,
        v_BKSE: Tensor,
        kernel: BlockKernel,
        part: ContextPart,
        group: ProcessGroup,
    ) -> Tensor:
        half = q_BHSE.shape[2] // 2
        # tokens first: a gather joins along dim 0
        held = all_gather(torch.stack((k_BKSE, v_BKSE)).movedim(3, 0), group)
        pair_2BKTE = part.in_order(held, 0).movedim(0, 3)
        attended = OnlineSoftmax(kernel, q_BHSE, k_BKSE, v_BKSE)
        before, between = _seen(part, half)
        if len(before):
            attended.merge(*pair_2BKTE[..., before.start : before.stop, :])
        if len(between):
            attended.merge(*pair_2BKTE[..., between.start : between.stop, :], first_query=half)
        output_BHSE = attended.output()
        ctx.save_for_backward(q_BHSE, k_BKSE, v_BKSE, pair_2BKTE, output_BHSE, attended.log_sum_exp_BHS)
        ctx.kernel, ctx.part, ctx.group, ctx.rest = kernel, part, group, attended.rest
        return output_BHSE

    @staticmethod
    def backward(ctx: Any, gradient_BHSE: Tensor) -> tuple[Tensor | None, ...]:
        """Every rank sums up what it knows of all keys' gradients; a reduce-scatter brings the sums home."""
        q_BHSE, k_BKSE, v_BKSE, pair_2BKTE, output_BHSE, log_sum_exp_BHS = ctx.saved_tensors
        half = q_BHSE.shape[2] // 2
        gradients = OnlineSoftmaxGradients(ctx.kernel, gradient_BHSE, q_BHSE, output_BHSE, log_sum_exp_BHS, ctx.rest)
        own = gradients.own_block(k_BKSE, v_BKSE)
        total = torch.zeros_like(pair_2BKTE, dtype=own.dtype)
        before, between = _seen(ctx.part, half)
        for keys, first_query in ((before, 0), (between, half)):
            if len(keys):
                tokens = slice(keys.start, keys.stop)
                total[..., tokens, :] += gradients.merged_block(*pair_2BKTE[..., tokens, :], first_query=first_query)
        own += reduce_scatter(ctx.part.by_rank(total.movedim(3, 0), 0), ctx.group).movedim(0, 3)
        k_gradient, v_gradient = own.to(k_BKSE.dtype)
        return gradients.queries(), k_gradient, v_gradient, None, None, None


def _seen(part: ContextPart, size: int) -> tuple[range, range]:
    """Positions before the first part, and between the two parts."""
    first, second = part.parts
    return range(first * size), range((first + 1) * size, second * size)
