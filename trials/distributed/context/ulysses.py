"""DeepSpeed-Ulysses (arXiv 2309.14509): heads are split for the time of attention, and the sequence is whole.

Tensor suffixes: B sequences, S tokens of this rank, T tokens of the sequence, H heads and E head dim.
"""

from __future__ import annotations

from torch import Tensor
from torch.distributed import ProcessGroup

from trials.distributed.context.zigzag import ContextPart
from trials.distributed.functional_collectives import exchange
from trials.model.attention import AttentionCore


def ulysses_attention(
    q_BSHE: Tensor, k_BSKE: Tensor, v_BSKE: Tensor, core: AttentionCore, part: ContextPart, group: ProcessGroup
) -> Tensor:
    """The core's attention of some heads to the whole sequence, as this rank's tokens see it with all heads."""
    q, k, v = (_heads_for_tokens(x, part, group) for x in (q_BSHE, k_BSKE, v_BSKE))
    return _tokens_for_heads(core(q, k, v), part, group)


def _heads_for_tokens(x_BSHE: Tensor, part: ContextPart, group: ProcessGroup) -> Tensor:
    """From all heads of this rank's tokens to some heads of all tokens, in the order of the sequence."""
    sequences, tokens, heads, width = x_BSHE.shape
    by_rank = x_BSHE.reshape(sequences, tokens, part.num_ranks, heads // part.num_ranks, width).permute(2, 1, 0, 3, 4)
    held = _all_for_all(by_rank.flatten(0, 1), part, group)
    return part.in_order(held, 0).transpose(0, 1)


def _tokens_for_heads(x_BTHE: Tensor, part: ContextPart, group: ProcessGroup) -> Tensor:
    """The way back."""
    held = _all_for_all(part.by_rank(x_BTHE.transpose(0, 1), 0), part, group)
    by_rank = held.view(part.num_ranks, -1, *held.shape[1:])
    return by_rank.permute(2, 1, 0, 3, 4).flatten(2, 3)


def _all_for_all(rows: Tensor, part: ContextPart, group: ProcessGroup) -> Tensor:
    each = [len(rows) // part.num_ranks] * part.num_ranks
    return exchange(rows, each, each, group)
