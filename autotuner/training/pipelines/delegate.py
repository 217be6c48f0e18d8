"""Delegate: a process that sends, or receives, for a rank, over a gloo group of its own with its counterpart."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import signal
import time
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.training.pipelines.channel import Meeting, Work

# Slots: room for messages in memory that a rank shares with one of its delegates.

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; memfd_create above it is Linux's too

_HEADER_BYTES = 64
"""The moment of sending, in front of what is sent, which so begins where any dtype may."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a message of a size lies."""

    offset: int
    num_bytes: int


class SlotViews:
    """Slots as tensors, in whichever process has the memory's descriptor; each is mapped when it is first asked for.

    The memory has no name: it is gone with the last process that maps it, however these end.
    """

    def __init__(self, descriptor: int, *, pinned: bool = False) -> None:
        """``pinned``: the pages are CUDA's to read and write while the CPU goes on."""
        self._descriptor = descriptor
        self._pinned = pinned
        self._whole: dict[Slot, Tensor] = {}

    def whole(self, slot: Slot) -> Tensor:
        """Header and message as bytes, which is what travels."""
        if slot not in self._whole:
            size = _HEADER_BYTES + slot.num_bytes
            room = torch.frombuffer(mmap.mmap(self._descriptor, size, offset=slot.offset), dtype=torch.uint8)
            if self._pinned:
                torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(room.data_ptr(), size, 0))  # type: ignore[no-untyped-call]
            self._whole[slot] = room
        return self._whole[slot]

    def message(self, slot: Slot, like: Tensor) -> Tensor:
        """What is sent, with the shape and dtype of a tensor."""
        return self.whole(slot)[_HEADER_BYTES:].view(like.dtype).view(like.shape)

    def sent_s(self, slot: Slot) -> Tensor:
        """The moment at which it was sent: one float64, on the sender's clock."""
        return self.whole(slot)[:8].view(torch.float64)


class Slots:
    """The rank's side: gives every message of a step a slot that it keeps from step to step."""

    def __init__(self, *, pinned: bool = False) -> None:
        self.descriptor = os.memfd_create("slots of a delegate")
        self.views = SlotViews(self.descriptor, pinned=pinned)
        self._of_tags: dict[int, Slot] = {}
        self._end = 0

    def of(self, tag: int, num_bytes: int) -> Slot:
        """The slot of the message with a tag; it moves where it no longer fits."""
        slot = self._of_tags.get(tag)
        if slot is None or slot.num_bytes != num_bytes:
            slot = self._of_tags[tag] = Slot(self._end, num_bytes)
            pages = -(-(_HEADER_BYTES + num_bytes) // mmap.PAGESIZE)
            self._end += pages * mmap.PAGESIZE
            os.ftruncate(self.descriptor, self._end)
        return slot

    def close(self) -> None:
        """Give the memory back, as soon as no tensor shows it any more."""
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Send:
    """Asks a delegate to send what lies in a slot, after so many seconds."""

    slot: Slot
    tag: int
    held_s: float


@dataclass(frozen=True, slots=True)
class Receive:
    """Asks a delegate to receive into slots, each the message of a tag."""

    slots: tuple[tuple[Slot, int], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """The slot of a tag may be used again."""

    tag: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """The message of a tag is there, since a moment on this host's clock."""

    tag: int
    moment_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The delegate cannot go on."""

    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegate:
    """One delegate as its rank sees it."""

    pid: int
    peer: int
    """Pipeline rank at the other end."""
    connection: Connection
    """Takes ``Send`` and ``Receive``, gives answers; closed when the process ends."""
    slots: Slots

    @classmethod
    def start(
        cls, meeting: Meeting, name: str, peer: int, *, is_upper: bool, timeout_s: float, pinned: bool
    ) -> Delegate:
        """Fork it, best before this process has threads; it meets the delegate of the same name on the other rank.

        It dies with the thread that starts it.
        """
        slots, parent = Slots(pinned=pinned), os.getpid()
        own, others = Pipe()
        if pid := os.fork():
            others.close()
            return cls(pid=pid, peer=peer, connection=own, slots=slots)
        try:
            _become_delegate(parent)
            own.close()
            _work(others, meeting, name, SlotViews(slots.descriptor), is_upper=is_upper, timeout_s=timeout_s)
        finally:
            os._exit(0)  # nothing of the rank's is this process's to clean up

    def end(self) -> None:
        """End it, whatever it does."""
        self.connection.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.slots.close()


def _become_delegate(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(0)  # it died before the kernel was asked to tell
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a keyboard: the rank decides what becomes of it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # collecting the rank's garbage would touch, and so copy, all of its pages
    torch.set_num_threads(1)


def _work(rank: Connection, meeting: Meeting, name: str, slots: SlotViews, *, is_upper: bool, timeout_s: float) -> None:
    """Do what the rank asks until it closes its side or something fails."""
    try:
        group = dist.ProcessGroupGloo(meeting.store(name), int(is_upper), 2, timedelta(seconds=timeout_s))
        _Worker(rank, group, 0 if is_upper else 1, slots).run()
    except EOFError:
        return
    except Exception as error:
        rank.send(Failed(f"{type(error).__name__}: {error}"))


class _Worker:
    def __init__(self, rank: Connection, group: Any, peer: int, slots: SlotViews) -> None:
        self._rank, self._group, self._peer, self._slots = rank, group, peer, slots
        self._coming: deque[tuple[int, Work]] = deque()

    def run(self) -> None:
        while True:
            request = self._rank.recv()
            if isinstance(request, Send):
                self._send(request)
            else:
                self._receive(request)

    def _send(self, request: Send) -> None:
        if request.held_s > 0:
            time.sleep(request.held_s)
        self._group.send([self._slots.whole(request.slot)], self._peer, request.tag).wait()
        self._rank.send(Sent(request.tag))

    def _receive(self, request: Receive) -> None:
        """Post all at once, so that the order in which they come does not matter."""
        for slot, tag in request.slots:
            self._coming.append((tag, self._group.recv([self._slots.whole(slot)], self._peer, tag)))
        while self._coming:
            tag, work = self._coming.popleft()
            work.wait()
            self._rank.send(Arrived(tag, time.monotonic()))
