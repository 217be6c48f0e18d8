"""InlineTransport: the rank itself sends, in the order of its passes, so that a slow link delays all of its passes."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.errors import InvalidInput
from autotuner.training.pipelines.channels import Channel
from autotuner.training.pipelines.transport import Arrival, LinkConditions, LinkDead, Message

_CPU = torch.device("cpu")

_AT_ONCE_S = 1e-4
"""Longest time that gloo takes to receive a message that has already arrived (34 us were measured). gloo does not
report arrivals."""


class InlineTransport:
    """A transport in which the rank itself sends and receives messages, without other processes (delegates).

    If a link delays a message, it also delays the sending rank. On a GPU, this is because the send is in the same
    stream as the kernels of the passes that follow, and before them (head-of-line blocking, arXiv 2504.19232). The
    receiving rank gets the message later by the same time.

    Sends and receives raise ``LinkDead`` if the link is dead. ``channels`` has the channel to each neighbour, by
    pipeline rank. ``seed`` is the seed of the random jitter of emulated links.
    """

    is_delegated = False

    def __init__(
        self,
        rank: int,
        channels: Mapping[int, Channel],
        num_micro_batches: int,
        *,
        device: torch.device = _CPU,
        seed: int = 0,
    ) -> None:
        self._device = device
        self.conditions = LinkConditions()
        self.rank = rank
        self._channels = dict(channels)
        self._num_micro_batches = num_micro_batches
        self._chance = random.Random(f"{seed} {rank}")
        self._sending: list[tuple[int, dist.Work, Tensor]] = []
        self._posted: dict[Message, Arrival] = {}
        self._dead: set[int] = set()

    @property
    def dead_peers(self) -> frozenset[int]:
        """The ranks with which this rank can no longer exchange messages, because a send or a receive failed."""
        return frozenset(self._dead)

    def switch(self, *, delegated: bool) -> None:
        """Raise an error unless ``delegated`` is False, because this transport has no delegates.

        A delegate is a process that sends for a rank.
        """
        if delegated:
            raise InvalidInput("delegated", delegated, "must be False, because this rank has no delegates")

    def begin(self, expected: Sequence[tuple[Message, Tensor]]) -> None:
        """Begin to receive all messages of the step, if the backend allows this before the messages are needed.

        Gloo can receive a message only after its receive has been posted, so that receives are posted early. NCCL needs
        sends and receives in the order in which the messages pass, so that receives are posted later.

        Args:
            expected: Messages that this rank receives in the step, each with its buffer.
        """
        for message, buffer in expected:
            if self.posts_early(message.peer):
                self._posted[message] = self._receiving(message, buffer)

    def send(self, message: Message, tensor: Tensor) -> None:
        """Wait for the emulated delay of the link, then begin to send the tensor. This rank waits during the delay."""
        sent_s = time.monotonic()
        condition = self.conditions.between(self.rank, message.peer)
        if condition.is_dead:
            self._channels[message.peer].break_off()
            raise self._died(message.peer, "the injected faults make it dead")
        if (held_s := condition.hold_s(tensor.nbytes, self._chance)) > 0:
            if tensor.is_cuda:  # the GPU finishes its earlier work first, and nothing follows meanwhile
                torch.cuda.current_stream(tensor.device).synchronize()
            time.sleep(held_s)
        self._start(message, tensor.contiguous())
        if self._channels[message.peer].tells_moments:
            self._start(message.stamp, torch.tensor([sent_s], dtype=torch.float64))

    def receive(self, message: Message, buffer: Tensor) -> Arrival:
        """Return a function that waits for a message.

        If ``begin`` has not begun to receive the message into the buffer, this method begins it.
        """
        return self._posted.pop(message, None) or self._receiving(message, buffer)

    def finish(self) -> None:
        """Wait until all messages that this rank sent in the step have left it, so that their tensors may change."""
        while self._sending:
            peer, work, _ = self._sending.pop()
            self._wait(peer, work)

    def close(self) -> None:
        """Do nothing, because process groups end with their process."""

    # ------------------------------------------------------------ for SwitchedTransport
    @property
    def is_sending(self) -> bool:
        """True if at least one message was sent and ``finish`` has not waited for it yet."""
        return bool(self._sending)

    def posts_early(self, peer: int) -> bool:
        """Return True if receives from a rank may be posted in any order, and therefore at the start of a step.

        Args:
            peer: Pipeline rank that sends the messages.
        """
        return self._channels[peer].tells_moments

    def tag(self, message: Message) -> int:
        """Return the number under which a message is sent, unique among the messages of two ranks in a step."""
        return message.tag(self._num_micro_batches)

    def part(self, peer: int, word: Message) -> None:
        """Tell a neighbour that this rank has sent and received all messages, and wait until it says the same.

        Args:
            peer: Pipeline rank of the neighbour.
            word: Message to send for this purpose. It must not be the name of a tensor of a stage.
        """
        channel, own = self._channels[peer], torch.zeros(1, device=self._device)
        try:
            coming = channel.receive(torch.zeros_like(own), self.tag(word))
            channel.send(own, self.tag(word)).wait()
            coming.wait()
        except RuntimeError as error:
            raise self._died(peer, str(error)) from error

    def give_up(self, peer: int) -> None:
        """Drop all messages to and from a rank, and break the connection, so that the other rank gets an error."""
        self._dead.add(peer)
        self._channels[peer].break_off()
        self._sending = [one for one in self._sending if one[0] != peer]
        self._posted = {message: arrival for message, arrival in self._posted.items() if message.peer != peer}

    def reach_again(self, peer: int, channel: Channel) -> None:
        """Use a new channel for all messages to and from a rank, because its old channel died."""
        self._dead.discard(peer)
        self._channels[peer] = channel

    def _wait(self, peer: int, work: dist.Work) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise self._died(peer, str(error)) from error

    def _start(self, message: Message, tensor: Tensor) -> None:
        try:
            work = self._channels[message.peer].send(tensor, self.tag(message))
        except RuntimeError as error:
            raise self._died(message.peer, str(error)) from error
        self._sending.append((message.peer, work, tensor))

    def _receiving(self, message: Message, buffer: Tensor) -> Arrival:
        channel, stamp = self._channels[message.peer], None
        try:
            work = channel.receive(buffer, self.tag(message))
            if channel.tells_moments:
                moment = torch.empty(1, dtype=torch.float64)
                stamp = channel.receive(moment, self.tag(message.stamp)), moment
        except RuntimeError as error:
            raise self._died(message.peer, str(error)) from error
        return partial(self._arrive, message.peer, work, stamp)

    def _arrive(self, peer: int, work: dist.Work, stamp: tuple[dist.Work, Tensor] | None) -> float | None:
        """Wait for a message and for the stamp that follows it.

        Return the seconds that the message took, or None if its arrival was not observed.
        """
        looked_s = time.monotonic()
        self._wait(peer, work)
        came_s = time.monotonic()
        if stamp is None:
            return None
        stamp_work, sent_s = stamp
        self._wait(peer, stamp_work)
        if came_s - looked_s < _AT_ONCE_S:
            return None
        return max(0.0, came_s - sent_s.item() - self._channels[peer].ahead_s)

    def _died(self, peer: int, reason: str) -> LinkDead:
        self._dead.add(peer)
        return LinkDead(peer, reason)
