"""Transport: how tensors get from one pipeline rank to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from autotuner.core.errors import AutotunerError
from trials.pipelines.conditions import LinkConditions
from trials.pipelines.message import Message


class LinkDead(AutotunerError, ConnectionError):
    """Nothing passes between this pipeline rank and another any more."""

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(f"the link to pipeline rank {peer} is dead: {reason}")
        self.peer = peer


class Arrival(Protocol):
    """A tensor that is being received."""

    def wait(self) -> float | None:
        """Return when it is there; seconds since it was sent, or None if it came while nobody looked."""


class Transport(Protocol):
    """Sends and receives for one pipeline rank; every method is called by the thread that computes."""

    conditions: LinkConditions
    """What the next messages meet; set between steps."""

    @property
    def is_delegated(self) -> bool:
        """Whether others send for this rank."""

    @property
    def dead_peers(self) -> frozenset[int]:
        """Pipeline ranks to which this one cannot send by itself any more."""

    def switch(self, *, delegated: bool) -> None:
        """Have others send for this rank from the next step on, or no longer.

        Raises:
            InvalidInput: There is nobody who could.
        """

    def begin(self, expected: Sequence[tuple[Message, Tensor]]) -> None:
        """A step begins, in which these messages will come, in this order from each peer, into these buffers."""

    def send(self, message: Message, tensor: Tensor) -> None:
        """Start to send a tensor, which must not change before ``finish``."""

    def receive(self, message: Message, buffer: Tensor) -> Arrival:
        """Start to receive into a buffer."""

    def finish(self) -> None:
        """Return when everything that was sent has left."""

    def close(self) -> None:
        """End whatever was started for it."""
