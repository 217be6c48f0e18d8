"""Streams: traffic that progresses as one, and the share of each link that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Streams:
    """Streams over links, as the entries of a sparse matrix.

    A stream is whatever goes on at one pace: a single message, or a whole ring, which is as fast as its slowest edge.
    """

    num_streams: int
    """How many there are, those that pass no link among them."""
    stream: Integers
    """Of each entry."""
    link: Integers
    """Of each entry."""
    weight: Floats
    """Bytes that pass the link while the stream progresses by one."""

    @classmethod
    def joined(cls, parts: Sequence[Streams]) -> Streams:
        """The entries of all parts, whose streams are the same."""
        return cls(
            num_streams=parts[0].num_streams,
            stream=np.concatenate([part.stream for part in parts]),
            link=np.concatenate([part.link for part in parts]),
            weight=np.concatenate([part.weight for part in parts]),
        )

    def beside(self, other: Streams) -> Streams:
        """Both at the same time, the other's streams numbered behind these."""
        shifted = Streams(
            num_streams=self.num_streams + other.num_streams,
            stream=other.stream + self.num_streams,
            link=other.link,
            weight=other.weight,
        )
        whole = Streams(num_streams=shifted.num_streams, stream=self.stream, link=self.link, weight=self.weight)
        return Streams.joined([whole, shifted])

    def reversed_at(self, reverse: Integers) -> Streams:
        """The same streams over each link's other direction."""
        return Streams(num_streams=self.num_streams, stream=self.stream, link=reverse[self.link], weight=self.weight)
