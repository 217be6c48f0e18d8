"""Channel: the way to one other pipeline rank, which ranks have one, and where their processes meet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import (  # type: ignore[attr-defined]  # Store is exported, but not by name
    FileStore,
    PrefixStore,
    Store,
    TCPStore,
)

from autotuner.schedules.schedule import Schedule

# Channel: the way to one other pipeline rank, through the pipeline's process group or one of the two ranks' own.

_NUM_ROUND_TRIPS = 8
"""From which the difference of two clocks is known to a part of the shortest; the first of them connect."""

_NEVER_SENT = 2**31 - 1
"""A tag that no message has."""


class Work(Protocol):
    """A send or receive that is under way."""

    def wait(self) -> object:
        """Return when it is done."""

    def is_completed(self) -> bool:
        """Whether it is done."""


class Channel(Protocol):
    """Tensors to and from one other rank."""

    tells_moments: bool
    """Each message is followed by the moment at which it was sent."""
    ahead_s: float
    """What has to be added to the other host's clock to get this one's."""

    def send(self, tensor: Tensor, tag: int) -> Work:
        """Start to send."""

    def receive(self, buffer: Tensor, tag: int) -> Work:
        """Start to receive."""

    def break_off(self) -> None:
        """Let nothing pass any more, so that both ranks notice at once."""


class GroupChannel:
    """Through a process group of several ranks, as torch's own schedules send."""

    def __init__(self, group: dist.ProcessGroup, peer: int) -> None:
        """``peer`` is a rank of the group."""
        self._group, self._peer = group, peer
        self.tells_moments, self.ahead_s = False, 0.0

    def send(self, tensor: Tensor, tag: int) -> Work:
        """Start to send."""
        work = dist.isend(tensor, group=self._group, tag=tag, group_dst=self._peer)
        assert work is not None  # this rank is in its group
        return work

    def receive(self, buffer: Tensor, tag: int) -> Work:
        """Start to receive."""
        work = dist.irecv(buffer, group=self._group, tag=tag, group_src=self._peer)
        assert work is not None  # as above
        return work

    def break_off(self) -> None:
        """Leave it: others need the group."""


class PairChannel:
    """Through a process group of the two ranks alone, which can break without any other; gloo, or NCCL on GPUs."""

    def __init__(self, store: Store, *, is_upper: bool, device: torch.device, timeout_s: float) -> None:
        """The two ranks meet in a store of their own; one of them is the upper."""
        self._peer = 0 if is_upper else 1
        self._is_gloo = device.type == "cpu"
        timeout = timedelta(seconds=timeout_s)
        self.tells_moments, self.ahead_s = self._is_gloo, 0.0
        if self._is_gloo:
            self._group: Any = dist.ProcessGroupGloo(store, int(is_upper), 2, timeout)
            self.ahead_s = self._clock_difference_s(is_upper=is_upper)
        else:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            self._group = dist.ProcessGroupNCCL(store, int(is_upper), 2, options)

    def send(self, tensor: Tensor, tag: int) -> Work:
        """Start to send."""
        work: Work = self._group.send([tensor], self._peer, tag)
        return work

    def receive(self, buffer: Tensor, tag: int) -> Work:
        """Start to receive."""
        work: Work = self._group.recv([buffer], self._peer, tag)
        return work

    def break_off(self) -> None:
        """Let nothing pass any more: gloo closes a connection over which a receive timed out."""
        if not self._is_gloo:
            self._group.abort()
            return
        with suppress(RuntimeError):
            self._group.recv([torch.empty(1)], self._peer, _NEVER_SENT).wait(timedelta(milliseconds=1))

    def _clock_difference_s(self, *, is_upper: bool) -> float:
        """This host's monotonic clock less the other's: of a few round trips the shortest, half of it each way."""
        moment = torch.empty(1, dtype=torch.float64)
        found = []
        for number in range(_NUM_ROUND_TRIPS):
            began_s = time.monotonic()
            if is_upper:
                self.send(moment.fill_(0.0), number).wait()
            self.receive(moment, number).wait()
            if is_upper:
                now_s = time.monotonic()
                found.append((now_s - began_s, (began_s + now_s) / 2 - moment.item()))
            else:
                self.send(torch.tensor([time.monotonic()], dtype=torch.float64), number).wait()
        difference = torch.tensor([min(found)[1] if is_upper else 0.0], dtype=torch.float64)
        if is_upper:
            self.send(difference, _NUM_ROUND_TRIPS).wait()
            return difference.item()
        self.receive(difference, _NUM_ROUND_TRIPS).wait()
        return -difference.item()


