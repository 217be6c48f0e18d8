"""DelegatedTransport: delegate processes send and receive for a rank, so that a slow link does not block its passes.

The delegates of a neighbour and direction take micro-batches in turn. A delegate is busy with a message until it has
arrived, so that a slow link needs several delegates. The method is PipeMorph's (arXiv 2504.19232).
"""

from __future__ import annotations

import random
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.training.pipelines.delegates import Arrived, Delegate, Delegates, Failed, Receive, Send, Sent, Slot
from autotuner.training.pipelines.transport import Arrival, LinkConditions, Message


class DelegateFailed(AutotunerError, ConnectionError):
    """Raised when a delegate (a process that sends or receives for this rank) cannot continue."""

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(f"a delegate (helper process) for sends to pipeline rank {peer} failed: {reason}")
        self.peer = peer


class DelegatedTransport:
    """A transport in which delegates (other processes) send and receive all messages of the rank.

    The rank copies a message into memory that it shares with the delegate, and continues. On a GPU, copies run in
    separate streams, and a thread informs the delegate when a copy is complete. ``ahead_s`` has, for each neighbour,
    the seconds to add to a time of its clock to get the time of this host's clock. ``seed`` is the seed of the random
    jitter of emulated links.
    """

    is_delegated = True
    dead_peers: frozenset[int] = frozenset()  # delegates reach every peer

    def __init__(
        self,
        rank: int,
        delegates: Delegates,
        num_micro_batches: int,
        *,
        ahead_s: Mapping[int, float] | None = None,
        seed: int = 0,
    ) -> None:
        self.conditions = LinkConditions()
        self._rank = rank
        self._delegates = delegates
        self._num_micro_batches = num_micro_batches
        self._ahead_s = ahead_s or {}
        self._chance = random.Random(f"{seed} {rank}")
        self._selector = selectors.DefaultSelector()
        for one in delegates.all:
            self._selector.register(one.connection, selectors.EVENT_READ, one)
        self._num_sending = 0
        self._arrived: dict[tuple[int, int], float] = {}
        self._gpu: _Gpu | None = None

    def switch(self, *, delegated: bool) -> None:
        """Raise an error unless ``delegated`` is True, because in this transport delegates always send.

        A delegate is a process that sends for a rank.
        """
        if not delegated:
            raise InvalidInput("delegated", delegated, "must be True, because in this transport only delegates send")

    def begin(self, expected: Sequence[tuple[Message, Tensor]]) -> None:
        """Ask the delegates (processes that receive for this rank) to wait for all messages of the step.

        Args:
            expected: Messages that this rank receives in the step, each with its buffer.
        """
        self._arrived.clear()
        self.expect(expected)

    def expect(self, expected: Sequence[tuple[Message, Tensor]]) -> None:
        """Ask the delegates (processes that receive for this rank) to wait for more messages.

        They still wait for earlier expected messages too.

        Args:
            expected: The additional messages, each with its buffer.
        """
        asked: dict[int, list[tuple[Slot, int]]] = {}
        by_pid = {one.pid: one for group in self._delegates.receiving.values() for one in group}
        for message, buffer in expected:
            delegate = self._of(self._delegates.receiving, message)
            tag = message.tag(self._num_micro_batches)
            asked.setdefault(delegate.pid, []).append((delegate.slots.of(tag, buffer.nbytes), tag))
        for pid, slots in asked.items():
            self._tell(by_pid[pid], Receive(tuple(slots)))

    def send(self, message: Message, tensor: Tensor) -> None:
        """Copy a tensor to the memory of a delegate, which is a process that sends for this rank.

        The delegate waits for the emulated delay of the link, then sends the tensor.
        """
        delegate = self._of(self._delegates.sending, message)
        tag = message.tag(self._num_micro_batches)
        slot = delegate.slots.of(tag, tensor.nbytes)
        held_s = self.conditions.between(self._rank, message.peer).hold_s(tensor.nbytes, self._chance)
        room = delegate.slots.message(slot, tensor)
        delegate.slots.sent_s(slot)[0] = time.monotonic()
        self._num_sending += 1
        if tensor.is_cuda:
            self._on_gpu(tensor.device).fetch(tensor, room, lambda: self._tell(delegate, Send(slot, tag, held_s)))
        else:
            room.copy_(tensor)
            self._tell(delegate, Send(slot, tag, held_s))

    def receive(self, message: Message, buffer: Tensor) -> Arrival:
        """Return a function that waits for the message.

        A delegate (a process that receives for this rank) has waited for the message since the step began.
        """
        return partial(self.take, message, buffer)

    def finish(self) -> None:
        """Wait until the delegates (processes that send for this rank) have sent all messages.

        The memory of the messages may then be used again.
        """
        while self._num_sending:
            self._hear()

    def close(self) -> None:
        """End the processes of the delegates, which send and receive for this rank."""
        self._selector.close()
        self._delegates.end()

    def take(self, message: Message, buffer: Tensor) -> float:
        """Wait for a message, copy it into the buffer and return the seconds since it was sent."""
        delegate = self._of(self._delegates.receiving, message)
        tag = message.tag(self._num_micro_batches)
        while (message.peer, tag) not in self._arrived:
            self._hear()
        slots = delegate.slots
        slot = slots.of(tag, buffer.nbytes)
        room = slots.message(slot, buffer)
        with torch.no_grad():
            if buffer.is_cuda:
                self._on_gpu(buffer.device).put(room, buffer)
            else:
                buffer.copy_(room)
        sent_s = slots.sent_s(slot).item() + self._ahead_s.get(message.peer, 0.0)
        return max(0.0, self._arrived.pop((message.peer, tag)) - sent_s)

    def _of(self, delegates: Mapping[int, tuple[Delegate, ...]], message: Message) -> Delegate:
        """Return the delegate for a message. Both ranks select the same delegate."""
        of_peer = delegates[message.peer]
        return of_peer[message.micro_batch % len(of_peer)]

    def _hear(self) -> None:
        """Wait until any delegate answers, and process its answer."""
        for key, _ in self._selector.select():
            delegate: Delegate = key.data
            try:
                answer = delegate.connection.recv()
            except (EOFError, OSError) as error:
                raise DelegateFailed(delegate.peer, "its process ended") from error
            match answer:
                case Sent():
                    self._num_sending -= 1
                case Arrived(tag, moment_s):
                    self._arrived[delegate.peer, tag] = moment_s
                case Failed(reason):
                    raise DelegateFailed(delegate.peer, reason)

    def _tell(self, delegate: Delegate, request: Send | Receive) -> None:
        try:
            delegate.connection.send(request)
        except OSError as error:
            self._hear()  # the delegate's last answer, if there is one
            raise DelegateFailed(delegate.peer, "its process ended") from error

    def _on_gpu(self, device: torch.device) -> _Gpu:
        if self._gpu is None:
            self._gpu = _Gpu(device)
        return self._gpu


class _Gpu:
    """Copies between a GPU and the host during the passes, on a separate stream for each direction."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._out, self._in = torch.cuda.Stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copies: SimpleQueue[tuple[Any, Callable[[], None]]] = SimpleQueue()
        Thread(target=self._tell_when_done, name="copies of delegated sends", daemon=True).start()

    def fetch(self, tensor: Tensor, room: Tensor, then: Callable[[], None]) -> None:
        """Copy the result of the passes so far to the host, and call ``then`` when the copy is complete."""
        self._out.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._out):
            room.copy_(tensor, non_blocking=True)
            tensor.record_stream(self._out)
            self._copies.put((self._out.record_event(), then))

    def put(self, room: Tensor, buffer: Tensor) -> None:
        """Copy the input of the next pass to the GPU."""
        self._in.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._in):
            buffer.copy_(room, non_blocking=True)
        torch.cuda.current_stream(self._device).wait_stream(self._in)

    def _tell_when_done(self) -> None:
        while True:
            copied, then = self._copies.get()
            copied.synchronize()
            then()
