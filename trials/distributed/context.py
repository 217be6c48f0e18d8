"""Context parallelism: attention over sequences that are split over ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from autotuner.core.choices import ContextExchange
from autotuner.training.batches import WHOLE_ROWS, Documents
from autotuner.trials.distributed.block_attention import (
    BlockKernel,
    OnlineSoftmax,
    OnlineSoftmaxGradients,
    block_kernel,
)
from autotuner.trials.distributed.expert import all_gather, exchange, reduce_scatter, start_all_to_all, wait
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.model.attention import AttentionCore

# Which positions of a sequence a context rank holds: two parts, so that causal attention is even work for all.


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPart:
    """The part of every sequence that one of ``num_ranks`` context ranks holds; by default, the whole sequence.

    A sequence is cut into ``2 * num_ranks`` parts. Rank r holds part r counted from the front and part r counted from
    the back, in this order. With a causal mask, a token near the front attends to few tokens, and a token near the back
    to nearly all. So every rank computes the same number of pairs of a query and a key.

    Source: arXiv 2407.21783, section 3.3.2.
    """

    rank: int = 0
    num_ranks: int = 1

    @property
    def parts(self) -> tuple[int, int]:
        """The numbers of the two parts of the sequence that this rank holds.

        A sequence is cut into ``2 * num_ranks`` parts, which are counted from the front, beginning with 0.
        """
        return self.rank, 2 * self.num_ranks - 1 - self.rank

    def positions(self, seq_len: int, device: torch.device | None = None) -> Tensor:
        """Return the positions of this rank's tokens in a sequence of ``seq_len`` tokens, in rising order."""
        size = seq_len // (2 * self.num_ranks)
        if self.num_ranks == 1:
            return torch.arange(seq_len, device=device)
        return torch.cat([torch.arange(part * size, (part + 1) * size, device=device) for part in self.parts])

    def own_positions(self, num_tokens: int, device: torch.device | None = None) -> Tensor:
        """Return the positions of this rank's ``num_tokens`` tokens in the whole sequence, in rising order."""
        return self.positions(num_tokens * self.num_ranks, device)

    def in_order(self, tensor: Tensor, dim: int) -> Tensor:
        """Reorder a tensor along ``dim`` from the order of ranks to the order of the sequence.

        In the order of ranks, the tokens of rank 0 come first, then the tokens of rank 1, and so on.
        """
        held = tensor.chunk(2 * self.num_ranks, dim)
        return torch.cat((*held[::2], *reversed(held[1::2])), dim)

    def by_rank(self, tensor: Tensor, dim: int) -> Tensor:
        """Reorder a tensor along ``dim`` from the order of the sequence to the order of ranks.

        In the order of ranks, the tokens of rank 0 come first, then the tokens of rank 1, and so on.
        """
        parts = tensor.chunk(2 * self.num_ranks, dim)
        front, back = parts[: self.num_ranks], reversed(parts[self.num_ranks :])
        return torch.cat([half for both in zip(front, back, strict=True) for half in both], dim)


WHOLE = ContextPart()
"""The part of a rank that holds every sequence as a whole."""


# Attention to gathered keys and values (arXiv 2407.21783, section 3.3.2): one collective, and nothing overlaps it.
#
# Tensor suffixes: B sequences, H heads, K kv heads, S tokens of this rank, T tokens of the sequence, E head dim.


def all_gather_kv_attention(
    q_BHSE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, kernel: BlockKernel, part: ContextPart, group: ProcessGroup
) -> Tensor:
    """Return the output of causal attention for this rank's tokens, after gathering the keys and values of all ranks.

    Each rank holds two parts of the sequence, one nearer to the front and one nearer to the end. All queries of a rank
    attend to its own keys and to all keys before its first part. The queries of its second part also attend to all keys
    between its two parts. These are whole blocks, so the kernels need no mask for them, and compute no score that a
    mask would hide.
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
        """Sum the gradients of all keys over all ranks, and give each rank its part by a reduce-scatter."""
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
    """Return the key positions before this rank's first part, and between its two parts."""
    first, second = part.parts
    return range(first * size), range((first + 1) * size, second * size)


# Ring attention (arXiv 2310.01889): keys and values go round the context ranks while each attends to what it has.
#
# Tensor suffixes: B sequences, H heads, K kv heads, S tokens of this rank, E head dim.


