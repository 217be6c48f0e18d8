"""How what a stage has computed gets to its neighbour: beside compute, in its way, or carried by delegates."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What a transfer between two ranks occupies, beside the link.

    Attributes:
        blocks: The rank that sends computes on only when what it sent has arrived: head-of-line blocking of a slow link
            (arXiv 2504.19232).
        shares_link: A link carries one transfer at a time, whichever way it goes.
        num_delegates: Processes per neighbour and direction that take transfers in turn, each busy with one at a time;
            None for any number of transfers at once.
        overhead_s: Seconds that a delegate is busy with a transfer beyond the delay of the link.
        copy_s: Seconds that sender and receiver each compute nothing because they copy what is transferred.
    """

    blocks: bool = False
    shares_link: bool = False
    num_delegates: int | None = None
    overhead_s: float = 0.0
    copy_s: float = 0.0

    def __post_init__(self) -> None:
        if self.shares_link and (self.num_delegates is not None or self.overhead_s or self.copy_s):
            raise InvalidInput("shares_link", self.shares_link, "delegates do not share a stream", nearest=False)
        if self.num_delegates is not None and self.num_delegates < 1:
            raise InvalidInput("num_delegates", self.num_delegates, "must be 1 or more", 1)
        for name in ("overhead_s", "copy_s"):
            if getattr(self, name) < 0:
                raise InvalidInput(name, getattr(self, name), "must not be negative", 0.0)


BESIDE_COMPUTE = Transport()
"""Sends that run beside compute, any number at once."""

BLOCKING = Transport(blocks=True)
"""Sends that hold the rank which sends for as long as they take."""

BLOCKING_IN_TURN = Transport(blocks=True, shares_link=True)
"""Sends that hold the rank, while a link carries one transfer at a time: both ends of a slow one are held in turn."""


def delegated(num_delegates: int, *, overhead_s: float = 0.0, copy_s: float = 0.0) -> Transport:
    """Sends that other processes carry, so many per neighbour and direction.

    They keep up with a stage that sends every ``t`` seconds while ``num_delegates >= (delay + overhead_s) / t``.
    """
    return Transport(num_delegates=num_delegates, overhead_s=overhead_s, copy_s=copy_s)
