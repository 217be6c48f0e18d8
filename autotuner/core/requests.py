"""Requests about a job, which are REST bodies, questions on the command line, and arguments of Python functions.

Models, clusters and software may be given by name. The facade (``autotuner.door``) replaces names by the named objects
before anything is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Gt, Le, Len, MaxLen

from autotuner.core.amounts import read_amount, written_amount
from autotuner.core.choices import ExportFormat, ExportLauncher
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.codec import to_plain
from autotuner.core.documents import GivenFields, InWords, Named, OnlyNamed
from autotuner.core.errors import InvalidInput
from autotuner.core.job import MOST_PHASES, Job, JobPhase, SwitchCost
from autotuner.core.layout import Layout, parse_words
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.named import resolved
from autotuner.core.objective import Objective
from autotuner.core.rules.legality import reasons
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.value import AsJson, Caption, Flag, Rare, Topic, Typed
from autotuner.core.workload import Workload

MAX_MEASURED = 64
"""Most measured runs in a request. After a few, further runs hardly say more about the cluster."""

MAX_LINKS = 256
"""Most link states in a request. An entry for a class of links describes many links at once."""

MAX_CONFIGURATION = 1_000_000
"""Most characters of a trainer's configuration. The longest configuration that a trainer prints has a twentieth of
that."""

MAX_RANKS = 2**20

GivenLayout: TypeAlias = Annotated[
    Layout, InWords(parse_words, "The words that tables print: `fsdp8 tp4 mb1 sp flash bf16`.")
]
_TARIFF = 'france, or {"energy_price_per_kwh": 0.2}'
GivenAxes: TypeAlias = Annotated[dict[str, Any], GivenFields(SearchSpace), AsJson('{"recompute": ["none", "full"]}')]
GivenTariff: TypeAlias = Annotated[dict[str, Any], GivenFields(Tariff), AsJson(_TARIFF)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A layout that somebody ran, with its measured speed. Such runs calibrate predictions."""

    layout: GivenLayout
    """Layout that ran; a field left out takes its default."""
    step_time_s: Annotated[float, Gt(0)] | None = None
    """Seconds of an optimizer step. Give either this or ``tokens_per_s``."""
    tokens_per_s: Annotated[float, Gt(0)] | None = None
    """Tokens per second of the whole job."""
    model: Named[TransformerSpec] | None = None
    """Model that ran, if it differs from the request's model."""
    cluster: Named[Cluster] | None = None
    """Cluster that ran the job, if it differs from the request's cluster."""
    workload: Workload | None = None
    """Workload that ran, if it differs from the request's workload."""

    def __post_init__(self) -> None:
        if (self.step_time_s is None) == (self.tokens_per_s is None):
            raise InvalidInput(
                "step_time_s",
                self.step_time_s,
                "must be given if tokens_per_s is left out, and otherwise must be left out",
            )

    def job_like(self, job: Job) -> Job:
        """Return the job that the run measured: the given job with the model, cluster and workload that the run states.

        Raises:
            InvalidInput: The layout breaks a rule, or the run's accelerators differ from the job's accelerators.
        """
        cluster = job.cluster if self.cluster is None else resolved(self.cluster)
        if cluster.accelerator != job.cluster.accelerator:
            rule = "must have the same accelerators as the cluster of the request"
            raise InvalidInput("cluster", cluster.name, rule, job.cluster.name)
        model = job.model if self.model is None else resolved(self.model)
        own = replace(job, model=model, cluster=cluster, workload=self.workload or job.workload)
        if broken := reasons(self.layout, own):
            first = broken[0]
            raise InvalidInput(first.path, to_plain(first.value(self.layout, own)), first.message, first.nearest)
        return own

    def seconds_of(self, job: Job) -> float:
        """Return the measured seconds of a step, or compute them if only tokens per second were measured."""
        return self.step_time_s or job.workload.tokens_per_step / (self.tokens_per_s or math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class BareJob:
    """A request about a job: a model, a cluster and a workload. Several other requests add fields to these three."""

    model: Named[TransformerSpec]
    """Model: the name of a stored or catalog model, or an object: our own fields, a ``base`` of the catalog with
    changes, or a ``config.json``."""
    cluster: Named[Cluster]
    """Cluster: the name of a stored cluster, a catalog accelerator and how many (``h100:64``), ``local`` for the
    machine that the service runs on, or an object, whose accelerator and links may be names."""
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(BareJob):
    """A request with a job (model, cluster, workload), and changes to the cluster's links and prices."""

    link_health: Annotated[tuple[LinkHealth, ...], MaxLen(MAX_LINKS), Caption("Slow or dead links"), Rare()] = ()
    """Links of the cluster whose state differs from its description; the last entry of a link counts."""
    price_per_accelerator_hour: Annotated[Annotated[float, Ge(0)] | None, Flag("price"), Rare()] = None
    """Price in US dollars per accelerator and hour, if it differs from the cluster's price."""
    tariff: Annotated[GivenTariff, Rare()] = field(default_factory=dict)
    """Changes to the cluster's prices, power and emissions: a region (``france``), or fields of a tariff."""

    def job(self, stack: Stack) -> Job:
        """Return the job of the request. All names in it must have been replaced by objects before.

        Args:
            stack: Software that runs the job.

        Raises:
            InvalidInput: A price or a link breaks a rule.
        """
        own = resolved(self.cluster)
        price = own.price_per_accelerator_hour
        price = price if self.price_per_accelerator_hour is None else self.price_per_accelerator_hour
        priced = replace(own, price_per_accelerator_hour=price, tariff=replace(own.tariff, **self.tariff))
        cluster = priced.with_link_health(self.link_health)
        return Job(model=resolved(self.model), cluster=cluster, workload=self.workload, stack=stack)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedJobRequest(JobRequest):
    """A request with a job, and measured runs that calibrate predictions for its cluster."""

    measured: Annotated[tuple[MeasuredRun, ...], MaxLen(MAX_MEASURED), Caption("Measured runs"), Rare()] = ()
    """Runs that were measured on this cluster with this software. They correct every prediction and narrow its
    interval."""
    uses_history: Annotated[bool, Flag("history"), Caption("Learn from earlier trials"), Rare()] = True
    """Learn the speed of the hardware also from stored trials of earlier sweeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuestion(PredictedJobRequest):
    """A request with a job, and the software stack that predictions are for."""

    stack: Annotated[OnlyNamed[Stack], Rare()] = "torch"
    """Name of the software that runs the job, from the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRequest(JobQuestion):
    """A request to predict one layout, or to find the best predicted layouts of a search space."""

    layout: GivenLayout | None = None
    """The only layout to predict; a field left out takes its default. Without it, the request predicts all legal
    layouts."""
    space: Annotated[GivenAxes, Rare()] = field(default_factory=dict)
    """Values that each axis may take, as in a sweep. Allowed only without ``layout``."""
    limit: Annotated[int, Ge(1), Le(1000), Caption("Number of rows")] = 10
    """Number of rows of the table, 1..1000. Used only without ``layout``."""
    current: Annotated[GivenLayout | None, Caption("Current layout")] = None
    """Layout that runs today, to be compared with the best layout. It may break rules."""
    format: Annotated[ExportFormat | None, Rare()] = None
    """Export format that must be able to express all predicted layouts. Allowed only without ``layout``. Options that
    the format leaves to the trainer's own code are as in ``current``, or at their plain values."""
    objective: Objective = field(default_factory=Objective)
    """Objective that ranks the layouts. Used only without ``layout``."""

    def __post_init__(self) -> None:
        for name in ("space", "format"):
            if self.layout is not None and getattr(self, name):
                rule = "cannot be used together with layout, which says what to predict; leave out one of the two"
                raise InvalidInput(name, getattr(self, name), rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationRequest(JobQuestion):
    """A request to explain the prediction of one layout, that is, to show the causes of its step time and memory."""

    layout: GivenLayout
    """Layout to explain; a field left out takes its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksRequest(BareJob):
    """A request to count the memory and operations of single ranks of a layout at full size, without a device."""

    layout: GivenLayout
    """Layout whose memory is counted; a field left out takes its default."""
    rank: Annotated[int, Ge(0)] | None = None
    """Rank whose memory is counted; empty: the ranks that may use most memory."""
    exact: bool = False
    """Run all layers and micro-batches, which takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersRequest(JobQuestion):
    """A request to search the options of a job by communication layer, one layer after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesRequest(JobQuestion):
    """A request to choose a layout for each phase of a training, with the cost of switching layouts between phases."""

    num_tokens: Annotated[float, Gt(0), Typed(read_amount, written_amount, "15.6T, 400B or 2e12")]
    """Number of tokens of the whole training."""
    phases: Annotated[tuple[JobPhase, ...], Len(1, MOST_PHASES)]
    """Phases in their order; their `token_share` values sum to 1. A field that a phase leaves out is as in the job."""
    switch: Annotated[SwitchCost, Topic("A switch between layouts")] = field(default_factory=SwitchCost)
    """Cost of a switch between layouts. A field left out takes a published or measured value for such hardware."""
    space: Annotated[GivenAxes, Rare()] = field(default_factory=dict)
    """Values that each axis may take in every phase, as in a sweep."""
    current: Annotated[GivenLayout | None, Caption("Layout before"), Rare()] = None
    """Layout that runs before the first phase; null: no layout runs before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest(JobRequest):
    """A request to export a layout as the configuration of a trainer."""

    layout: GivenLayout
    """Layout to export; a field left out takes its default."""
    format: ExportFormat
    """Trainer to export for."""
    launcher: ExportLauncher | None = None
    """Program that starts your trainer: scripts for it are written too; null: only arguments and files."""
    stack: Annotated[OnlyNamed[Stack] | None, Rare()] = None
    """Name of the software that runs the job, from the catalog; null: the software of the format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """A request to read a trainer's configuration as a layout."""

    text: Annotated[str, MaxLen(MAX_CONFIGURATION)]
    """Configuration to read: arguments, a script that contains them, a configuration file, or arguments that a trainer
    printed; at most 1,000,000 characters. The text is read and never run."""
    format: ExportFormat | None = None
    """Format of the text; null: the format is recognised from the text."""
    num_ranks: Annotated[int, Ge(1), Le(MAX_RANKS)] | None = None
    """Number of ranks of the job, if you know it. Most configurations do not state this number, and data-parallel
    degrees are computed from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """A request to compare two to four trials, sweeps or layouts."""

    of: Annotated[tuple[Annotated[str, MaxLen(2000)], ...], MaxLen(8)]
    """Things to compare: ids of trials, ids of sweeps (their best trial), addresses of the page that explores a layout
    (``/explore?model=…&layout=…``), or names of layouts in the job of the first."""
    flags: Annotated[str, MaxLen(MAX_CONFIGURATION)] = ""
    """Configuration of a trainer, as for ``/imports``. Its layout is compared too, in the job of the first. The
    configuration is never run."""
