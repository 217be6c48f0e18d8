"""The tables. Whole values are kept as documents of the wire codec; what queries filter and sort by has its column."""

from __future__ import annotations

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
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import String, TypeDecorator

from autotuner.domain import wire
from autotuner.domain.cluster import Cluster
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.prediction import Prediction
from autotuner.domain.profile import DeviceProfile
from autotuner.domain.sweep import StopReason, SweepRequest, SweepState
from autotuner.domain.trial import FailureKind, Measurement, StepReport, TrialFailure, TrialState

__all__ = ["clusters", "events", "failures", "measurements", "metadata", "models", "steps", "sweeps", "trials"]

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


trials = Table("trials", metadata, _Trials, UniqueConstraint("sweep_id", "number"))


class _Measurements(TypedColumns):
    trial_id: Named[str] = Column(Plain, ForeignKey(trials.c.id), primary_key=True)
    sweep_id: Named[str] = Column(Plain, ForeignKey(sweeps.c.id))  # the trial's, here so that one index ranks a sweep
    mfu: Named[float]
    step_time_s: Named[float]
    tokens_per_s: Named[float]
    document: Named[Measurement] = Column(Document(Measurement))


measurements = Table("measurements", metadata, _Measurements)
Index("ix_measurements_ranking", measurements.c.mfu.desc(), measurements.c.trial_id)
Index("ix_measurements_sweep_ranking", measurements.c.sweep_id, measurements.c.mfu.desc(), measurements.c.trial_id)


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