# Meeting: where processes of different ranks find each other, without the process group that all ranks share.

_PREFIX = "pipelines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A store that any process of the job can open by itself: it outlives whatever breaks among others."""

    path: str = ""
    """Of a file that all ranks see; empty: a server at ``host`` and ``port``."""
    host: str = ""
    port: int = 0
    timeout_s: float = 60.0

    @classmethod
    def beside(cls, store: Store | None, environment: Mapping[str, str]) -> Meeting:
        """Beside the file in which ranks meet, or at the address that torchrun gave to the environment."""
        if isinstance(store, FileStore):
            path: str = store.path  # type: ignore[attr-defined]  # torch's stubs do not name it
            return cls(path=f"{path}.{_PREFIX}")
        return cls(host=environment["MASTER_ADDR"], port=int(environment["MASTER_PORT"]))

    def store(self, name: str) -> Store:
        """A new connection, for whoever knows the name."""
        if self.path:
            whole: Store = FileStore(self.path, -1)
        else:
            timeout = timedelta(seconds=self.timeout_s)
            whole = TCPStore(self.host, self.port, is_master=False, timeout=timeout, wait_for_workers=False)
        return PrefixStore(f"{_PREFIX}/{name}", whole)


# Which pipeline ranks exchange messages, and the channels between them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """A rank of a pipeline among those that it exchanges messages with."""

    rank: int
    """Of the pipeline."""
    peers: tuple[int, ...]
    """Other ranks of it, in order."""
    pipeline: str = "0"
    """Which pipeline of the job; no other has that name."""

    @classmethod
    def of(cls, schedule: Schedule, rank: int, pipeline: str = "0") -> Neighbourhood:
        """What a schedule makes of a rank."""
        return cls(rank=rank, peers=tuple(neighbours(schedule, rank)), pipeline=pipeline)

    def pair(self, peer: int) -> str:
        """A name for both ranks, on both the same."""
        return f"{self.pipeline}/{min(self.rank, peer)}_{max(self.rank, peer)}"


def neighbours(schedule: Schedule, rank: int) -> list[int]:
    """The ranks that hold a stage before or behind one of this rank's."""
    rank_of = schedule.rank_of
    own = [stage for stage, holder in rank_of.items() if holder == rank]
    around = {rank_of[other] for stage in own for other in (stage - 1, stage + 1) if other in rank_of}
    return sorted(around - {rank})


def group_channels(group: dist.ProcessGroup, peers: Iterable[int]) -> dict[int, Channel]:
    """Channels through the group of the whole pipeline, whose ranks are those of the pipeline."""
    return {peer: GroupChannel(group, peer) for peer in peers}


def pair_channels(
    meeting: Meeting, around: Neighbourhood, device: torch.device, *, timeout_s: float
) -> dict[int, Channel]:
    """A channel of its own to every neighbour; all of them must make theirs at the same time."""
    # in this order no two wait for each other in a circle
    return {peer: pair_channel(meeting, around, peer, device, timeout_s=timeout_s) for peer in around.peers}


def pair_channel(
    meeting: Meeting, around: Neighbourhood, peer: int, device: torch.device, *, timeout_s: float, attempt: int = 0
) -> Channel:
    """A channel to one neighbour; both count the same attempts."""
    store = meeting.store(f"inline/{around.pair(peer)}/{attempt}")
    return PairChannel(store, is_upper=around.rank > peer, device=device, timeout_s=timeout_s)
