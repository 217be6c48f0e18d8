"""What callers send to start a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from api.schemas.fault_traces import GivenFaultTrace
from autotuner.catalog.software import load_stack
from autotuner.core.convergence_gate import LossGate
from autotuner.core.fault_trace import at_worst
from autotuner.core.objective import Objective
from autotuner.core.stack import Stack
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial_spec import TrialSettings
from autotuner.requests import GivenAxes, GivenCluster, PredictedJobRequest, named_cluster
from autotuner.search.expressible import trial_space
from autotuner.service.build import App


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCreate(PredictedJobRequest):
    """A sweep to start.

    Attributes:
        space: Values each axis may take; an axis left out takes the default that suits the cluster.
        seed: Same seed, same sequence of trials.
        name: For people; need not be unique.
        objective: What is maximised.
        max_parallel_trials: Trials that run at once where there is room for them.
        loss_gate: How layouts that change the mathematics earn the first rank.
        trainer: Name of a registered trainer, which then runs as the trial; null: our own decoder does.
        trial_cluster: Where trials run, written as ``cluster``: with fewer of the same accelerators. Each trial is then
            a scaled-down one that stands for a layout of the job on ``cluster``, and ranked by what is estimated of
            that; null: trials run on ``cluster``.
        fault_trace: What befalls the cluster's links in further steps of every trial, as text or as an object; layouts
            are then ranked by what they reach under it (``objective.under_faults`` is true). Null: nothing does.
    """

    space: GivenAxes = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    trial: TrialSettings = field(default_factory=TrialSettings)
    seed: Annotated[int, Field(ge=0)] = 0
    name: str = ""
    objective: Objective = field(default_factory=Objective)
    max_parallel_trials: Annotated[int, Field(ge=1)] = 1
    loss_gate: LossGate = field(default_factory=LossGate)
    trainer: str | None = None
    trial_cluster: GivenCluster | None = None
    fault_trace: GivenFaultTrace | None = None

    def resolved(self, app: App) -> SweepRequest:
        """The sweep that is asked for; its trials run PyTorch itself, or the trainer.

        What is wrong is refused before the service's own machine is measured, which takes seconds.

        Raises:
            InvalidInput: The trainer cannot be told what the space asks for.
            NotFound: No trainer is registered under that name.
        """
        if self.would_measure(app):
            self._resolved(app, is_measured=False)
        return self._resolved(app)

    def require_runnable(self, app: App) -> None:
        """Refuse what ``App.create_sweep`` would refuse, where that can be told before this machine is measured.

        Raises:
            InvalidInput: As ``App.require_runnable`` has it.
        """
        if self.would_measure(app):
            app.require_runnable(self._resolved(app, is_measured=False))

    def would_measure(self, app: App) -> bool:
        """Return whether the request names this machine, whose cores nobody has measured yet."""
        clusters = (self.cluster, self.trial_cluster, *(run.cluster for run in self.measured))
        return any(isinstance(one, str) and app.would_measure(one) for one in clusters)

    def _resolved(self, app: App, *, is_measured: bool = True) -> SweepRequest:
        trainer = None if self.trainer is None else app.trainer(self.trainer)
        job = self.job(app, Stack() if trainer is None else load_stack(trainer.stack), is_measured=is_measured)
        return SweepRequest(
            job=job,
            space=app.asides.search(trial_space, job, trainer, self.space, is_gated=self.loss_gate.enabled)
            if trainer
            else trial_space(at_worst(job, self.fault_trace), None, self.space, is_gated=self.loss_gate.enabled),
            budget=self.budget,
            trial=self.trial,
            seed=self.seed,
            name=self.name,
            objective=replace(self.objective, under_faults=self.fault_trace is not None),
            max_parallel_trials=self.max_parallel_trials,
            loss_gate=self.loss_gate,
            trainer=trainer,
            trial_cluster=None
            if self.trial_cluster is None
            else named_cluster(self.trial_cluster, app, "trial_cluster", is_measured=is_measured),
            uses_history=self.uses_history,
            fault_trace=self.fault_trace,
        )
