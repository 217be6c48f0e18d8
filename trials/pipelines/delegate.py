"""Delegate: a process that sends, or receives, for a rank, over a gloo group of its own with its counterpart."""

from __future__ import annotations

import gc
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

from trials.pipelines.channel import Work
from trials.pipelines.meeting import Meeting
from trials.pipelines.slots import Slot, Slots, SlotViews
from trials.runtime.parent_death import die_with_parent


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
    """One delegate as its rank sees it.

    Attributes:
        peer: Pipeline rank at the other end.
        connection: Takes ``Send`` and ``Receive``, gives answers; closed when the process ends.
    """

    pid: int
    peer: int
    connection: Connection
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
    die_with_parent(signal.SIGKILL)
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
