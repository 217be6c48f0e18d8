"""Which positions of a sequence a context rank holds: two parts, so that causal attention is even work for all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPart:
    """The part of every sequence that one of ``num_ranks`` context ranks holds; all of it by default.

    A sequence is cut into ``2 * num_ranks`` parts, and rank r holds number r from the front and number r from the
    back, in this order. A token at the front attends to few others and one at the back to nearly all, so every rank
    has the same number of pairs (the balance of arXiv 2407.21783, section 3.3.2).
    """

    rank: int = 0
    num_ranks: int = 1

    @property
    def parts(self) -> tuple[int, int]:
        """The two parts held, counted from the front of the sequence."""
        return self.rank, 2 * self.num_ranks - 1 - self.rank

    def positions(self, seq_len: int, device: torch.device | None = None) -> Tensor:
        """The positions held, rising."""
        size = seq_len // (2 * self.num_ranks)
        if self.num_ranks == 1:
            return torch.arange(seq_len, device=device)
        return torch.cat([torch.arange(part * size, (part + 1) * size, device=device) for part in self.parts])

    def own_positions(self, num_tokens: int, device: torch.device | None = None) -> Tensor:
        """The positions of the so many tokens that are held of a sequence, rising."""
        return self.positions(num_tokens * self.num_ranks, device)

    def in_order(self, tensor: Tensor, dim: int) -> Tensor:
        """From what all ranks hold, one rank after the other, to the order of the sequence."""
        held = tensor.chunk(2 * self.num_ranks, dim)
        return torch.cat((*held[::2], *reversed(held[1::2])), dim)

    def by_rank(self, tensor: Tensor, dim: int) -> Tensor:
        """From the order of the sequence to what all ranks hold, one rank after the other."""
        parts = tensor.chunk(2 * self.num_ranks, dim)
        front, back = parts[: self.num_ranks], reversed(parts[self.num_ranks :])
        return torch.cat([half for both in zip(front, back, strict=True) for half in both], dim)


WHOLE = ContextPart()
"""All of every sequence."""
