"""Transport: how tensors get from one pipeline rank to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from autotuner.core.errors import AutotunerError
from trials.pipelines.conditions import LinkConditions

# Message: what one pipeline rank sends to another, named so that order never matters.

_MOST_PARTS = 8
"""Tensors that a stage hands to the next, one of them being when the first was sent; a decoder hands one."""


class Message(NamedTuple):
    """One tensor on its way between neighbouring stages.

    Attributes:
        peer: Pipeline rank at the other end.
        stage: That it is meant for.
        is_gradient: It goes back; else it is an activation.
        micro_batch: From 0.
        part: Which of the tensors that a stage hands on.
    """

    peer: int
    stage: int
    is_gradient: bool
    micro_batch: int
    part: int = 0

    def tag(self, num_micro_batches: int) -> int:
        """A number that no other message of the step between the same two ranks has, on both ends the same."""
        assert self.part < _MOST_PARTS
        return ((2 * self.stage + self.is_gradient) * num_micro_batches + self.micro_batch) * _MOST_PARTS + self.part

    @property
    def stamp(self) -> Message:
        """The message that tells when this one was sent."""
        return self._replace(part=_MOST_PARTS - 1)


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
