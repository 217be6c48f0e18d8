"""The tables. Whole values are documents of the wire codec; what queries filter, sort, count and list has its column.

Columns that came after the first revision have a server's default: SQLite adds none without one to a table that others
refer to. No row keeps it, since the store and the revision write every column.
"""

from __future__ import annotations

import json
from dataclasses import fields
from enum import StrEnum
from typing import Generic, TypeVar

from sqlalchemy import (
    JSON,
    Column,
    Enum,
    ForeignKey,
    Index,
    MetaData,
    Named,
    Table,
    Text,
    TypedColumns,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import String, TypeDecorator

from autotuner.domain import wire
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.jobs.profile import DeviceProfile
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.cluster_check import CheckFindings, CheckRequest, CheckState
from autotuner.domain.runs.engine_job import EngineJob
from autotuner.domain.runs.estimate import TrialEstimate
from autotuner.domain.runs.loss_gate import GateOutcome, GateResult
from autotuner.domain.runs.objective import Metric
from autotuner.domain.runs.prediction import Prediction
from autotuner.domain.runs.scaled import ScaledTrial
from autotuner.domain.runs.sweep import Budget, StopReason, SweepRequest, SweepState
from autotuner.domain.runs.trial import FailureKind, Measurement, StepReport, Stopped, TrialFailure, TrialState

__all__ = [
    "checks",
    "clusters",
    "events",
    "failures",
    "gates",
    "measurements",
    "metadata",
    "models",
    "profiles",
    "steps",
    "sweeps",
    "trials",
]

Value = TypeVar("Value")


class Document(TypeDecorator[Value], Generic[Value]):
    """A domain value as the JSON text of ``wire``, schema version included."""

    impl = Text
    cache_ok = True

    def __init__(self, cls: type[Value]) -> None:
        super().__init__()
        self.cls = cls

    def process_bind_param(self, value: Value | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else wire.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Value | None:  # noqa: ARG002
        return None if value is None else wire.loads(self.cls, value)


class KnownFields(Document[Value]):
    """A document of which a reader takes the fields it knows, so that a list shows what a newer release wrote."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Value | None:  # noqa: ARG002
        if value is None:
            return None
        known = {field.name for field in fields(self.cls)}  # type: ignore[arg-type]  # a domain value is a dataclass
        return wire.from_dict(self.cls, {name: part for name, part in json.loads(value).items() if name in known})


class Jobs(TypeDecorator[tuple[EngineJob, ...]]):
    """Jobs of engines as a JSON list."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[EngineJob, ...] | None, dialect: Dialect) -> str:  # noqa: ARG002
        return json.dumps([wire.to_dict(job) for job in value or ()], separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[EngineJob, ...]:  # noqa: ARG002
        return tuple(wire.from_dict(EngineJob, job) for job in json.loads(value or "[]"))


class Plain(TypeDecorator[str]):
    """A text that every database can hold: a NUL or half a surrogate pair is escaped.

    A caller's key with such a character is therefore no error; it finds nothing.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _word(cls: type[StrEnum]) -> Enum:
    """One of the enum's values as plain text, so that a new member needs no migration."""
    return Enum(cls, native_enum=False, length=32, values_callable=lambda members: [member.value for member in members])


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


# ---------------------------------------------------------------------- sweeps and what they did
class _Sweeps(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    idempotency_key: Named[str | None] = Column(Plain, unique=True)
    request: Named[SweepRequest] = Column(Document(SweepRequest))
    state: Named[SweepState] = Column(_word(SweepState))
    created_at: Named[float]
    started_at: Named[float | None]
    finished_at: Named[float | None]
    cancel_requested: Named[bool]
    owner: Named[str | None] = Column(Plain)
    lease_until: Named[float | None]
    stop_reason: Named[StopReason | None] = Column(_word(StopReason))
    stop_detail: Named[str] = Column(Plain)
    # of the request, so that a list of sweeps decodes none
    name: Named[str] = Column(Plain, server_default=text("''"))
    model_name: Named[str] = Column(Plain, server_default=text("''"))
    cluster_name: Named[str] = Column(Plain, server_default=text("''"))
    engine: Named[str] = Column(Plain, server_default=text("'local'"))
    trial_cluster_name: Named[str | None] = Column(Plain)
    metric: Named[Metric] = Column(_word(Metric), server_default=Metric.MFU.value)
    budget: Named[Budget] = Column(KnownFields(Budget), server_default="{}")


sweeps = Table(
    "sweeps",
    metadata,
    _Sweeps,
    Index(None, "created_at", "id"),  # the list, newest first
    Index(None, "state", "created_at", "id"),  # the list of one state, and the oldest to claim
)


class _Trials(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    sweep_id: Named[str] = Column(Plain, ForeignKey(sweeps.c.id))
    number: Named[int]
    state: Named[TrialState] = Column(_word(TrialState))
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
    jobs: Named[tuple[EngineJob, ...]] = Column(Jobs(), server_default=text("'[]'"))
    # of its jobs, so that hours are summed without decoding them: the seconds that they had accelerators, less the
    # starts of those that have them still, and how many these are; null where it has none
    busy_s: Named[float | None]
    num_busy: Named[int] = Column(server_default="0")
    scaled: Named[ScaledTrial | None] = Column(Document(ScaledTrial))


trials = Table(
    "trials",
    metadata,
    _Trials,
    UniqueConstraint("sweep_id", "number"),
    Index(  # counts and hours
        "ix_trials_overview",
        *("sweep_id", "state", "started_at", "finished_at", "world_size", "busy_s", "num_busy"),
    ),
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
    outcome: Named[GateOutcome] = Column(_word(GateOutcome))
    accelerator_hours: Named[float]
    document: Named[GateResult] = Column(Document(GateResult))


gates = Table("gates", metadata, _Gates, Index(None, "sweep_id", "accelerator_hours"))


class _Failures(TypedColumns):
    trial_id: Named[str] = Column(Plain, ForeignKey(trials.c.id), primary_key=True)
    kind: Named[FailureKind] = Column(_word(FailureKind))
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


# ---------------------------------------------------------------------- descriptions by name
class _Models(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    document: Named[TransformerSpec] = Column(Document(TransformerSpec))


models = Table("models", metadata, _Models)


class _Clusters(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    document: Named[Cluster] = Column(Document(Cluster))


clusters = Table("clusters", metadata, _Clusters)


class _Profiles(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    document: Named[DeviceProfile] = Column(Document(DeviceProfile))


profiles = Table("profiles", metadata, _Profiles)


# ---------------------------------------------------------------------- checks of clusters
class _Checks(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    cluster_name: Named[str] = Column(Plain, ForeignKey(clusters.c.name))
    cluster: Named[Cluster] = Column(Document(Cluster))
    request: Named[CheckRequest] = Column(Document(CheckRequest))
    state: Named[CheckState] = Column(_word(CheckState))
    created_at: Named[float]
    started_at: Named[float | None]
    finished_at: Named[float | None]
    cancel_requested: Named[bool]
    owner: Named[str | None] = Column(Plain)
    lease_until: Named[float | None]
    findings: Named[CheckFindings] = Column(Document(CheckFindings))


checks = Table(
    "checks",
    metadata,
    _Checks,
    Index(None, "cluster_name", "created_at", "id"),  # those of a cluster, newest first
    Index(None, "state", "created_at", "id"),  # the oldest to claim
)
