"""For any trainer: pipelines that bear slow links, without a service. ``docs/resilient-pipelines.md`` shows how."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autotuner.schedules.planner import plan
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import PassTimes
from autotuner.training.pipelines.channel import Channel, Meeting, Neighbourhood, pair_channel, pair_channels
from autotuner.training.pipelines.controller import ControlGroup, Controller, StageTimes, agreed_times
from autotuner.training.pipelines.delegated import DelegatedTransport, Delegates
from autotuner.training.pipelines.inline import InlineTransport
from autotuner.training.pipelines.pipeline import PlannedPipeline, PlannedStage
from autotuner.training.pipelines.steering import Powers
from autotuner.training.pipelines.switched import SwitchedTransport
from autotuner.training.pipelines.transport import LinkCondition, LinkConditions

__all__ = [
    "ControlGroup",
    "Controller",
    "LinkCondition",
    "LinkConditions",
    "PassTimes",
    "PlannedPipeline",
    "PlannedStage",
    "Powers",
    "Schedule",
    "StageTimes",
    "Standby",
    "agreed_times",
    "plan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """Delegates of a rank that stand by its pipeline, and where its neighbours are found."""

    meeting: Meeting
    around: Neighbourhood
    delegates: Delegates
    timeout_s: float
    """After which a message never comes."""

    @classmethod
    def start(
        cls, schedule: Schedule, rank: int, *, num_delegates: int = 1, pipeline: str = "0", timeout_s: float = 300.0
    ) -> Standby:
        """Fork the delegates of a rank under torchrun; before ``init_process_group``, and before CUDA is used.

        Args:
            schedule: Any of the pipeline: it tells which ranks are neighbours.
            rank: Of the pipeline.
            num_delegates: Per neighbour and direction; a link's delay over a micro-batch's time, rounded up.
            pipeline: Which one, where the job has several; no other has that name.
            timeout_s: After which a message never comes.
        """
        meeting = Meeting.beside(None, os.environ)
        around = Neighbourhood.of(schedule, rank, pipeline)
        pinned = torch.cuda.is_available()
        delegates = Delegates.start(meeting, around, num_delegates, timeout_s=timeout_s, pinned=pinned)
        return cls(meeting=meeting, around=around, delegates=delegates, timeout_s=timeout_s)

    def pipeline(
        self,
        stages: Sequence[PlannedStage],
        schedule: Schedule,
        *,
        loss_fn: Callable[..., Tensor],
        scale_grads: bool = True,
    ) -> PlannedPipeline:
        """The rank's stages as a pipeline that sends by itself while it can; behind ``init_process_group``."""
        device, num_micro_batches = torch.device(stages[0].device), schedule.num_micro_batches
        channels = pair_channels(self.meeting, self.around, device, timeout_s=self.timeout_s)
        ahead_s = {peer: channel.ahead_s for peer, channel in channels.items()}

        def reconnect(peer: int, attempt: int) -> Channel:
            return pair_channel(self.meeting, self.around, peer, device, timeout_s=self.timeout_s, attempt=attempt)

        transport = SwitchedTransport(
            InlineTransport(self.around.rank, channels, num_micro_batches, device=device),
            DelegatedTransport(self.around.rank, self.delegates, num_micro_batches, ahead_s=ahead_s),
            schedule.num_stages,
            reconnect=reconnect,
        )
        return PlannedPipeline(stages, schedule, transport=transport, loss_fn=loss_fn, scale_grads=scale_grads)
