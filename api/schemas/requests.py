"""What callers send, with names resolved and defaults filled in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from api.schemas.fault_traces import GivenFaultTrace
from autotuner.bootstrap import App
from autotuner.catalog.named import BASE, NAMED_PARTS, whole_cluster, whole_model
from autotuner.catalog.software import load_stack
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.columns import LayoutColumns
from autotuner.core.convergence_gate import LossGate
from autotuner.core.documents import Described, GivenFields, InWords, NameOrObject
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import at_worst
from autotuner.core.job import Job
from autotuner.core.layout import Layout, parse_words
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.objective import Objective, require_told
from autotuner.core.rules.legality import reasons
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial_spec import ExportFormat, TrialSettings
from autotuner.core.workload import Workload
from autotuner.costmodel.calibration import MeasuredRuns, calibrated
from autotuner.search.answers import Question
from autotuner.search.expressible import trial_space

MAX_WORLD_SIZE = 2**20
"""Several times the largest cluster there is; a caller's slip must not keep the service counting its layouts."""

MAX_MEASURED = 64
"""Measured runs that a request may carry; after a few, they hardly say more of the cluster."""

MAX_LINKS = 256
"""Links that a request may say something of; of more, a class of links says it."""

_CONFIG = {
    "type": "object",
    "description": "The `config.json` that a model is published with.",
    "properties": {"model_type": {"type": "string", "pattern": "^[^\\x00]*$"}},
    "required": ["model_type"],
}

_AS_MODELS_ARE_WRITTEN = Described(whole_model, BASE, other=_CONFIG)
"""Our own fields, one of the catalog with changes, or a ``config.json``."""

AS_CLUSTERS_ARE_WRITTEN = Described(whole_cluster, BASE, NAMED_PARTS)
"""All fields, or names of accelerators and links."""

GivenModel = NameOrObject[Annotated[TransformerSpec, _AS_MODELS_ARE_WRITTEN]]
GivenCluster = NameOrObject[Annotated[Cluster, AS_CLUSTERS_ARE_WRITTEN]]

GivenLayout = Annotated[Layout, InWords(parse_words, "The words that tables print: `fsdp8 tp4 mb1 sp flash bf16`.")]

