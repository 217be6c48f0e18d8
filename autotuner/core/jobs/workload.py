"""Workload: what one optimizer step has to process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from autotuner.core import check
from autotuner.core.jobs.lengths import LengthDistribution
from autotuner.core.layouts.layout import Layout
from autotuner.errors import InvalidInput

__all__ = ["MOST_DEALT", "Workload"]

MOST_DEALT = 1 << 17
"""Sequences of a batch that are dealt one by one: eight times those of the largest published batch (arXiv 2402.02447),
which take up to half a second for each way to deal them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one optimizer step has to process.

    Attributes:
        seq_len: Tokens per sequence; where sequences differ, those that the longest may have.
        global_batch_size: Sequences per optimizer step, whole job.
        optimizer_state_precision: Format of AdamW's two moments; master weights stay fp32.
        lengths: How long sequences are; None: all have ``seq_len`` tokens.

    Raises:
        InvalidInput: A number is not positive, or a sequence is longer than ``seq_len``, or too many are to be dealt.
    """

    seq_len: int
    global_batch_size: int
    optimizer_state_precision: Literal["fp32", "bf16"] = "fp32"
    lengths: LengthDistribution | None = None

    def __post_init__(self) -> None:
        check.positive(self, "seq_len", "global_batch_size")
        check.one_of("optimizer_state_precision", self.optimizer_state_precision, ("fp32", "bf16"))
        if self.lengths is not None:
            self._require_dealt(self.lengths)

    def _require_dealt(self, lengths: LengthDistribution) -> None:
        if lengths.longest > self.seq_len:
            rule = f"must hold the longest sequence, of {lengths.longest} tokens"
            raise InvalidInput("seq_len", self.seq_len, rule, lengths.longest)
        if self.global_batch_size > MOST_DEALT:
            rule = f"must not exceed {MOST_DEALT:,} where sequences differ in length, as each is dealt"
            raise InvalidInput("global_batch_size", self.global_batch_size, rule, MOST_DEALT)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step, whole job; where sequences differ, real ones of an average step."""
        if self.lengths is None:
            return self.seq_len * self.global_batch_size
        return round(self.lengths.mean * self.global_batch_size)

    @property
    def keys_per_token(self) -> int:
        """Length of the sequence that a token lies in, on average over tokens: attention goes by it."""
        return self.seq_len if self.lengths is None else round(self.lengths.moment(2) / self.lengths.mean)

    @property
    def of_longest(self) -> Workload:
        """The workload whose sequences are all as long as the longest may be."""
        return self if self.lengths is None else replace(self, lengths=None)

    def num_micro_batches(self, layout: Layout) -> int:
        """Micro-batches per replica and step; gradient accumulation included.

        The global batch of a legal layout divides without remainder; a remainder is cut off here.
        """
        return self.global_batch_size // (layout.data_parallel_degree * layout.micro_batch_size)
