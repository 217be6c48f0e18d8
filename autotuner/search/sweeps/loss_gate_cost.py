"""What a loss gate has cost so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autotuner.domain.runs.engine_job import EngineJob

__all__ = ["GateCost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCost:
    """A running gate's claim on accelerators: all the time since it began, or what engines' jobs had of it.

    Attributes:
        began_at: Epoch seconds.
        jobs: What engines were given for it, by name.
    """

    began_at: float
    jobs: Mapping[str, EngineJob] = field(default_factory=dict)

    def placed(self, job: EngineJob) -> GateCost:
        """With a job as it stands now."""
        return replace(self, jobs={**self.jobs, job.name: job})

    def seconds(self, now: float) -> float:
        """How long it has had accelerators; jobs that wait have none."""
        if self.jobs:
            return sum(job.running_s(now) for job in self.jobs.values())
        return now - self.began_at
