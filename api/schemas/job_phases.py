"""Jobs of phases: what callers send, and the layout of each phase."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from autotuner.catalog.software import load_stack
from autotuner.core.job import MOST_PHASES, JobPhase, PhasedJob, SwitchCost
from autotuner.requests import GivenAxes, GivenLayout, PredictedJobRequest
from autotuner.search.planning.phases import PhasesQuestion
from autotuner.service.build import App


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesRequest(PredictedJobRequest):
    """A job of phases, to be told the layout of each.

    Attributes:
        num_tokens: Of the whole training.
        phases: In their order; their `token_share` sum to 1. What a phase leaves out is as the job has it.
        switch: What a switch between layouts costs; what is left out is as published, or measured, for such hardware.
        space: Values each axis may take in every phase, as in a sweep.
        stack: Name of the software that would run it, from the catalog.
        current: The layout that runs before the first phase; null: none does.
    """

    num_tokens: Annotated[float, Field(gt=0)]
    phases: Annotated[tuple[JobPhase, ...], Field(min_length=1, max_length=MOST_PHASES)]
    switch: SwitchCost = field(default_factory=SwitchCost)
    space: GivenAxes = field(default_factory=dict)
    stack: str = "torch"
    current: GivenLayout | None = None

    def resolved(self, app: App) -> PhasesQuestion:
        """What is asked, with its names resolved.

        Raises:
            InvalidInput: The phases are none that a job can go through.
            NotFound: A name is neither stored nor in the catalog.
        """
        job = self.known_job(app, load_stack(self.stack))
        phased = PhasedJob(job=job, num_tokens=self.num_tokens, phases=self.phases, switch=self.switch)
        return PhasesQuestion(phased=phased, axes=self.space, current=self.current)
