"""LengthDistribution: how long the sequences of a workload are, where they are not all alike."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

from autotuner.errors import InvalidInput

__all__ = ["LengthDistribution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDistribution:
    """How often sequences of each length occur.

    Attributes:
        lengths: Tokens, rising.
        weights: How often each occurs, in any unit: counts or shares.

    Raises:
        InvalidInput: Lengths do not rise, or weights are not as many positive numbers.
    """

    lengths: tuple[int, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.lengths or self.lengths[0] < 1 or any(a >= b for a, b in pairwise(self.lengths)):
            raise InvalidInput("lengths", list(self.lengths), "must be rising numbers of tokens, 1 or more")
        if len(self.weights) != len(self.lengths):
            rule = f"must be one number for each of the {len(self.lengths)} lengths"
            raise InvalidInput("weights", list(self.weights), rule)
        if not all(math.isfinite(weight) and weight > 0 for weight in self.weights):
            raise InvalidInput("weights", list(self.weights), "must be positive numbers")

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Self:
        """The distribution of sequences that somebody counted.

        Raises:
            InvalidInput: There are none, or one has no token.
        """
        counts: dict[int, int] = {}
        for length in lengths:
            counts[length] = counts.get(length, 0) + 1
        rising = sorted(counts)
        return cls(lengths=tuple(rising), weights=tuple(float(counts[length]) for length in rising))

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return self.lengths[-1]

    @property
    def mean(self) -> float:
        """Tokens of a sequence on average."""
        return self.moment(1)

    def moment(self, power: int) -> float:
        """The mean of a power of the lengths: attention goes by the second."""
        total = sum(w * float(length) ** power for length, w in zip(self.lengths, self.weights, strict=True))
        return total / sum(self.weights)

    def at(self, share: float) -> int:
        """The length that so large a share of all sequences does not exceed: a draw, for a share drawn from 0 to 1."""
        return self.at_each([share])[0]

    def at_each(self, shares: Iterable[float]) -> tuple[int, ...]:
        """The lengths at several shares, with the weights summed once."""
        bounds = list(accumulate(self.weights))
        last = len(self.lengths) - 1
        return tuple(self.lengths[min(bisect_right(bounds, share * bounds[-1]), last)] for share in shares)
