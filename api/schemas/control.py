"""What callers change of sweeps that they asked for, and sweeps that are asked for as others were."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field

from autotuner.core.convergence_gate import LossGate
from autotuner.core.documents import GivenFields
from autotuner.core.job import Job
from autotuner.core.objective import Objective
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import Workload
from autotuner.requests import GivenAxes, GivenCluster, GivenModel, named_cluster, named_model
from autotuner.search.expressible import trial_space
from autotuner.service.build import App

_Limits = Annotated[dict[str, Any], GivenFields(Budget)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChange:
    """Another budget of a sweep.

    Attributes:
        budget: Limits in the place of what they were, each for the whole sweep, what it has spent included; one that is
            left out stays.
    """

    budget: _Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepClone:
    """What a new sweep has otherwise than the one that it is cloned from; what is left out is as there.

    Attributes:
        model: As for a new sweep.
        cluster: As for a new sweep.
        space: Values of some axes. With another model or cluster, axes that are left out take the defaults that suit
            them.
        budget: Some limits.
        trial: Some settings.
        loss_gate: Some settings.
    """

    model: GivenModel | None = None
    cluster: GivenCluster | None = None
    workload: Workload | None = None
    space: GivenAxes = field(default_factory=dict)
    budget: _Limits = field(default_factory=dict)
    trial: Annotated[dict[str, Any], GivenFields(TrialSettings)] = field(default_factory=dict)
    seed: Annotated[int, Field(ge=0)] | None = None
    name: str | None = None
    objective: Objective | None = None
    max_parallel_trials: Annotated[int, Field(ge=1)] | None = None
    loss_gate: Annotated[dict[str, Any], GivenFields(LossGate)] = field(default_factory=dict)

    def resolved(self, app: App, original: SweepRequest) -> SweepRequest:
        """The sweep that is asked for; what a retune or an MFU gate compares is none of it.

        Raises:
            InvalidInput: A value breaks a rule together with those of the original.
            NotFound: A name is neither stored nor in the catalog.
        """
        job, gate = self._job(app, original.job), replace(original.loss_gate, **self.loss_gate)
        space = trial_space(job, original.trainer, self.space, is_gated=gate.enabled)
        if self.model is None and self.cluster is None:
            space = original.space.with_axes(**{axis: getattr(space, axis) for axis in self.space})
        said = {name: getattr(self, name) for name in ("seed", "name", "objective", "max_parallel_trials")}
        return replace(
            original,
            job=job,
            space=space,
            budget=replace(original.budget, **self.budget),
            trial=replace(original.trial, **self.trial),
            loss_gate=gate,
            challenge=None,
            **{name: value for name, value in said.items() if value is not None},
        )

    def _job(self, app: App, job: Job) -> Job:
        """Without what runs told of its cluster, where it is another."""
        job = job if self.workload is None else replace(job, workload=self.workload)
        job = job if self.model is None else replace(job, model=named_model(self.model, app))
        if self.cluster is None:
            return job
        return replace(job, cluster=named_cluster(self.cluster, app), calibration=None)
