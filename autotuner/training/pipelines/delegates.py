"""Delegates: processes that send, or receive, for a rank, each over a gloo group with its counterpart.

A rank and its delegate share anonymous memory. The memory is freed with the last process that maps it, however the
processes end. Each message of a step has a slot in the memory.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.errors import InvalidInput
from autotuner.training.pipelines.channels import Neighbourhood, Rendezvous

_HEADER_BYTES = 64
"""Size of the header before a message. The header has the time of sending, and aligns the message for every dtype."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one message in the memory that a rank shares with a delegate, its process for sending."""

    offset: int
    num_bytes: int


class Slots:
    """The shared memory of a rank and one delegate (a process that sends or receives for the rank).

    It has one slot for each message of a step. The rank allocates the memory. A message has the same slot in every
    step. A slot is mapped into a process when the process first uses it. If ``pinned`` is True, the memory is pinned,
    so that CUDA can copy while the CPU continues.
    """

    def __init__(self, descriptor: int | None = None, *, pinned: bool = False) -> None:
        self.descriptor = os.memfd_create("slots of a delegate") if descriptor is None else descriptor
        self._pinned = pinned
        self._whole: dict[Slot, Tensor] = {}
        self._of_tags: dict[int, Slot] = {}
        self._end = 0

    def whole(self, slot: Slot) -> Tensor:
        """Return all bytes of a message's place in shared memory (its slot): a header, then the message.

        The process that sends for this rank sends these bytes.
        """
        if slot not in self._whole:
            size = _HEADER_BYTES + slot.num_bytes
            room = torch.frombuffer(mmap.mmap(self.descriptor, size, offset=slot.offset), dtype=torch.uint8)
            if self._pinned:
                torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(room.data_ptr(), size, 0))  # type: ignore[no-untyped-call]
            self._whole[slot] = room
        return self._whole[slot]

    def message(self, slot: Slot, like: Tensor) -> Tensor:
        """Return the message in a slot (its place in shared memory) as a tensor of the shape and dtype of ``like``."""
        return self.whole(slot)[_HEADER_BYTES:].view(like.dtype).view(like.shape)

    def sent_s(self, slot: Slot) -> Tensor:
        """Return the time at which the message in a slot was sent, as a tensor with one float64.

        The time is in seconds on the sender's clock.
        """
        return self.whole(slot)[:8].view(torch.float64)

    def of(self, tag: int, num_bytes: int) -> Slot:
        """Return the slot (place in shared memory) for messages with this tag.

        If the size of the message has changed, the tag gets a new slot.
        """
        slot = self._of_tags.get(tag)
        if slot is None or slot.num_bytes != num_bytes:
            slot = self._of_tags[tag] = Slot(self._end, num_bytes)
            pages = -(-(_HEADER_BYTES + num_bytes) // mmap.PAGESIZE)
            self._end += pages * mmap.PAGESIZE
            os.ftruncate(self.descriptor, self._end)
        return slot


# ---------------------------------------------------------------- what a rank and its delegate say
@dataclass(frozen=True, slots=True)
class Send:
    """A request to a delegate (a process that sends for a rank): wait ``held_s`` seconds, then send a message."""

    slot: Slot
    tag: int
    held_s: float


@dataclass(frozen=True, slots=True)
class Receive:
    """A request to a delegate (a process that receives for a rank): receive messages.

    Each message has a tag, and a slot in shared memory into which it is written.
    """

    slots: tuple[tuple[Slot, int], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A delegate's answer: the message with this tag was sent, and its slot may be used again.

    A delegate is a process that sends for a rank. A slot is the message's place in their shared memory.
    """

    tag: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """A delegate's answer: the message with this tag arrived at ``moment_s`` on this host's clock.

    A delegate is a process that receives for a rank.
    """

    tag: int
    moment_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A delegate's answer: it cannot continue, for the given reason.

    A delegate is a process that sends or receives for a rank.
    """

    reason: str


# ---------------------------------------------------------------- the rank's side
@dataclass(frozen=True, slots=True, kw_only=True)
class Delegate:
    """The rank's handle to a delegate, which is a process that sends or receives messages for the rank."""

    pid: int
    peer: int
    """Pipeline rank that the delegate exchanges messages with."""
    connection: Connection
    """Connection that accepts ``Send`` and ``Receive`` and returns answers. It closes when the process ends."""
    slots: Slots

    @classmethod
    def start(
        cls, rendezvous: Rendezvous, name: str, peer: int, *, is_upper: bool, timeout_s: float, pinned: bool
    ) -> Self:
        """Fork a process that becomes a delegate of this rank: it sends messages to one other rank, or receives them.

        If possible, call this before this process has threads. The delegate connects to the delegate of the same name
        on the other rank. It ends when the thread that started it ends.

        Args:
            rendezvous: Store in which the two delegates find each other.
            name: Name of the two delegates that connect to each other. No other pair may have this name.
            peer: Pipeline rank at the other end.
            is_upper: True if this rank's number is higher than that of the peer.
            timeout_s: Seconds after which a message counts as lost.
            pinned: True if a GPU reads and writes the messages.
        """
        slots, parent = Slots(pinned=pinned), os.getpid()
        own, others = Pipe()
        if pid := os.fork():
            others.close()
            return cls(pid=pid, peer=peer, connection=own, slots=slots)
        try:
            _become_delegate(parent)
            own.close()
            _work(others, rendezvous, name, Slots(slots.descriptor), is_upper=is_upper, timeout_s=timeout_s)
        finally:
            os._exit(0)  # this process must not clean up objects of the rank

    def end(self) -> None:
        """Kill this delegate, which is a process that sends or receives for the rank.

        The shared memory is freed when no tensor uses it any more.
        """
        self.connection.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.slots.descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegates:
    """All delegates of a rank: for each neighbour, delegates that send to it and delegates that receive from it.

    A delegate is a process that sends or receives for the rank.
    """

    sending: Mapping[int, tuple[Delegate, ...]]
    receiving: Mapping[int, tuple[Delegate, ...]]

    @classmethod
    def start(
        cls,
        rendezvous: Rendezvous,
        around: Neighbourhood,
        num_delegates: int,
        *,
        timeout_s: float,
        pinned: bool = False,
    ) -> Self:
        """Fork ``num_delegates`` processes per neighbour and direction, and return them.

        Call it before this process joins any group, if possible. The delegates of different ranks connect to each other
        by themselves.

        Args:
            rendezvous: Store through which delegates find each other.
            around: The rank and its neighbours.
            num_delegates: Number of delegates per neighbour and direction.
            timeout_s: Seconds after which a message counts as lost.
            pinned: True if a GPU reads and writes the messages.
        """
        if num_delegates < 1:
            raise InvalidInput("num_delegates", num_delegates, "must be 1 or more", 1)

        def towards(peer: int, source: int) -> tuple[Delegate, ...]:
            return tuple(
                Delegate.start(
                    rendezvous,
                    f"delegates/{around.pair(peer)}/from{source}/{number}",
                    peer,
                    is_upper=around.rank > peer,
                    timeout_s=timeout_s,
                    pinned=pinned,
                )
                for number in range(num_delegates)
            )

        return cls(
            sending={peer: towards(peer, around.rank) for peer in around.peers},
            receiving={peer: towards(peer, peer) for peer in around.peers},
        )

    @property
    def all(self) -> tuple[Delegate, ...]:
        """The delegates (processes that send or receive for the rank) for all neighbours and both directions."""
        return tuple(one for group in (*self.sending.values(), *self.receiving.values()) for one in group)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all delegates, which are the processes that send or receive for this rank."""
        return tuple(one.pid for one in self.all)

    def end(self) -> None:
        """Kill all delegates, which are the processes that send or receive for this rank."""
        for one in self.all:
            one.end()


# ---------------------------------------------------------------- the delegate's side
def _become_delegate(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(0)  # the rank died before this process asked for a signal at its death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from a keyboard is the rank's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # collecting the rank's garbage would touch, and so copy, all of its pages
    torch.set_num_threads(1)


def _work(
    rank: Connection, rendezvous: Rendezvous, name: str, slots: Slots, *, is_upper: bool, timeout_s: float
) -> None:
    """Serve the rank's requests until the rank closes the connection or something fails."""
    peer = 0 if is_upper else 1
    try:
        group: Any = dist.ProcessGroupGloo(rendezvous.store(name), int(is_upper), 2, timedelta(seconds=timeout_s))
        while True:
            request = rank.recv()
            if isinstance(request, Send):
                if request.held_s > 0:
                    time.sleep(request.held_s)
                group.send([slots.whole(request.slot)], peer, request.tag).wait()
                rank.send(Sent(request.tag))
                continue
            # all receives are posted at once, so that messages may arrive in any order
            coming = [(tag, group.recv([slots.whole(slot)], peer, tag)) for slot, tag in request.slots]
            for tag, work in coming:
                work.wait()
                rank.send(Arrived(tag, time.monotonic()))
    except EOFError:
        return
    except Exception as error:
        rank.send(Failed(f"{type(error).__name__}: {error}"))
