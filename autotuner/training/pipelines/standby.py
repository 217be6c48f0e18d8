"""Standby: the delegates of a rank, and the pipeline that they send for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.schedules.schedule import Schedule
from autotuner.training.pipelines.channels import Channel, Neighbourhood, PairChannel, Rendezvous, pair_channels
from autotuner.training.pipelines.delegated import DelegatedTransport
from autotuner.training.pipelines.delegates import Delegates
from autotuner.training.pipelines.inline import InlineTransport
from autotuner.training.pipelines.pipeline import ResilientPipeline, TimedStage
from autotuner.training.pipelines.switched import SwitchedTransport
from autotuner.training.pipelines.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """The delegates of a rank, and the store through which ranks find each other.

    A delegate is a process that sends and receives for a rank.
    """

    rendezvous: Rendezvous
    around: Neighbourhood
    delegates: Delegates | None
    """Delegates that send for the rank; None: the rank itself sends everything."""
    timeout_s: float
    """Seconds after which a message that has not arrived counts as lost."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the rank's delegates (processes that send and receive for it); empty without delegates."""
        return () if self.delegates is None else self.delegates.pids

    @classmethod
    def start(
        cls,
        around: Neighbourhood,
        *,
        num_delegates: int = 1,
        timeout_s: float = 300.0,
        store: Store | None = None,
        pinned: bool | None = None,
    ) -> Self:
        """Fork the delegates of a rank: processes that send and receive for it.

        Call this before ``init_process_group``, and before CUDA is used.

        Args:
            around: The rank and its neighbours: ``Neighbourhood.of(schedule, rank)`` with any schedule of the pipeline.
            num_delegates: Number of delegates per neighbour and direction. Use a link's delay divided by the time of a
                micro-batch, rounded up. 0: no delegates.
            timeout_s: Seconds after which a message counts as lost.
            store: Store through which ranks find each other; None: the store of torchrun.
            pinned: True if a GPU reads and writes the messages of delegates; None: True if there is a GPU.
        """
        rendezvous = Rendezvous.beside(store, os.environ)
        delegates = None
        if num_delegates:
            pinned = torch.cuda.is_available() if pinned is None else pinned
            delegates = Delegates.start(rendezvous, around, num_delegates, timeout_s=timeout_s, pinned=pinned)
        return cls(rendezvous=rendezvous, around=around, delegates=delegates, timeout_s=timeout_s)

    def pipeline(
        self,
        stages: Sequence[TimedStage],
        schedule: Schedule,
        *,
        loss_fn: Callable[..., Tensor],
        scale_grads: bool = True,
    ) -> ResilientPipeline:
        """Return the rank's stages as a pipeline in which the rank itself sends at first.

        Call this after ``init_process_group``. If a link fails, delegates (processes that send for the rank) carry its
        messages.

        Args:
            stages: The pipeline stages of this rank.
            schedule: Schedule of the first step.
            loss_fn: Function that computes the loss.
            scale_grads: True: divide the gradients by the number of micro-batches.
        """
        transport = self.transport(schedule, torch.device(stages[0].device))
        return ResilientPipeline(stages, schedule, transport=transport, loss_fn=loss_fn, scale_grads=scale_grads)

    def transport(
        self, schedule: Schedule, device: torch.device, *, is_delegated: bool = False, seed: int = 0
    ) -> Transport:
        """Connect the rank with its neighbours, and return the transport that sends and receives for it.

        All ranks must call it at the same time, after ``init_process_group``. ``schedule`` may be any schedule of the
        pipeline. If ``is_delegated`` is True, delegates send from the first step on. ``seed`` is the seed of the random
        jitter of emulated links.
        """
        rank, num_micro_batches = self.around.rank, schedule.num_micro_batches
        channels = pair_channels(self.rendezvous, self.around, device, timeout_s=self.timeout_s)
        inline = InlineTransport(rank, channels, num_micro_batches, device=device, seed=seed)
        if self.delegates is None:
            return inline
        ahead_s = {peer: channel.ahead_s for peer, channel in channels.items()}

        def reconnect(peer: int, attempt: int) -> Channel:
            return PairChannel(
                self.rendezvous, self.around, peer, device=device, timeout_s=self.timeout_s, attempt=attempt
            )

        delegated = DelegatedTransport(rank, self.delegates, num_micro_batches, ahead_s=ahead_s, seed=seed)
        return SwitchedTransport(inline, delegated, schedule.num_stages, is_delegated=is_delegated, reconnect=reconnect)
