"""What is asked of the door: names to be resolved, and what is left out takes its default."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from autotuner.catalog.named import BASE, NAMED_PARTS, whole_cluster, whole_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import ExportFormat
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.columns import LayoutColumns
from autotuner.core.documents import Described, GivenFields, InWords, NameOrObject
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout, parse_words
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.objective import Objective, require_told
from autotuner.core.rules.legality import reasons
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.costmodel.calibration import MeasuredRuns, calibrated
from autotuner.search.answers import Question
from autotuner.search.planning.goal import Failures, Goal
from autotuner.search.planning.request import ChangePrices, PlanRequest

if TYPE_CHECKING:
    from autotuner.door import Autotuner

MAX_WORLD_SIZE = 2**20
"""Several times the largest cluster there is; a caller's slip must not keep the service counting its layouts."""

MAX_MEASURED = 64
"""Measured runs that a request may carry; after a few, they hardly say more of the cluster."""

_MOST_NAMED = 64

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

    def resolved(self, door: Autotuner, job: Job, path: str, *, is_measured: bool = True) -> MeasuredRuns:
        """The run with what it leaves out taken from the job.

        Raises:
            InvalidInput: The layout breaks a rule, or ran on other accelerators than the job's.
            NotFound: A name is neither stored nor in the catalog.
        """
        cluster = job.cluster if self.cluster is None else named_cluster(self.cluster, door, is_measured=is_measured)
        if cluster.accelerator != job.cluster.accelerator:
            rule = "must have the accelerators of the cluster that is asked about"
            raise InvalidInput(f"{path}.cluster", cluster.name, rule, job.cluster.name)
        own = replace(
            job,
            model=job.model if self.model is None else named_model(self.model, door),
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

    def named(self, door: Autotuner, stack: Stack, *, is_measured: bool = True) -> Job:
        """The job with its names resolved.

        Args:
            door: Knows the names.
            stack: The software.
            is_measured: False: the service's own machine is not measured, as ``Autotuner.cluster`` has it.

        Raises:
            InvalidInput: A description breaks a rule.
            NotFound: A name is neither stored nor in the catalog.
        """
        model, cluster = named_model(self.model, door), named_cluster(self.cluster, door, is_measured=is_measured)
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

    def job(self, door: Autotuner, stack: Stack, *, is_measured: bool = True) -> Job:
        """The job with its names resolved, and with what the measured runs say of its cluster; errors as ``named``."""
        job = self.named(door, stack, is_measured=is_measured)
        runs = [
            run.resolved(door, job, f"measured.{i}", is_measured=is_measured) for i, run in enumerate(self.measured)
        ]
        return door.asides.ask(calibrated, job, runs) if runs else job

    def known_job(self, door: Autotuner, stack: Stack) -> Job:
        """The same with what the stored trials say beside the measured runs."""
        job = self.job(door, stack)
        return door.calibrated(job) if self.uses_history else job


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

    def resolved(self, door: Autotuner) -> Question:
        """What is asked, with its names resolved.

        Raises:
            InvalidInput: The cluster does not tell what layouts are to be compared by.
        """
        job = self.known_job(door, load_stack(self.stack))
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

    def resolved(self, door: Autotuner) -> Job:
        """The job that the layout is explained for."""
        return self.known_job(door, load_stack(self.stack))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersRequest(PredictedJobRequest):
    """A job, whose layers of communication are searched one after the other.

    Attributes:
        stack: Name of the software that would run it, from the catalog.
    """

    stack: str = "torch"

    def resolved(self, door: Autotuner) -> Job:
        """The job."""
        return self.known_job(door, load_stack(self.stack))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCreate:
    """A training run to plan: which cluster to take for it.

    Attributes:
        model: As for a prediction.
        workload: Of one optimizer step.
        goal: How much is trained, by when and for how much.
        stack: Name of the software that would run it, from the catalog.
        accelerators: Names of the catalog; empty: those that anybody can rent at a listed price.
        sizes: Numbers of accelerators; empty: powers of two of nodes that suit the goal.
        network_factors: Times the usual bandwidth between nodes; other than 1 are hypothetical clusters.
        extra_memory_bytes: More than an accelerator's usual memory; other than 0 are hypothetical clusters.
        clusters: Whole clusters beside those, each as for a prediction; then accelerators must be named to be compared.
        prices: US dollars per accelerator and hour by accelerator, in the place of the catalog's.
        tariff: What of the power, emissions and spot hours of the catalog's clusters is otherwise, as for a prediction.
        change_prices: What hypothetical clusters cost more.
        failures: How often jobs are interrupted, and what that takes.
        space: Values of a layout's options; what is left out takes what suits each cluster and keeps the mathematics.
        max_accelerators: Of clusters whose size nobody named.
    """

    model: GivenModel
    workload: Workload
    goal: Goal
    stack: str = "torch"
    accelerators: Annotated[tuple[str, ...], Field(max_length=_MOST_NAMED)] = ()
    sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=2**20)], ...], Field(max_length=_MOST_NAMED)] = ()
    network_factors: Annotated[tuple[float, ...], Field(min_length=1, max_length=8)] = (1.0,)
    extra_memory_bytes: Annotated[tuple[int, ...], Field(min_length=1, max_length=8)] = (0,)
    clusters: Annotated[tuple[GivenCluster, ...], Field(max_length=_MOST_NAMED)] = ()
    prices: Annotated[dict[str, float], Field(max_length=_MOST_NAMED)] = field(default_factory=dict)
    tariff: GivenTariff = field(default_factory=dict)
    change_prices: ChangePrices = field(default_factory=ChangePrices)
    failures: Failures = field(default_factory=Failures)
    space: GivenAxes = field(default_factory=dict)
    max_accelerators: Annotated[int, Field(ge=1, le=2**20)] = 16_384

    def resolved(self, door: Autotuner) -> PlanRequest:
        """What is asked, with its names resolved.

        Raises:
            InvalidInput: A description breaks a rule.
            NotFound: A name is neither stored nor in the catalog.
        """
        return PlanRequest(
            model=named_model(self.model, door),
            workload=self.workload,
            goal=self.goal,
            stack=load_stack(self.stack),
            accelerators=self.accelerators,
            sizes=self.sizes,
            network_factors=self.network_factors,
            extra_memory_bytes=self.extra_memory_bytes,
            clusters=tuple(named_cluster(one, door, f"clusters.{i}") for i, one in enumerate(self.clusters)),
            prices=self.prices,
            tariff=self.tariff,
            change_prices=self.change_prices,
            failures=self.failures,
            axes=self.space,
            max_accelerators=self.max_accelerators,
        )


def named_model(given: str | TransformerSpec, door: Autotuner) -> TransformerSpec:
    """The model that is given, or that has the given name."""
    return door.model(given) if isinstance(given, str) else given


def named_cluster(given: str | Cluster, door: Autotuner, path: str = "cluster", *, is_measured: bool = True) -> Cluster:
    """The cluster that is given, or that has the given name; the path is where the request names it."""
    cluster = door.cluster(given, is_measured=is_measured) if isinstance(given, str) else as_described(given)
    if cluster.world_size > MAX_WORLD_SIZE:
        raise InvalidInput(path, cluster.name, f"must have at most {MAX_WORLD_SIZE} accelerators")
    return cluster


def as_described(cluster: Cluster) -> Cluster:
    """A cluster that a caller wrote down: whatever its peaks are, nobody measured them on this machine just now."""
    return replace(cluster, accelerator=replace(cluster.accelerator, peak_is_measured=False))
