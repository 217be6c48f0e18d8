"""Which element of each row is sent in a step: every replica finds the same without a word.

Drawn by a hash of integers rather than by a generator: generators of unlike GPUs draw unlike numbers from one seed,
and there is no state to keep but the number of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from trials.replication.rows import Rows

ChosenOffsets = Callable[[Rows, int], Tensor]
"""Offsets within rows, ``[num_rows, 1]``, in the step of that number."""

_Number = TypeVar("_Number", int, Tensor)

_WORD = 0xFFFF_FFFF


def random_offsets(rows: Rows, step: int) -> Tensor:
    """Another draw for every row and step; rows of one tensor draw alike wherever the tensor lies.

    Every element is sent once in ``width`` steps on average, and as many in each step.
    """
    salts = (_mixed(_mixed(step) + position) for position in range(len(rows.num_rows_of)))
    first_rows = accumulate(rows.num_rows_of[:-1], initial=0)
    starts = torch.tensor([salt - first for salt, first in zip(salts, first_rows, strict=True)], device=rows.device)
    counts = torch.tensor(rows.num_rows_of, device=rows.device)
    keys = torch.repeat_interleave(starts, counts, output_size=rows.num_rows)
    return (_mixed(keys + torch.arange(rows.num_rows, device=rows.device)) % rows.width).unsqueeze(1)


def striding_offsets(rows: Rows, step: int) -> Tensor:
    """The same offset in all rows, the next one in the next step: each element is sent once in ``width`` steps."""
    return torch.full((rows.num_rows, 1), step % rows.width, device=rows.device)


def _mixed(number: _Number) -> _Number:
    """A word of 32 bits in which each bit depends on all of the number's; source: the finaliser of MurmurHash3."""
    word = number & _WORD
    word = (word ^ (word >> 16)) * 0x85EB_CA6B & _WORD
    word = (word ^ (word >> 13)) * 0xC2B2_AE35 & _WORD
    return word ^ (word >> 16)
