"""Tables of sweeps, of what they did, and of the workers that run them."""

from __future__ import annotations

from sqlalchemy import JSON, Column, ForeignKey, Index, Named, Table, TypedColumns, UniqueConstraint, false, text

from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, Measurement, StepReport
from autotuner.core.objective import Metric, Weight
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, Prospects
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import EngineJob, FailureKind, ScaledTrial, Stopped, TrialFailure, TrialState, Waiting
from autotuner.store.tables.columns import Document, Documents, KnownFields, Plain, Words, metadata, word
from autotuner.store.tables.runs import runs


class _Sweeps(TypedColumns):
    """Facts of the run of a sweep that lists, history and quotas read."""

    id: Named[str] = Column(Plain, ForeignKey(runs.c.id), primary_key=True)
    # of the run, here so that one index finds and sorts
    created_at: Named[float]
    created_by: Named[str] = Column(Plain)
    state: Named[RunState] = Column(word(RunState))
    finished_at: Named[float | None]
    stop_reason: Named[StopReason | None] = Column(word(StopReason))
    # of the request, so that a list of sweeps decodes none; the budget as it is now, where people changed it
    name: Named[str] = Column(Plain)
    model_name: Named[str] = Column(Plain)
    cluster_name: Named[str] = Column(Plain)
    engine: Named[str] = Column(Plain)
    trial_cluster_name: Named[str | None] = Column(Plain)
    metric: Named[Metric] = Column(word(Metric))
    under_faults: Named[bool]
    profile: Named[tuple[Weight, ...]] = Column(Documents(Weight))
    front: Named[tuple[Metric, ...]] = Column(Words(Metric))
    budget: Named[Budget] = Column(KnownFields(Budget))
    # of the request, so that history is found without decoding it: what trials run on, with which software, and the job
    accelerator: Named[str] = Column(Plain)
    stack: Named[str] = Column(Plain)
    job_key: Named[str] = Column(Plain)
    prospects: Named[Prospects | None] = Column(KnownFields(Prospects))
    thinned_at: Named[float | None]  # when steps and events of its trials were thinned


sweeps = Table(
    "sweeps",
    metadata,
    _Sweeps,
    Index(None, "created_at", "id"),  # the list, newest first
    Index(None, "state", "created_at", "id"),  # the list of one state
    Index(None, "accelerator", "created_at", "id"),  # history of such hardware
    Index(None, "job_key", "created_at", "id"),  # history of one job
    Index(None, "created_by", "state", "finished_at"),  # what a caller takes
    Index(None, "thinned_at", "finished_at"),  # what may be thinned
)


class _Trials(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    sweep_id: Named[str] = Column(Plain, ForeignKey(sweeps.c.id))
    number: Named[int]
    state: Named[TrialState] = Column(word(TrialState))
    layout: Named[Layout] = Column(Document(Layout))
    tensor_parallel_degree: Named[int]
    pipeline_parallel_degree: Named[int]
    micro_batch_size: Named[int]
    prediction: Named[Prediction] = Column(Document(Prediction))
    attempts: Named[int]
    started_at: Named[float | None]
    finished_at: Named[float | None]
    world_size: Named[int] = Column(server_default="0")
    stopped: Named[Stopped | None] = Column(Document(Stopped))
    jobs: Named[tuple[EngineJob, ...]] = Column(Documents(EngineJob), server_default=text("'[]'"))
    # of its jobs, so that hours are summed without decoding them: the seconds that they had accelerators, less the
    # starts of those that have them still, and how many these are; null where it has none. Of a trial without jobs that
    # waits, what it worked before
    busy_s: Named[float | None]
    num_busy: Named[int] = Column(server_default="0")
    scaled: Named[ScaledTrial | None] = Column(Document(ScaledTrial))
    repeats: Named[int | None]
    expected_gain: Named[float | None]
    waiting: Named[Waiting | None] = Column(Document(Waiting))
    runs: Named[tuple[FinishedRun, ...]] = Column(Documents(FinishedRun), server_default=text("'[]'"))


trials = Table(
    "trials",
    metadata,
    _Trials,
    UniqueConstraint("sweep_id", "number"),
    Index(  # counts and hours
        "ix_trials_overview",
        *("sweep_id", "state", "started_at", "finished_at", "world_size", "busy_s", "num_busy", "repeats"),
    ),
    Index(None, "finished_at"),  # the newest of all
)


class _Measurements(TypedColumns):
    trial_id: Named[str] = Column(Plain, ForeignKey(trials.c.id), primary_key=True)
    sweep_id: Named[str] = Column(Plain, ForeignKey(sweeps.c.id))  # the trial's, here so that one index ranks a sweep
    # what is ranked by: of the measurement, or of the estimate where the trial ran on fewer ranks than its job has
    mfu: Named[float]
    step_time_s: Named[float]
    tokens_per_s: Named[float]
    document: Named[Measurement] = Column(Document(Measurement))
    is_ranked: Named[bool] = Column(server_default=false())
    value: Named[float] = Column(server_default="0")  # what the sweep's objective says
    step_time_interval_s: Named[float | None]
    noise_floor: Named[float | None]
    estimate: Named[TrialEstimate | None] = Column(Document(TrialEstimate))
    timeline: Named[StepTimeline | None] = Column(Document(StepTimeline))  # apart: a list of trials reads none


measurements = Table("measurements", metadata, _Measurements)
Index("ix_measurements_ranking", measurements.c.is_ranked, measurements.c.mfu.desc(), measurements.c.trial_id)
Index(
    "ix_measurements_sweep_ranking",
    measurements.c.sweep_id,
    measurements.c.is_ranked,
    measurements.c.value.desc(),
    measurements.c.trial_id,
)


class _Gates(TypedColumns):
    trial_id: Named[str] = Column(Plain, ForeignKey(trials.c.id), primary_key=True)
    sweep_id: Named[str] = Column(Plain, ForeignKey(sweeps.c.id))  # the trial's, here so that one index sums a sweep
    outcome: Named[GateOutcome] = Column(word(GateOutcome))
    accelerator_hours: Named[float]
    document: Named[GateResult] = Column(Document(GateResult))


gates = Table("gates", metadata, _Gates, Index(None, "sweep_id", "accelerator_hours"))


class _Failures(TypedColumns):
    trial_id: Named[str] = Column(Plain, ForeignKey(trials.c.id), primary_key=True)
    kind: Named[FailureKind] = Column(word(FailureKind))
    document: Named[TrialFailure] = Column(Document(TrialFailure))


failures = Table("failures", metadata, _Failures)


class _Steps(TypedColumns):
    trial_id: Named[str] = Column(Plain, ForeignKey(trials.c.id), primary_key=True)
    step: Named[int] = Column(primary_key=True, autoincrement=False)
    document: Named[StepReport] = Column(Document(StepReport))


steps = Table("steps", metadata, _Steps)


class _Events(TypedColumns):
    sweep_id: Named[str] = Column(Plain, ForeignKey(sweeps.c.id), primary_key=True)
    sequence: Named[int] = Column(primary_key=True, autoincrement=False)
    at: Named[float]
    kind: Named[str]
    data: Named[dict[str, object]] = Column(JSON)


events = Table("events", metadata, _Events)


class _Workers(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)  # owner of the leases that it takes
    version: Named[str] = Column(Plain)
    started_at: Named[float]
    seen_at: Named[float]


workers = Table("workers", metadata, _Workers, Index(None, "seen_at"))
