"""Workload: the batch of a training run, and the lengths of the sequences in it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Annotated, Literal, Self

from autotuner.core.amounts import read_tokens
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.value import Caption, Count, Flag, Rare, Typed, value


@value
class LengthDistribution:
    """The distribution of sequence lengths in tokens: the lengths that occur, and the weight of each.

    Raises:
        InvalidInput: Lengths do not rise, or there is not one positive weight per length.

    Example:
        >>> lengths = LengthDistribution.of([512, 512, 2048])
        >>> lengths.mean, lengths.longest
        (1024.0, 2048)
    """

    lengths: tuple[int, ...]
    """Lengths of sequences in tokens, ascending."""
    weights: tuple[float, ...]
    """Frequency of each length, in any unit such as counts or shares."""

    def __post_init__(self) -> None:
        if not self.lengths or self.lengths[0] < 1 or any(a >= b for a, b in pairwise(self.lengths)):
            raise InvalidInput("lengths", list(self.lengths), "must be numbers of tokens, 1 or more, in rising order")
        if len(self.weights) != len(self.lengths):
            rule = f"must have one number for each of the {len(self.lengths)} lengths"
            raise InvalidInput("weights", list(self.weights), rule)
        if not all(math.isfinite(weight) and weight > 0 for weight in self.weights):
            raise InvalidInput("weights", list(self.weights), "must be positive numbers")

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Self:
        """Return the distribution of sequence lengths in tokens; the weight of a length is how often it occurs.

        Raises:
            InvalidInput: There are no lengths, or a length is below 1.
        """
        counts: dict[int, int] = {}
        for length in lengths:
            counts[length] = counts.get(length, 0) + 1
        rising = sorted(counts)
        return cls(lengths=tuple(rising), weights=tuple(float(counts[length]) for length in rising))

    @property
    def longest(self) -> int:
        """The length in tokens of the longest sequence."""
        return self.lengths[-1]

    @property
    def mean(self) -> float:
        """The mean length of a sequence in tokens."""
        return self.moment(1)

    def moment(self, power: int) -> float:
        """Return the mean of ``length ** power`` over all sequences. The time of attention grows with the power 2."""
        total = sum(w * float(length) ** power for length, w in zip(self.lengths, self.weights, strict=True))
        return total / sum(self.weights)

    def at(self, share: float) -> int:
        """Return the length that this share of all sequences does not exceed (a quantile of the distribution).

        If the share is a uniformly random number, the result is a random length.

        Args:
            share: Share of the sequences, from 0 to 1.
        """
        return self.at_each([share])[0]

    def at_each(self, shares: Iterable[float]) -> tuple[int, ...]:
        """Return the quantiles of the lengths for several shares; this is faster than to call ``at`` for each share."""
        bounds = list(accumulate(self.weights))
        last = len(self.lengths) - 1
        return tuple(self.lengths[min(bisect_right(bounds, share * bounds[-1]), last)] for share in shares)


MOST_SEQUENCES = 1 << 17
"""Most sequences of a batch that are assigned one by one: eight times as many as in the largest published batch (arXiv
2402.02447). Each assignment takes up to half a second."""


@value
class Workload:
    """The sequences that one optimizer step processes: their length and their number.

    Raises:
        InvalidInput: A number is not positive, a sequence is longer than ``seq_len``, or too many sequences of
            different lengths are to be assigned to ranks.

    Example:
        >>> workload = Workload(seq_len=8192, global_batch_size=64)
        >>> workload.tokens_per_step
        524288
        >>> workload.num_micro_batches(Layout(data_parallel_shard_degree=8, micro_batch_size=2))
        4
    """

    seq_len: Annotated[Count, Typed(read_tokens, example="8192 or 8k, where k is 1,024"), Caption("Sequence length")]
    """Tokens per sequence. If sequences differ in length, this is the length of the longest one."""
    global_batch_size: Count
    """Sequences per optimizer step, for the whole job."""
    optimizer_state_precision: Annotated[Literal["fp32", "bf16"], Flag("optimizer-states"), Rare()] = "fp32"
    """Number format of AdamW's two moments. Master weights stay in fp32."""
    lengths: Annotated[LengthDistribution | None, Caption("Length distribution"), Rare()] = None
    """Distribution of the lengths of sequences; None: all sequences have ``seq_len`` tokens."""

    def __post_init__(self) -> None:
        if self.lengths is not None:
            self._require_lengths_fit(self.lengths)

    def _require_lengths_fit(self, lengths: LengthDistribution) -> None:
        if lengths.longest > self.seq_len:
            rule = f"must be at least {lengths.longest}, the tokens of the longest sequence"
            raise InvalidInput("seq_len", self.seq_len, rule, lengths.longest)
        if self.global_batch_size > MOST_SEQUENCES:
            rule = (
                f"must be at most {MOST_SEQUENCES:,} if sequences differ in length, because each sequence is "
                "assigned to a rank"
            )
            raise InvalidInput("global_batch_size", self.global_batch_size, rule, MOST_SEQUENCES)

    @property
    def tokens_per_step(self) -> int:
        """The number of tokens in one optimizer step of the whole job, without padding.

        If sequences differ in length, it is the mean number.
        """
        if self.lengths is None:
            return self.seq_len * self.global_batch_size
        return round(self.lengths.mean * self.global_batch_size)

    @property
    def keys_per_token(self) -> int:
        """The length of the sequence that a token belongs to, averaged over all tokens.

        The time of attention depends on this length.
        """
        return self.seq_len if self.lengths is None else round(self.lengths.moment(2) / self.lengths.mean)

    @property
    def of_longest(self) -> Workload:
        """A copy of the workload in which all sequences are as long as ``seq_len``, the greatest length."""
        return self if self.lengths is None else replace(self, lengths=None)

    def num_micro_batches(self, layout: Layout) -> int:
        """Return the number of micro-batches per replica and step, gradient accumulation included.

        For a legal layout the global batch divides without remainder; for other layouts a remainder is ignored.
        """
        return self.global_batch_size // (layout.data_parallel_degree * layout.micro_batch_size)