def ring_attention(
    q_BHSE: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, kernel: BlockKernel, part: ContextPart, group: ProcessGroup
) -> Tensor:
    """Return the output of causal attention for this rank's tokens, while keys and values are sent around a ring.

    While a rank computes attention to the keys of one rank, it already receives the keys of the next rank. Each rank
    holds two parts of the sequence, one nearer to the front and one nearer to the end. If the keys come from a rank
    with a lower number, all queries attend to the first part of these keys. If they come from a rank with a higher
    number, only the queries of the second part attend to them, but to both parts. In both cases, half of all pairs of a
    query and a key are computed.
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
        """Send keys and values around the ring once more.

        The sums of their gradients follow and end at their own rank.
        """
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
    """Start to send a tensor to the next rank; return the tensor that comes from the rank before."""
    sent, received = [0] * part.num_ranks, [0] * part.num_ranks
    sent[(part.rank + 1) % part.num_ranks] = received[(part.rank - 1) % part.num_ranks] = len(tensor)
    return start_all_to_all(tensor, sent, received, group)


# DeepSpeed-Ulysses (arXiv 2309.14509): heads are split for the time of attention, and the sequence is whole.
#
# Tensor suffixes: B sequences, S tokens of this rank, T tokens of the sequence, H heads and E head dim.


def ulysses_attention(
    q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor, core: AttentionCore, part: ContextPart, group: ProcessGroup
) -> Tensor:
    """Return the output of attention for this rank's tokens, computed by an all-to-all of heads and tokens (Ulysses).

    Each rank first has all heads of its own tokens. After the exchange, it has some heads of all tokens, and ``core``
    computes their attention. A second exchange sends the outputs back.
    """
    q, k, v = (_heads_for_tokens(x, part, group) for x in (q_BSHE, k_BSKE, v_BSKE))
    return _tokens_for_heads(core(q, k, v), part, group)


def _heads_for_tokens(x_BSHE: Tensor, part: ContextPart, group: ProcessGroup) -> Tensor:
    """Exchange all heads of this rank's tokens for some heads of all tokens, in the order of the sequence."""
    sequences, tokens, heads, width = x_BSHE.shape
    by_rank = x_BSHE.reshape(sequences, tokens, part.num_ranks, heads // part.num_ranks, width).permute(2, 1, 0, 3, 4)
    held = _all_for_all(by_rank.flatten(0, 1), part, group)
    return part.in_order(held, 0).transpose(0, 1)


def _tokens_for_heads(x_BTHE: Tensor, part: ContextPart, group: ProcessGroup) -> Tensor:
    """Exchange some heads of all tokens for all heads of this rank's tokens."""
    held = _all_for_all(part.by_rank(x_BTHE.transpose(0, 1), 0), part, group)
    by_rank = held.view(part.num_ranks, -1, *held.shape[1:])
    return by_rank.permute(2, 1, 0, 3, 4).flatten(2, 3)


def _all_for_all(rows: Tensor, part: ContextPart, group: ProcessGroup) -> Tensor:
    each = [len(rows) // part.num_ranks] * part.num_ranks
    return exchange(rows, each, each, group)


def context_part(grid: Grid) -> ContextPart:
    """Return the part of every sequence that this rank holds in its context-parallel group."""
    return ContextPart(rank=grid.context_rank, num_ranks=grid.layout.context_parallel_degree)


def context_core(core: AttentionCore, grid: Grid, device: torch.device) -> AttentionCore:
    """Return the function that computes attention on a rank that may hold only a part of every sequence.

    Args:
        core: The function for whole sequences. It is used without context parallelism, and with Ulysses. Otherwise the
            kernel of the layout computes attention block by block.
        grid: The grid of ranks, with this rank's place on it.
        device: The device of this rank.
    """
    layout, part = grid.layout, context_part(grid)
    if layout.context_parallel_degree == 1:
        return core
    group = grid.context.get_group()
    if layout.context_exchange == ContextExchange.ALL_TO_ALL:
        return _of_whole_rows(partial(ulysses_attention, core=core, part=part, group=group))
    attend = ring_attention if layout.context_exchange == ContextExchange.RING else all_gather_kv_attention
    kernel = block_kernel(layout.attention_kernel, device)
    return _of_whole_rows(partial(_heads_first, attend=partial(attend, kernel=kernel, part=part, group=group)))


def _of_whole_rows(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> AttentionCore:
    """Return an attention core for rows that consist of one sequence each."""

    def core(q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor, documents: Documents = WHOLE_ROWS, /) -> Tensor:
        assert not documents, "packing needs whole sequences, says a rule"
        return attend(q_BSHE, k_BSKE, v_BSKE)

    return core


def _heads_first(
    q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor, *, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    q_BHSE, k_BKSE, v_BKSE = (x.transpose(1, 2) for x in (q_BSHE, k_BSKE, v_BSKE))
    return attend(q_BHSE, k_BKSE, v_BKSE).transpose(1, 2)
