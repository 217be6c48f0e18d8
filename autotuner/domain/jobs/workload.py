"""Workload: what one optimizer step has to process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotuner.domain import check
from autotuner.domain.layouts.layout import Layout

__all__ = ["Workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one optimizer step has to process.

    Attributes:
        seq_len: Tokens per sequence.
        global_batch_size: Sequences per optimizer step, whole job.
        optimizer_state_precision: Format of AdamW's two moments; master weights stay fp32.
    """

    seq_len: int
    global_batch_size: int
    optimizer_state_precision: Literal["fp32", "bf16"] = "fp32"

    def __post_init__(self) -> None:
        check.positive(self, "seq_len", "global_batch_size")
        check.one_of("optimizer_state_precision", self.optimizer_state_precision, ("fp32", "bf16"))

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step, whole job."""
        return self.seq_len * self.global_batch_size

    def num_micro_batches(self, layout: Layout) -> int:
        """Micro-batches per replica and step; gradient accumulation included.

        The global batch of a legal layout divides without remainder; a remainder is cut off here.
        """
        return self.global_batch_size // (layout.data_parallel_degree * layout.micro_batch_size)
