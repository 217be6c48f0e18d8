"""Transport: how tensors get from one pipeline rank to another, and what is done to messages on slow links."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from torch import Tensor

from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.value import Positive, Seconds, value

# LinkConditions: what is done to messages between pipeline ranks, so that a fast link behaves like a slow one.


@value
class LinkCondition:
    """What befalls messages between two pipeline ranks, in both directions."""

    delay_s: Seconds = 0.0
    """One-way, for every message."""
    jitter_s: Seconds = 0.0
    """Standard deviation of the delay from message to message."""
    bandwidth_bytes_per_s: Positive | None = None
    """One direction; None: as fast as the real link."""
    is_dead: bool = False
    """Inline sends fail; delegates still get through, over the hosts' own network."""

    def hold_s(self, num_bytes: int, chance: random.Random) -> float:
        """Seconds that a message of so many bytes is held back."""
        delay_s = max(0.0, chance.gauss(self.delay_s, self.jitter_s)) if self.jitter_s else self.delay_s
        return delay_s + (num_bytes / self.bandwidth_bytes_per_s if self.bandwidth_bytes_per_s else 0.0)


HEALTHY = LinkCondition()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConditions:
    """The links of one pipeline that are not as they really are."""

    of_pairs: Mapping[tuple[int, int], LinkCondition] = field(default_factory=lambda: MappingProxyType({}))
    """By both pipeline ranks, the lower first; links that are not named are healthy."""

    def __post_init__(self) -> None:
        for pair in self.of_pairs:
            if not 0 <= pair[0] < pair[1]:
                rule = "a link joins two different pipeline ranks, the lower first"
                raise InvalidInput("of_pairs", list(pair), rule, str(sorted(pair)))

    def between(self, one: int, other: int) -> LinkCondition:
        """The condition of the link between two pipeline ranks."""
        return self.of_pairs.get((min(one, other), max(one, other)), HEALTHY)


# Transport: how tensors get from one pipeline rank to another.

# Message: what one pipeline rank sends to another, named so that order never matters.

_MOST_PARTS = 8
"""Tensors that a stage hands to the next, one of them being when the first was sent; a decoder hands one."""


class Message(NamedTuple):
    """One tensor on its way between neighbouring stages."""

    peer: int
    """Pipeline rank at the other end."""
    stage: int
    """That it is meant for."""
    is_gradient: bool
    """It goes back; else it is an activation."""
    micro_batch: int
    """From 0."""
    part: int = 0
    """Which of the tensors that a stage hands on."""

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
