"""Which pipeline ranks exchange messages, and the channels between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from autotuner.schedules.actions import Schedule
from trials.pipelines.channel import Channel, GroupChannel, PairChannel
from trials.pipelines.meeting import Meeting


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """A rank of a pipeline among those that it exchanges messages with.

    Attributes:
        rank: Of the pipeline.
        peers: Other ranks of it, in order.
        pipeline: Which pipeline of the job; no other has that name.
    """

    rank: int
    peers: tuple[int, ...]
    pipeline: str = "0"

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
