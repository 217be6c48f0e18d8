"""Synthetic tokens: a function of seed, step and sequence, so every layout trains on the same global batches."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from autotuner.domain.jobs.workload import Workload
from trials.distributed.context.zigzag import WHOLE, ContextPart
from trials.training.languages import Languages

__all__ = ["Batch", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One replica's slice of a global batch, or a context rank's part of it; a label is the token that follows."""

    tokens_BS: Tensor
    labels_BS: Tensor

    def micro_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens and labels of ``size`` sequences at a time."""
        for start in range(0, len(self.tokens_BS), size):
            rows = slice(start, start + size)
            yield self.tokens_BS[rows], self.labels_BS[rows]


def batch(
    workload: Workload,
    *,
    vocab_size: int,
    seed: int,
    step: int,
    data_parallel_rank: int,
    data_parallel_degree: int,
    device: torch.device,
    part: ContextPart = WHOLE,
    num_languages: int = 1,
    turn: int = 0,
) -> Batch:
    """A part of the sequences of one replica: its contiguous slice of the global batch, drawn without the others.

    Every ``turn`` each rank reads the next language.
    """
    languages = Languages(vocab_size=vocab_size, num_languages=num_languages)
    size = workload.global_batch_size // data_parallel_degree
    rows = range(data_parallel_rank * size, (data_parallel_rank + 1) * size)
    sequences = torch.stack(
        [
            languages.tokens(
                languages.of_row(row, workload.global_batch_size, turn),
                _shares(workload.seq_len + 1, f"{seed}/{step}/{row}"),
            )
            for row in rows
        ]
    )
    positions = part.positions(workload.seq_len)
    return Batch(tokens_BS=sequences[:, positions].to(device), labels_BS=sequences[:, positions + 1].to(device))


def _shares(length: int, key: str) -> Tensor:
    """Independent numbers from 0 to 1, the same wherever the same sequence is drawn."""
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    return torch.rand(length, generator=generator, dtype=torch.float64)
