"""PastTrial: what a stored trial tells of later predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotuner.core import check
from autotuner.core.jobs.job import Job
from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.measurement import Breakdown, PhaseTimes
from autotuner.errors import InvalidInput

__all__ = ["PastTrial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTrial:
    """A trial that ran, or ran out of memory, as evidence about the jobs that come after it.

    Attributes:
        job: What ran: of a small trial its own model, workload and cluster, not those of the job that it stood for;
            its accelerator's memory is what a rank might use, the trial's own budget if that was less.
        layout: What ran.
        step_time_s: Measured, also of a trial that was pruned; None where it ran out of memory.
        peak_bytes: That the fullest rank had allocated; None where nobody told.
        sweep_id: The sweep that it belongs to.
        trainer: Name of the registered trainer that ran it; None: our own decoder.
        finished_at: Epoch seconds.
        environment: As it recorded its own; empty where it recorded none.
        parts: Where its step went, as measured; None where nobody divided it.
        foreign_share: Share of the processors that it ran on which other processes used meanwhile, 0..1.
    """

    job: Job
    layout: Layout
    step_time_s: float | None
    sweep_id: str
    finished_at: float
    peak_bytes: float | None = None
    trainer: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    parts: Breakdown | PhaseTimes | None = None
    foreign_share: float = 0.0

    def __post_init__(self) -> None:
        if self.step_time_s is not None:
            check.positive(self, "step_time_s")
        check.fraction(self, "foreign_share")
        if self.peak_bytes is not None:
            check.positive(self, "peak_bytes")
        if self.layout.world_size != self.job.cluster.world_size:
            rule = "must have as many ranks as the cluster of its job"
            raise InvalidInput("layout", self.layout.world_size, rule, self.job.cluster.world_size)

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether it did; else it ran, and has a step time."""
        return self.step_time_s is None
