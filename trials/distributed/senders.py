"""Senders: what a rank's pipeline sends by, beside the process group of all ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core.choices import P2PTransport, PipelineSchedule
from autotuner.core.placement import place_of
from autotuner.core.trial_spec import TrialSpec
from autotuner.schedules.named import named_schedule
from trials.pipelines.delegated import Delegates
from trials.pipelines.meeting import Meeting
from trials.pipelines.neighbours import Neighbourhood


def is_planned(spec: TrialSpec) -> bool:
    """Whether its pipeline is none of torch's own: planned, with delegates beside it, or over links made slow.

    Torch's own schedules send by operations of their own, which nothing can hold back; the same schedule as a list of
    actions sends over a transport that obeys ``LinkConditions``.
    """
    layout = spec.layout
    by_layout = layout.pipeline_schedule == PipelineSchedule.ADAPTIVE or layout.p2p_transport == P2PTransport.DELEGATED
    return (by_layout or spec.has_slow_links) and layout.pipeline_parallel_degree > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Senders:
    """How the ranks of one pipeline find each other, and who sends for this one.

    Attributes:
        around: This rank among its neighbours.
        delegates: None: nobody but the rank itself.
        timeout_s: After which a message never comes.
    """

    meeting: Meeting
    around: Neighbourhood
    delegates: Delegates | None
    timeout_s: float

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes that work for this rank."""
        return self.delegates.pids if self.delegates is not None else ()

    @classmethod
    def start(cls, spec: TrialSpec, rank: int, device: torch.device, store: Store | None) -> Senders | None:
        """Begin what has to begin before this process joins the others; None where torch's own schedules run.

        Delegates are forks of a process that has no threads yet, and that may use every core still.
        """
        layout = spec.layout
        if not is_planned(spec):
            return None
        place, num_micro_batches = place_of(layout, rank), spec.workload.num_micro_batches(layout)
        ranks, stages_per_rank = layout.pipeline_parallel_degree, layout.virtual_stages_per_rank
        schedule = named_schedule(layout.pipeline_schedule, ranks, stages_per_rank, num_micro_batches)
        around = Neighbourhood.of(schedule, place.stage, f"{place.replica}.{place.shard}.{place.tensor}")
        meeting, timeout_s = Meeting.beside(store, os.environ), spec.settings.timeout_s
        delegates = None
        if layout.p2p_transport == P2PTransport.DELEGATED:
            delegates = Delegates.start(
                meeting, around, layout.num_delegates, timeout_s=timeout_s, pinned=device.type == "cuda"
            )
        return cls(meeting=meeting, around=around, delegates=delegates, timeout_s=timeout_s)