GivenAxes = Annotated[dict[str, Any], GivenFields(SearchSpace)]
GivenTariff = Annotated[dict[str, Any], GivenFields(Tariff)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One layout that was run, and how fast it was.

    Attributes:
        layout: A field left out takes its default.
        step_time_s: Seconds of an optimizer step; this or ``tokens_per_s``.
        tokens_per_s: Of the whole job.
        model: Where it was not the request's.
        cluster: As many of these accelerators as ran it, where it was not the request's number.
        workload: Where it was not the request's.
    """

    layout: GivenLayout
    step_time_s: Annotated[float, Field(gt=0)] | None = None
    tokens_per_s: Annotated[float, Field(gt=0)] | None = None
    model: GivenModel | None = None
    cluster: GivenCluster | None = None
    workload: Workload | None = None

    def __post_init__(self) -> None:
        if (self.step_time_s is None) == (self.tokens_per_s is None):
            raise InvalidInput("step_time_s", self.step_time_s, "must be given, or tokens_per_s, but not both")

    def resolved(self, app: App, job: Job, path: str, *, is_measured: bool = True) -> MeasuredRuns:
        """The run with what it leaves out taken from the job.

        Raises:
            InvalidInput: The layout breaks a rule, or ran on other accelerators than the job's.
            NotFound: A name is neither stored nor in the catalog.
        """
        cluster = job.cluster if self.cluster is None else named_cluster(self.cluster, app, is_measured=is_measured)
        if cluster.accelerator != job.cluster.accelerator:
            rule = "must have the accelerators of the cluster that is asked about"
            raise InvalidInput(f"{path}.cluster", cluster.name, rule, job.cluster.name)
        own = replace(
            job,
            model=job.model if self.model is None else named_model(self.model, app),
            cluster=cluster,
            workload=self.workload or job.workload,
        )
        if broken := reasons(self.layout, own):
            raise InvalidInput(f"{path}.layout", str(self.layout), broken[0].message, broken[0].nearest)
        seconds = self.step_time_s or own.workload.tokens_per_step / (self.tokens_per_s or math.inf)
        return MeasuredRuns(job=own, layouts=LayoutColumns.from_layouts([self.layout]), step_time_s=np.array([seconds]))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """Model, cluster and workload.

    Attributes:
        model: Name of a stored or catalog model, or the model itself: our own fields, a ``base`` of the catalog with
            changes, or a ``config.json``.
        cluster: Name of a stored cluster, a catalog accelerator and how many (``h100:64``), ``local`` for the
            machine the service runs on, or the cluster itself, whose accelerator and links may be names.
        link_health: Links of the cluster that are not as it says, beside those that it knows itself; of several of one
            link the last counts.
        price_per_accelerator_hour: In US dollars, where it is not the cluster's.
        tariff: What of the cluster's prices, power and emissions is otherwise.
    """

    model: GivenModel
    cluster: GivenCluster
    workload: Workload
    link_health: Annotated[tuple[LinkHealth, ...], Field(max_length=MAX_LINKS)] = ()
    price_per_accelerator_hour: Annotated[float, Field(ge=0)] | None = None
    tariff: GivenTariff = field(default_factory=dict)

    def named(self, app: App, stack: Stack, *, is_measured: bool = True) -> Job:
        """The job with its names resolved.

        Args:
            app: Knows the names.
            stack: The software.
            is_measured: False: the service's own machine is not measured, as ``App.cluster`` has it.

        Raises:
            InvalidInput: A description breaks a rule.
            NotFound: A name is neither stored nor in the catalog.
        """
        model, cluster = named_model(self.model, app), named_cluster(self.cluster, app, is_measured=is_measured)
        cluster = self._priced(cluster).with_link_health(self.link_health)
        return Job(model=model, cluster=cluster, workload=self.workload, stack=stack)

    def _priced(self, cluster: Cluster) -> Cluster:
        """The cluster at the caller's prices."""
        price = self.price_per_accelerator_hour
        return replace(
            cluster,
            price_per_accelerator_hour=cluster.price_per_accelerator_hour if price is None else price,
            tariff=replace(cluster.tariff, **self.tariff),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedJobRequest(JobRequest):
    """A job, with what is known of its cluster.

    Attributes:
        measured: Runs that were measured on this cluster with this software: they say how fast it is beside others of
            its kind, which shifts and narrows every prediction.
        uses_history: Whether stored trials on such hardware and software, of earlier sweeps, say that, too.
    """

    measured: Annotated[tuple[MeasuredRun, ...], Field(max_length=MAX_MEASURED)] = ()
    uses_history: bool = True

    def job(self, app: App, stack: Stack, *, is_measured: bool = True) -> Job:
        """The job with its names resolved, and with what the measured runs say of its cluster; errors as ``named``."""
        job = self.named(app, stack, is_measured=is_measured)
        runs = [run.resolved(app, job, f"measured.{i}", is_measured=is_measured) for i, run in enumerate(self.measured)]
        return app.asides.ask(calibrated, job, runs) if runs else job

    def known_job(self, app: App, stack: Stack) -> Job:
        """The same with what the stored trials say beside the measured runs."""
        job = self.job(app, stack)
        return app.calibrated(job) if self.uses_history else job


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRequest(PredictedJobRequest):
    """A layout to predict, or a space to predict the best layouts of.

    Attributes:
        layout: Predict this one only; a field left out takes its default.
        space: Without a layout: values each axis may take, as in a sweep.
        limit: Without a layout: rows of the table, 1..1000.
        stack: Name of the software that would run it, from the catalog.
        current: The layout that runs today, to be told what the best would give; it need not keep any rule.
        format: Without a layout: only those that can be said in this format; what it leaves to its user's code is as
            ``current`` has it, else plain.
        objective: Without a layout: what the best is best by.
    """

    layout: GivenLayout | None = None
    space: GivenAxes = field(default_factory=dict)
    limit: Annotated[int, Field(ge=1, le=1000)] = 10
    stack: str = "torch"
    current: GivenLayout | None = None
    format: ExportFormat | None = None
    objective: Objective = field(default_factory=Objective)

    def __post_init__(self) -> None:
        for name in ("space", "format"):
            if self.layout is not None and getattr(self, name):
                raise InvalidInput(name, getattr(self, name), "must be left out when a layout is given")

    def resolved(self, app: App) -> Question:
        """What is asked, with its names resolved.

        Raises:
            InvalidInput: The cluster does not tell what layouts are to be compared by.
        """
        job = self.known_job(app, load_stack(self.stack))
        require_told(self.objective, job.cluster)
        return Question(
            job=job,
            axes=self.space,
            limit=self.limit,
            current=self.current,
            format=self.format,
            objective=self.objective,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationRequest(PredictedJobRequest):
    """A layout to explain.

    Attributes:
        layout: A field left out takes its default.
        stack: Name of the software that would run it, from the catalog.
    """

    layout: GivenLayout
    stack: str = "torch"

    def resolved(self, app: App) -> Job:
        """The job that the layout is explained for."""
        return self.known_job(app, load_stack(self.stack))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersRequest(PredictedJobRequest):
    """A job, whose layers of communication are searched one after the other.

    Attributes:
        stack: Name of the software that would run it, from the catalog.
    """

    stack: str = "torch"

    def resolved(self, app: App) -> Job:
        """The job."""
        return self.known_job(app, load_stack(self.stack))


def named_model(given: str | TransformerSpec, app: App) -> TransformerSpec:
    """The model that is given, or that has the given name."""
    return app.model(given) if isinstance(given, str) else given


def named_cluster(given: str | Cluster, app: App, path: str = "cluster", *, is_measured: bool = True) -> Cluster:
    """The cluster that is given, or that has the given name; the path is where the request names it."""
    cluster = app.cluster(given, is_measured=is_measured) if isinstance(given, str) else as_described(given)
    if cluster.world_size > MAX_WORLD_SIZE:
        raise InvalidInput(path, cluster.name, f"must have at most {MAX_WORLD_SIZE} accelerators")
    return cluster


def as_described(cluster: Cluster) -> Cluster:
    """A cluster that a caller wrote down: whatever its peaks are, nobody measured them on this machine just now."""
    return replace(cluster, accelerator=replace(cluster.accelerator, peak_is_measured=False))
