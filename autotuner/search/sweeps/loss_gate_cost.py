"""What a loss gate has cost so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autotuner.core.trial import EngineJob


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCost:
    """A running gate's claim on accelerators: all the time since it began but for waiting, or what engines' jobs had.

    Attributes:
        began_at: Epoch seconds.
        jobs: What engines were given for it, by name.
        waits_since: When it began to wait for devices; None while it has them.
        waited_s: How long it waited before.
    """

    began_at: float
    jobs: Mapping[str, EngineJob] = field(default_factory=dict)
    waits_since: float | None = None
    waited_s: float = 0.0

    def waits(self, now: float, *, is_waiting: bool) -> GateCost:
        """Return the cost of a gate that waits for devices from now on, or goes on."""
        waited_s = self.waited_s + (0.0 if self.waits_since is None else now - self.waits_since)
        return replace(self, waits_since=now if is_waiting else None, waited_s=waited_s)

    def placed(self, job: EngineJob) -> GateCost:
        """With a job as it stands now."""
        return replace(self, jobs={**self.jobs, job.name: job})

    def seconds(self, now: float) -> float:
        """How long it has had accelerators; jobs that wait have none."""
        if self.jobs:
            return sum(job.running_s(now) for job in self.jobs.values())
        until = now if self.waits_since is None else self.waits_since
        return until - self.began_at - self.waited_s
