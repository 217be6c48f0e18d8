"""Ring attention (arXiv 2310.01889): keys and values go round the context ranks while each attends to what it has.

Tensor suffixes: B sequences, H heads, K kv heads, S tokens of this rank, E head dim.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from trials.distributed.context.block_attention import BlockKernel
from trials.distributed.context.online_softmax import OnlineSoftmax, OnlineSoftmaxGradients
from trials.distributed.context.zigzag import ContextPart
from trials.distributed.functional_collectives import start_all_to_all, wait


def ring_attention(
    q_BHSE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, kernel: BlockKernel, part: ContextPart, group: ProcessGroup
) -> Tensor:
    """Causal attention of this rank's two parts of each sequence to the whole of it.

    While a rank attends to the keys of one rank, those of the next are on their way. Of a rank nearer to the front
    all queries see the first part; of one nearer to the back the queries of the second part see both parts: half of
    all pairs, whichever rank it is.
    """
    attended_BHSE: Tensor = _RingAttention.apply(  # type: ignore[no-untyped-call]  # torch leaves it without types
        q_BHSE, k_BKSE, v_BKSE, kernel, part, group
    )
    return attended_BHSE


class _RingAttention(torch.autograd.Function):
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
        pair, half = torch.stack((k_BKSE, v_BKSE)), q_BHSE.shape[2] // 2
        coming = _to_next(pair, part, group)
        attended = OnlineSoftmax(kernel, q_BHSE, k_BKSE, v_BKSE)
        for distance in range(1, part.num_ranks):
            pair = wait(coming)
            if distance < part.num_ranks - 1:
                coming = _to_next(pair, part, group)
            if distance <= part.rank:
                attended.merge(*pair[..., :half, :])
            else:
                attended.merge(*pair, first_query=half)
        output_BHSE = attended.output()
        ctx.save_for_backward(q_BHSE, k_BKSE, v_BKSE, output_BHSE, attended.log_sum_exp_BHS)
        ctx.kernel, ctx.part, ctx.group, ctx.rest = kernel, part, group, attended.rest
        return output_BHSE

    @staticmethod
    def backward(ctx: Any, gradient_BHSE: Tensor) -> tuple[Tensor | None, ...]:
        """Keys and values go round once more, and what is summed up of their gradients follows them home."""
        q_BHSE, k_BKSE, v_BKSE, output_BHSE, log_sum_exp_BHS = ctx.saved_tensors
        part, group, half = ctx.part, ctx.group, q_BHSE.shape[2] // 2
        gradients = OnlineSoftmaxGradients(ctx.kernel, gradient_BHSE, q_BHSE, output_BHSE, log_sum_exp_BHS, ctx.rest)
        pair = torch.stack((k_BKSE, v_BKSE))
        coming = _to_next(pair, part, group)
        following = _to_next(gradients.own_block(k_BKSE, v_BKSE), part, group)
        for distance in range(1, part.num_ranks):
            pair = wait(coming)
            if distance < part.num_ranks - 1:
                coming = _to_next(pair, part, group)
            if distance <= part.rank:
                gradient, tokens = gradients.merged_block(*pair[..., :half, :]), slice(half)
            else:
                gradient, tokens = gradients.merged_block(*pair, first_query=half), slice(None)
            total = wait(following)
            total[..., tokens, :] += gradient
            following = _to_next(total, part, group)
        k_gradient, v_gradient = wait(following).to(k_BKSE.dtype)
        return gradients.queries(), k_gradient, v_gradient, None, None, None


def _to_next(tensor: Tensor, part: ContextPart, group: ProcessGroup) -> Tensor:
    """Begin to send a tensor to the next rank; what comes back is the one of the rank before."""
    sent, received = [0] * part.num_ranks, [0] * part.num_ranks
    sent[(part.rank + 1) % part.num_ranks] = received[(part.rank - 1) % part.num_ranks] = len(tensor)
    return start_all_to_all(tensor, sent, received, group)
