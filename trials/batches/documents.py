"""Documents: sequences that follow each other in one row, and attend each to itself.

Tensor suffixes: B rows, here 1; S tokens; H heads; K kv heads; E head dim.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

Documents = tuple[int, ...]
"""Tokens of each document of the row, in their order; none where every row is one sequence."""

WHOLE_ROWS: Documents = ()
"""Every row is one sequence."""

_BLOCK = 128
"""Tokens on a side of a block of scores; FlexAttention's default (torch 2.13)."""


def positions_in(documents: Documents, device: torch.device | None = None) -> Tensor:
    """The position of each token within its document: shape (S,)."""
    return torch.cat([torch.arange(length, device=device) for length in documents])


def attend_by_document(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    q_BSHE: Tensor,
    k_BSKE: Tensor,
    v_BSKE: Tensor,
    documents: Documents,
) -> Tensor:
    """Each document's attention to itself, one after the other: what it costs goes by the squares of their lengths."""
    pieces = zip(*(torch.split(x, list(documents), dim=1) for x in (q_BSHE, k_BSKE, v_BSKE)), strict=True)
    return torch.cat([attend(*piece) for piece in pieces], dim=1)


def document_mask(documents: Documents, device: torch.device) -> BlockMask:
    """Which blocks of FlexAttention's scores to compute: causal, and none between two documents.

    Tokens of one document lie beside each other, so that the ends of a block tell which documents it holds; torch's
    ``create_block_mask`` finds the same by looking at every score, which takes a byte for each of them.
    """
    seq_len = sum(documents)
    document_S = torch.repeat_interleave(torch.tensor(documents, device=device))
    last = torch.arange(_BLOCK - 1, seq_len + _BLOCK - 1, _BLOCK, device=device).clamp(max=seq_len - 1)
    first_document, last_document = document_S[::_BLOCK], document_S[last]
    block = torch.arange(len(last), device=device)
    earlier = block[:, None] > block
    full = earlier & (first_document[None] == last_document[:, None])
    if seq_len % _BLOCK:
        full[-1] = False  # the last row has queries that are none
    seen = earlier & (last_document[None] == first_document[:, None]) | (block[:, None] == block)

    def is_visible_in_document(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return is_visible(sequence, head, query, key) & (document_S[query] == document_S[key])

    mask: BlockMask = BlockMask.from_kv_blocks(
        *_numbers_and_columns(seen & ~full),
        *_numbers_and_columns(full),
        BLOCK_SIZE=_BLOCK,
        mask_mod=is_visible if len(documents) == 1 else is_visible_in_document,
        seq_lengths=(seq_len, seq_len),
    )
    return mask


def is_visible(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A token attends to itself and to those before it."""
    del sequence, head
    return query >= key


def _numbers_and_columns(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row has and which, for all sequences and heads alike."""
    columns = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], columns.int()[None, None]
