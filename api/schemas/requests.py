"""What callers send to start and change sweeps, and what a sweep would search, told before it is started."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self, TypeAlias

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema
from pydantic_core.core_schema import CoreSchema

from autotuner.catalog.software import load_stack
from autotuner.core.codec import to_plain
from autotuner.core.convergence_gate import LossGate
from autotuner.core.documents import GivenFields
from autotuner.core.errors import InvalidInput, Violation
from autotuner.core.fault_trace import FaultTrace, at_worst
from autotuner.core.job import Job
from autotuner.core.objective import Objective
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import Workload
from autotuner.requests import GivenAxes, GivenCluster, GivenModel, PredictedJobRequest, named_cluster, named_model
from autotuner.search.predictions import PredictionTable
from autotuner.search.preview import Outlook, StandIns
from autotuner.search.space.elimination import Fall
from autotuner.search.space.trainers import trial_space
from autotuner.service.build import App

# A fault trace as callers write it: lines of text, or the object that these stand for.

MAX_STEPS = 10_000
"""Steps under faults that a trial may run; at 20 ms each these take minutes."""

MAX_FAULTS = 256
"""Distinct states of links are predicted one after the other, for the whole table of layouts."""

_MAX_TEXT = 1 << 14

_TEXT = {
    "type": "string",
    "pattern": "^[^\\x00]*$",
    "maxLength": _MAX_TEXT,
    "description": (
        "A line per fault: `iteration;link[,link];state`, where a link is the numbers of its two ends (`2_3`: nodes, "
        "or accelerators of a single node), and a state is seconds of one-way delay (`0.06`; `0` heals), a rate "
        "(`200mbit`), or `dead`. It lasts as long after its last fault as it took to get there."
    ),
    "examples": ["7;2_3;0.06\n30;2_3;0"],
}


class _AsFaultsAreWritten:
    """Metadata of a ``FaultTrace`` that may also be lines of text."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook."""
        read = core_schema.no_info_before_validator_function(_whole, handler(source))
        return core_schema.no_info_after_validator_function(_within_limits, read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Pydantic's hook."""
        return {"anyOf": [_TEXT, handler(schema)]}


GivenFaultTrace: TypeAlias = Annotated[FaultTrace, _AsFaultsAreWritten()]


def _whole(given: object) -> object:
    """The document that a text stands for; anything else as it is."""
    if not isinstance(given, str):
        return given
    if len(given) > _MAX_TEXT:
        raise InvalidInput("fault_trace", f"{len(given)} characters", "must be shorter", _MAX_TEXT)
    return to_plain(FaultTrace.parse(given))


def _within_limits(trace: FaultTrace) -> FaultTrace:
    """The trace, if trials can run it in a bearable time."""
    for name, found, most in (("num_steps", trace.num_steps, MAX_STEPS), ("faults", len(trace.faults), MAX_FAULTS)):
        if found > most:
            raise InvalidInput(name, found, f"a fault trace may have {most} of them at most", most)
    return trace


# What callers send to start a sweep.


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


# What callers change of sweeps that they asked for, and sweeps that are asked for as others were.

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


# What a sweep would search, told before it is started.


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStoodFor:
    """Layouts for which no trial on the smaller cluster stands, and why."""

    why: str
    num_layouts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTrials:
    """How far trials on the smaller cluster reach.

    Attributes:
        num_layouts: Legal layouts of the job for which a trial stands.
        refused: The others by why, the most frequent first.
    """

    num_layouts: int
    refused: tuple[NotStoodFor, ...]

    @classmethod
    def of(cls, found: StandIns) -> Self:
        """What the search found."""
        refused = tuple(NotStoodFor(why=why, num_layouts=count) for why, count in found.refused)
        return cls(num_layouts=found.num_layouts, refused=refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPreview:
    """What a sweep would search; nothing was measured or stored for it.

    Attributes:
        space: Every axis with the values that would be tried; null: every legal one.
        num_candidates: Different layouts that these values make, legal or not; null where they are too many to be
            judged rule by rule.
        falls: What the rules take out of these, the rule with most first; each layout counts for one rule. Candidates
            less these are the legal layouts of ``predicted``.
        predicted: How many layouts a trial can run and how many of these are predicted to fit, the best by prediction,
            and what would help where none fits.
        small_trials: Where trials run on a smaller cluster.
        refusal: Why this service would not start it as it is; null where it would.
    """

    space: SearchSpace
    num_candidates: int | None
    falls: tuple[Fall, ...]
    predicted: PredictionTable
    small_trials: SmallTrials | None
    refusal: Violation | None

    @classmethod
    def of(cls, request: SweepRequest, found: Outlook, refusal: Violation | None) -> Self:
        """What the search found, and what the service says to it."""
        sieved = found.sieved
        return cls(
            space=request.space,
            num_candidates=None if sieved is None else sieved.num_candidates,
            falls=() if sieved is None else sieved.falls,
            predicted=PredictionTable.answering(request.trial_job, found.best),
            small_trials=None if found.stand_ins is None else SmallTrials.of(found.stand_ins),
            refusal=refusal,
        )
