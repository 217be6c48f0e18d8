"""Transport: sends tensors from one pipeline rank to another, and emulates conditions of links."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from torch import Tensor

from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.value import Positive, Seconds, value


@value
class LinkCondition:
    """The emulated delay, jitter and bandwidth of a link between two pipeline ranks, in both directions."""

    delay_s: Seconds = 0.0
    """One-way delay of every message."""
    jitter_s: Seconds = 0.0
    """Standard deviation of the delay from message to message."""
    bandwidth_bytes_per_s: Positive | None = None
    """Bandwidth in one direction; None: the bandwidth of the real link."""
    is_dead: bool = False
    """True if the rank itself cannot send over the link. Delegates can still send, over the hosts' own network."""

    def hold_s(self, num_bytes: int, chance: random.Random) -> float:
        """Return the seconds by which the condition delays a message.

        Args:
            num_bytes: Size of the message in bytes.
            chance: Random generator for the jitter.
        """
        delay_s = max(0.0, chance.gauss(self.delay_s, self.jitter_s)) if self.jitter_s else self.delay_s
        return delay_s + (num_bytes / self.bandwidth_bytes_per_s if self.bandwidth_bytes_per_s else 0.0)


_NOMINAL = LinkCondition()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConditions:
    """The emulated conditions of the links of one pipeline, such as delay and bandwidth.

    Example:
        >>> conditions = LinkConditions(of_pairs={(0, 1): LinkCondition(delay_s=0.03)})
        >>> conditions.between(1, 0).delay_s, conditions.between(1, 2).delay_s
        (0.03, 0.0)
    """

    of_pairs: Mapping[tuple[int, int], LinkCondition] = field(default_factory=lambda: MappingProxyType({}))
    """Conditions by the two pipeline ranks of a link, the lower one first. Links that are not listed are nominal."""

    def __post_init__(self) -> None:
        for pair in self.of_pairs:
            if not 0 <= pair[0] < pair[1]:
                rule = "must be two different pipeline ranks, with the lower rank first"
                raise InvalidInput("of_pairs", list(pair), rule, str(sorted(pair)))

    def between(self, one: int, other: int) -> LinkCondition:
        """Return the condition of the link between two pipeline ranks. If no condition was set, it is nominal."""
        return self.of_pairs.get((min(one, other), max(one, other)), _NOMINAL)


_MOST_PARTS = 8
"""Largest number of tensors that a stage sends to the next, including one with the time of sending. A decoder sends
one."""


class Message(NamedTuple):
    """The name of one tensor that a stage sends to a neighbouring stage. With names, messages may come in any order."""

    peer: int
    """Pipeline rank that sends or receives the message at the other end."""
    stage: int
    """Stage that receives the message."""
    is_gradient: bool
    """True if the message is a gradient on its way back; otherwise it is an activation."""
    micro_batch: int
    """Number of the micro-batch, from 0."""
    part: int = 0
    """Number of the tensor, if a stage sends several."""

    def tag(self, num_micro_batches: int) -> int:
        """Return a number that no other message between the same two ranks has in this step.

        The sender and the receiver compute the same number.
        """
        assert self.part < _MOST_PARTS
        return ((2 * self.stage + self.is_gradient) * num_micro_batches + self.micro_batch) * _MOST_PARTS + self.part

    @property
    def stamp(self) -> Message:
        """The name of a second message, sent after this one, which contains the time at which this message was sent."""
        return self._replace(part=_MOST_PARTS - 1)


class LinkDead(AutotunerError, ConnectionError):
    """Raised when this pipeline rank can no longer exchange messages with another rank."""

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(f"the link to pipeline rank {peer} is dead: {reason}")
        self.peer = peer


Arrival = Callable[[], float | None]
"""A function that waits for a tensor that is being received. It returns the seconds since the tensor was sent, or None
if its arrival was not observed."""


class Transport(Protocol):
    """The interface of objects that send and receive the activations and gradients of one pipeline rank.

    Only the thread that computes may call the methods.
    """

    conditions: LinkConditions
    """Conditions of links for the next messages. Set them between two steps."""

    @property
    def is_delegated(self) -> bool:
        """True if delegates (other processes) send the messages of this rank, False if the rank itself sends them."""

    @property
    def dead_peers(self) -> frozenset[int]:
        """The pipeline ranks to which this rank itself can no longer send, because the link is dead."""

    def switch(self, *, delegated: bool) -> None:
        """Change who sends from the next step on: delegates (processes that send for this rank), or this rank itself.

        Args:
            delegated: True: delegates send. False: this rank itself sends.

        Raises:
            InvalidInput: There are no delegates, or only delegates can send.
        """

    def begin(self, expected: Sequence[tuple[Message, Tensor]]) -> None:
        """Begin a training step: announce the messages that this rank receives in it, to receive them early.

        Args:
            expected: The messages that arrive in this step, each with its buffer. Messages from the same rank arrive in
                this order.
        """

    def send(self, message: Message, tensor: Tensor) -> None:
        """Begin to send a tensor. The tensor must not change until ``finish`` returns."""

    def receive(self, message: Message, buffer: Tensor) -> Arrival:
        """Begin to receive a message into the buffer, and return a function that waits for it."""

    def finish(self) -> None:
        """Wait until all messages that were sent in this step have left this rank, so that their tensors may change."""

    def close(self) -> None:
        """End all processes and threads that the transport has started."""
