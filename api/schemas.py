"""What travels over REST, as dataclasses; ``dataclass_schema`` and the codec turn them into OpenAPI and JSON.

A number that the cost model predicts stands under ``predicted``, one that a trial measured under ``measured``;
no object mixes the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from api.dataclass_schema import DescribedBy
from autotuner.catalog.load import Fact
from autotuner.domain.cluster import Accelerator, Cluster
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.prediction import Memory, StepTime
from autotuner.domain.sweep import Budget, SearchSpace, StopReason, SweepRequest, SweepState
from autotuner.domain.trial import Measurement, StepReport, TrialFailure, TrialSettings, TrialState
from autotuner.domain.workload import Workload

__all__ = [
    "AcceleratorDetail",
    "AcceleratorList",
    "ClusterList",
    "Health",
    "ModelList",
    "Predicted",
    "PredictedLayout",
    "PredictionRequest",
    "PredictionTable",
    "Progress",
    "RankedTrial",
    "RankingPage",
    "Readiness",
    "SweepCreate",
    "SweepDetail",
    "SweepPage",
    "SweepSummary",
    "TrialCounts",
    "TrialDetail",
    "TrialPage",
    "TrialView",
]

ModelReference = Annotated[object, DescribedBy(str | TransformerSpec)]
ClusterReference = Annotated[object, DescribedBy(str | Cluster)]
PartialSpace = Annotated[dict[str, object], DescribedBy(SearchSpace)]


# ---------------------------------------------------------------- requests
@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCreate:
    """A sweep to start.

    Attributes:
        model: Name of a stored or catalog model, or the model itself.
        cluster: Name of a stored cluster, a catalog accelerator and how many (``h100:64``), ``local`` for the
            machine the service runs on, or the cluster itself.
        space: Values each axis may take; an axis left out takes the default that suits the cluster.
        seed: Same seed, same sequence of trials.
        name: For people; need not be unique.
    """

    model: ModelReference
    cluster: ClusterReference
    workload: Workload
    space: PartialSpace = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    trial: TrialSettings = field(default_factory=TrialSettings)
    seed: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRequest:
    """A layout to predict, or a space to predict the best layouts of.

    Attributes:
        model: As in a sweep.
        cluster: As in a sweep.
        layout: Predict this one only; a field left out takes its default.
        space: Without a layout: values each axis may take, as in a sweep.
        limit: Without a layout: rows of the table, 1..1000.
    """

    model: ModelReference
    cluster: ClusterReference
    workload: Workload
    layout: Layout | None = None
    space: PartialSpace = field(default_factory=dict)
    limit: int = 10


# ---------------------------------------------------------------- predictions
@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What the cost model answers for one layout. Nothing here was measured.

    Attributes:
        step_time_s: Sum of the parts of ``step_time``.
        peak_bytes: Sum of the parts of ``memory``: one rank, worst stage.
        tokens_per_s: Whole job.
        mfu: Model FLOP over what the dense peak could do, 0..1.
        hfu: The same with recomputed FLOP counted.
        fits: The peak is within the accelerator's memory.
        relative_error: Expected error of the step time, as a fraction; null where the cost model is unvalidated
            on this kind of device.
    """

    step_time_s: float
    peak_bytes: float
    tokens_per_s: float
    mfu: float
    hfu: float
    fits: bool
    relative_error: float | None
    step_time: StepTime
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLayout:
    """A layout with its prediction.

    Attributes:
        rank: From 1, by predicted MFU among the layouts predicted to fit.
        label: The layout in short: ``tp2 pp4 1f1b mb1``.
    """

    rank: int
    label: str
    layout: Layout
    predicted: Predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """The layouts predicted to be best.

    Attributes:
        num_legal: Layouts of the space that break no rule; null when one layout was asked for.
        num_fitting: Those predicted to fit in memory; null when one layout was asked for.
    """

    items: tuple[PredictedLayout, ...]
    num_legal: int | None
    num_fitting: int | None


# ---------------------------------------------------------------- trials
@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """One layout of a sweep: what was predicted, what was measured, or why it died.

    Attributes:
        number: Counts from 0 inside its sweep.
        label: The layout in short.
        attempts: How often it was started; above 1 after an interruption.
        started_at: Epoch seconds.
        finished_at: Epoch seconds.
        measured: Null unless the trial is complete.
        failure: Null unless the trial failed.
    """

    id: str
    sweep_id: str
    number: int
    state: TrialState
    label: str
    layout: Layout
    attempts: int
    started_at: float | None
    finished_at: float | None
    predicted: Predicted
    measured: Measurement | None
    failure: TrialFailure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDetail(TrialView):
    """A trial with the steps of its running or last attempt."""

    steps: tuple[StepReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPage:
    """Trials by number.

    Attributes:
        total: How many match, on all pages.
    """

    items: tuple[TrialView, ...]
    total: int
    limit: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTrial(TrialView):
    """A complete trial and its place.

    Attributes:
        rank: From 1, by measured MFU.
    """

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPage:
    """Complete trials by measured MFU, highest first.

    Attributes:
        total: How many match, on all pages.
    """

    items: tuple[RankedTrial, ...]
    total: int
    limit: int
    offset: int


# ---------------------------------------------------------------- sweeps
@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCounts:
    """Trials of a sweep by state."""

    queued: int = 0
    running: int = 0
    complete: int = 0
    pruned: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ran(self) -> int:
        """Trials that came to an end, however: what the trial budget counts."""
        return self.complete + self.pruned + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How much of each budget is spent.

    Attributes:
        fraction: The budget nearest its end, 0..1; 1 for a finished sweep.
        num_trials: Trials that ran.
        elapsed_s: Since the sweep started, until now or its end.
        accelerator_hours: Sum over trials of run time x ranks.
    """

    fraction: float
    num_trials: int
    elapsed_s: float
    accelerator_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """A sweep as a line of a list.

    Attributes:
        model: Its name.
        cluster: Its name.
        created_at: Epoch seconds, as are the next two.
        cancel_requested: The end was asked for; a running trial is being stopped.
        stop_reason: Null until the sweep is finished.
        stop_detail: The reason with its numbers, as a sentence.
        trials: How many there are in each state.
        best_measured_mfu: Of the best complete trial; null until there is one.
    """

    id: str
    name: str
    state: SweepState
    model: str
    cluster: str
    created_at: float
    started_at: float | None
    finished_at: float | None
    cancel_requested: bool
    stop_reason: StopReason | None
    stop_detail: str
    budget: Budget
    progress: Progress
    trials: TrialCounts
    best_measured_mfu: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDetail(SweepSummary):
    """A sweep with everything that was asked of it.

    Attributes:
        request: As it runs: every name resolved, every default filled in.
        best: The complete trial with the highest measured MFU; null until there is one.
    """

    request: SweepRequest
    best: TrialView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPage:
    """Sweeps, newest first.

    Attributes:
        total: How many match, on all pages.
    """

    items: tuple[SweepSummary, ...]
    total: int
    limit: int
    offset: int


# ---------------------------------------------------------------- descriptions and health
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorList:
    """Accelerators of the catalog, by name."""

    items: tuple[Accelerator, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorDetail:
    """An accelerator of the catalog with the origin of every value.

    Attributes:
        facts: By field: the value, the source it was read in, and when.
    """

    accelerator: Accelerator
    facts: dict[str, Fact]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """Models by name."""

    items: tuple[TransformerSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterList:
    """Clusters by name."""

    items: tuple[Cluster, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The process answers."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The database answers and is migrated.

    Attributes:
        schema_revision: Of the database.
    """

    schema_revision: str
    status: Literal["ready"] = "ready"
