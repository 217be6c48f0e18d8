"""Channel: a connection to one other pipeline rank, and the store through which processes find each other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

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

_NUM_ROUND_TRIPS = 8
"""Number of round trips from which the difference of two clocks is estimated. The shortest round trip counts; the first
ones only set up the connection."""

_NEVER_SENT = 2**31 - 1
"""Tag of a message that is never sent."""


class Channel:
    """Sends tensors of a pipeline to one other rank, and receives tensors from it, over the pipeline's process group.

    Attributes:
        tells_moments: True if a second message follows each message and contains the time at which it was sent.
        ahead_s: Seconds to add to a time of the other host's clock to get the time of this host's clock.
    """

    def __init__(self, group: Any, peer: int) -> None:
        """Use a process group of several ranks, as torch's own schedules do. ``peer`` is a rank of the group."""
        self._group, self._peer = group, peer
        self.tells_moments, self.ahead_s = False, 0.0

    def send(self, tensor: Tensor, tag: int) -> dist.Work:
        """Begin to send a tensor to the other rank, which must receive it with the same ``tag``."""
        work: dist.Work = self._group.send([tensor], self._peer, tag)
        return work

    def receive(self, buffer: Tensor, tag: int) -> dist.Work:
        """Begin to receive into the buffer the tensor that the other rank sends with the same ``tag``."""
        work: dist.Work = self._group.recv([buffer], self._peer, tag)
        return work

    def break_off(self) -> None:
        """Do nothing. This channel must not break the process group, because other ranks use the group too."""


class PairChannel(Channel):
    """A channel with its own process group for two ranks. If it breaks, other ranks can still communicate.

    The group uses gloo for tensors on a CPU, and NCCL for tensors on a GPU.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        around: Neighbourhood,
        peer: int,
        *,
        device: torch.device,
        timeout_s: float,
        attempt: int = 0,
    ) -> None:
        """Connect to the other rank through a store that only the two ranks use.

        Both ranks must count the same attempts.
        """
        store = rendezvous.store(f"inline/{around.pair(peer)}/{attempt}")
        is_upper, timeout = around.rank > peer, timedelta(seconds=timeout_s)
        if device.type == "cpu":
            super().__init__(dist.ProcessGroupGloo(store, int(is_upper), 2, timeout), 0 if is_upper else 1)
            self.tells_moments, self.ahead_s = True, self._clock_difference_s(is_upper=is_upper)
        else:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            super().__init__(dist.ProcessGroupNCCL(store, int(is_upper), 2, options), 0 if is_upper else 1)

    def break_off(self) -> None:
        """Break the connection, so that both ranks get an error.

        With gloo, a receive with a short timeout closes the connection. With NCCL, the process group is aborted.
        """
        if not self.tells_moments:
            self._group.abort()
            return
        with suppress(RuntimeError):
            self.receive(torch.empty(1), _NEVER_SENT).wait(timedelta(milliseconds=1))

    def _clock_difference_s(self, *, is_upper: bool) -> float:
        """Return this host's monotonic clock minus the other host's, from the shortest of a few round trips."""
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


# ---------------------------------------------------------------- where processes meet
_PREFIX = "pipelines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """The address of a key-value store through which the processes of a job find each other.

    Each process can open the store by itself. The store continues to work when process groups break.
    """

    path: str = ""
    """Path of a file that all ranks can read and write; empty: a server at ``host`` and ``port``."""
    host: str = ""
    port: int = 0
    timeout_s: float = 60.0

    @classmethod
    def beside(cls, store: Store | None, environment: Mapping[str, str]) -> Self:
        """Return the rendezvous for a job: a new file next to the job's file store, or the address that torchrun gives.

        Args:
            store: Store that the ranks of the job use already. If it is a ``FileStore``, the new store is a file in the
                same folder.
            environment: Environment variables. For any other store, they must include ``MASTER_ADDR`` and
                ``MASTER_PORT``.
        """
        if isinstance(store, FileStore):
            path: str = store.path  # type: ignore[attr-defined]  # torch's stubs do not name it
            return cls(path=f"{path}.{_PREFIX}")
        return cls(host=environment["MASTER_ADDR"], port=int(environment["MASTER_PORT"]))

    def store(self, name: str) -> Store:
        """Open a new connection to the store. All processes that use the same ``name`` share the same keys."""
        if self.path:
            whole: Store = FileStore(self.path, -1)
        else:
            timeout = timedelta(seconds=self.timeout_s)
            whole = TCPStore(self.host, self.port, is_master=False, timeout=timeout, wait_for_workers=False)
        return PrefixStore(f"{_PREFIX}/{name}", whole)


# ---------------------------------------------------------------- which ranks exchange messages
@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """A pipeline rank and the ranks to which it sends activations or gradients, or from which it receives them."""

    rank: int
    peers: tuple[int, ...]
    """Other ranks of the pipeline, in order."""
    pipeline: str = "0"
    """Name of the pipeline, which no other pipeline of the job has."""

    @classmethod
    def of(cls, schedule: Schedule, rank: int, pipeline: str = "0") -> Self:
        """Return a rank with its neighbours: the ranks that hold the stage before or after any stage of this rank.

        Args:
            schedule: A schedule of the pipeline.
            rank: Pipeline rank.
            pipeline: Name of the pipeline, which no other pipeline of the job has.
        """
        rank_of = schedule.rank_of
        own = [stage for stage, holder in rank_of.items() if holder == rank]
        holders = {rank_of[other] for stage in own for other in (stage - 1, stage + 1) if other in rank_of}
        return cls(rank=rank, peers=tuple(sorted(holders - {rank})), pipeline=pipeline)

    def pair(self, peer: int) -> str:
        """Return a name for the pair of this rank and ``peer``. Both ranks compute the same name."""
        return f"{self.pipeline}/{min(self.rank, peer)}_{max(self.rank, peer)}"


def pair_channels(
    rendezvous: Rendezvous, around: Neighbourhood, device: torch.device, *, timeout_s: float
) -> dict[int, Channel]:
    """Return a new channel to each neighbour, by the rank of the neighbour. All ranks must call this together.

    Args:
        rendezvous: Store through which ranks find each other.
        around: This rank and its neighbours.
        device: Device of the tensors to send.
        timeout_s: Seconds after which a message counts as lost.
    """
    # in this order, ranks do not wait for each other in a circle
    return {peer: PairChannel(rendezvous, around, peer, device=device, timeout_s=timeout_s) for peer in around.peers}
