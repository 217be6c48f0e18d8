"""The tables. Whole values are documents of ``core.codec``; values that queries filter, sort or count are columns."""

# ruff: noqa: D102  # SQLAlchemy documents the overridden methods

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import StrEnum
from inspect import isclass
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Double,
    Enum,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Named,
    Table,
    Text,
    TypedColumns,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import String, TypeDecorator, TypeEngine

from autotuner.core import codec
from autotuner.core.access import AuditEntry, Session, Token
from autotuner.core.announcement import Announcement, Webhook
from autotuner.core.comment import Comment
from autotuner.core.convergence_gate import GateResult
from autotuner.core.errors import Unreadable
from autotuner.core.health import KnownWorker
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, Measurement, StepReport
from autotuner.core.objective import Metric, Weight
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.run import Problem, RunState, Stop, StopReason
from autotuner.core.study import OptimizerTrial
from autotuner.core.sweep import Budget, ExpectedImprovement
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import EngineJob, FailureKind, ProxyTrial, Stopped, TrialFailure, TrialState, Waiting
from autotuner.core.upkeep import Baseline, Retune

Value = TypeVar("Value")


@contextmanager
def _stored(cls: type[Any], text: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # InvalidInput is a ValueError
        raise Unreadable(cls.__name__, text, error) from error


def read_document(cls: type[Value], text: str) -> Value:
    """Return the value of type ``cls`` that a stored JSON text describes.

    Raises:
        Unreadable: Another release wrote the text, or the text is damaged.
    """
    with _stored(cls, text):
        return codec.loads(cls, text)


class Document(TypeDecorator[Value], Generic[Value]):
    """A column type that stores a value of the core as JSON text with its schema version, as ``codec`` writes it."""

    impl = Text
    cache_ok = True

    def __init__(self, cls: type[Value]) -> None:
        super().__init__()
        self.cls = cls

    def process_bind_param(self, value: Value | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else codec.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Value | None:  # noqa: ARG002
        return None if value is None else read_document(self.cls, value)


class KnownFields(Document[Value]):
    """A ``Document`` column that ignores unknown fields, so that lists can show rows that a newer release wrote."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Value | None:  # noqa: ARG002
        if value is None:
            return None
        known = {field.name for field in fields(self.cls)}  # type: ignore[arg-type]  # a value of the core is a dataclass
        with _stored(self.cls, value):
            return codec.from_plain(self.cls, {name: part for name, part in json.loads(value).items() if name in known})


class Documents(TypeDecorator[tuple[Value, ...]], Generic[Value]):
    """A column type that stores a tuple of core values, or of plain words, as a JSON list."""

    impl = Text
    cache_ok = True

    def __init__(self, cls: type[Value]) -> None:
        super().__init__()
        self.cls = cls

    def process_bind_param(self, value: tuple[Value, ...] | None, dialect: Dialect) -> str:  # noqa: ARG002
        return json.dumps([codec.to_plain(item) for item in value or ()], separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[Value, ...]:  # noqa: ARG002
        with _stored(self.cls, value or ""):
            items = json.loads(value or "[]")
            if issubclass(self.cls, str):
                return tuple(self.cls(item) for item in items)
            return tuple(codec.from_plain(self.cls, item) for item in items)


class Plain(TypeDecorator[str]):
    """A column type for text with any characters. It escapes a NUL or half of a surrogate pair, which databases refuse.

    Therefore a search for a key with such a character finds nothing, and raises no error.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def word(cls: type[StrEnum]) -> Enum:
    """Return the column type that stores the members of an enum as plain text.

    A new member of the enum then needs no migration.
    """
    return Enum(cls, native_enum=False, length=32, values_callable=lambda members: [member.value for member in members])


def columns_of(cls: type[Any], *, key: str = "", without: Collection[str] = ()) -> Iterator[Column[Any]]:
    """Return the columns of a table that has one column for each field of the dataclass ``cls``.

    ``key`` names the field that is the primary key; empty: no field is. Fields in ``without`` get no column.
    """
    for name, hint in get_type_hints(cls).items():
        if name in without:
            continue
        kinds = [kind for kind in get_args(hint) if kind is not NoneType] if isinstance(hint, UnionType) else [hint]
        yield Column(name, _type_of(kinds[0]), primary_key=name == key, nullable=kinds[0] is not hint)


def _type_of(hint: Any) -> TypeEngine[Any]:
    """Return the SQL type of a column for values of a Python type."""
    if get_origin(hint) is tuple:
        return Documents(get_args(hint)[0])
    if is_dataclass(hint):
        return Document(cast("type[Any]", hint))
    if isclass(hint) and issubclass(hint, StrEnum):
        return word(hint)
    known: Mapping[Any, TypeEngine[Any]] = {str: Plain(), float: Double(), int: Integer(), bool: Boolean()}
    return known.get(hint, JSON())


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


# ---------------------------------------------------------------------- durable runs
class _Runs(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    kind: Named[str] = Column(Plain)
    state: Named[RunState] = Column(word(RunState))
    subject: Named[str] = Column(Plain)
    unique_key: Named[str | None] = Column(Plain, unique=True)  # see the store of each kind
    parent_id: Named[str | None] = Column(Plain)
    awaits: Named[str | None] = Column(Plain)  # id of the child run that this run waits for; null when it has ended
    created_by: Named[str] = Column(Plain)
    created_at: Named[float]
    due_at: Named[float]
    started_at: Named[float | None]
    finished_at: Named[float | None]
    request: Named[str] = Column(Text)  # documents; the kind of the run sets their types
    progress: Named[str | None] = Column(Text)
    demand: Named[str | None] = Column(Text)
    num_changes: Named[int]  # version of ``demand``
    result: Named[str | None] = Column(Text)
    detail: Named[str] = Column(Plain)
    problem: Named[Problem | None] = Column(Document(Problem))
    wanted: Named[Stop | None] = Column(word(Stop))
    idle_since: Named[float | None]
    idle_s: Named[float]
    num_reopened: Named[int]
    owner: Named[str | None] = Column(Plain)
    claim: Named[int]
    renewals: Named[int]
    lease_s: Named[float | None]
    seen_at: Named[float | None]  # last heartbeat of the holder, or when it gave the run back


runs = Table(
    "runs",
    metadata,
    _Runs,
    Index(None, "kind", "state", "due_at", "created_at", "id"),  # runs that a worker may claim
    Index(None, "kind", "created_at", "id"),  # a list, newest first
    Index(None, "kind", "subject", "created_at", "id"),  # a list of one subject
    Index(None, "kind", "state", "created_at", "id"),  # a list in one state
    Index(None, "parent_id"),
    Index(None, "owner"),  # runs that a worker holds
)


class _Events(TypedColumns):
    run_id: Named[str] = Column(Plain, ForeignKey(runs.c.id), primary_key=True)
    sequence: Named[int] = Column(primary_key=True, autoincrement=False)
    at: Named[float]
    kind: Named[str]
    data: Named[dict[str, object]] = Column(JSON)


events = Table("events", metadata, _Events)


workers = Table("workers", metadata, *columns_of(KnownWorker, key="name"), Index(None, "seen_at"))


# ---------------------------------------------------------------------- sweeps and optimizer studies
class _Sweeps(TypedColumns):
    """Facts about the run of a sweep that lists, history and quotas read."""

    id: Named[str] = Column(Plain, ForeignKey(runs.c.id), primary_key=True)
    # copied from the run, so that one index finds and sorts sweeps
    created_at: Named[float]
    created_by: Named[str] = Column(Plain)
    state: Named[RunState] = Column(word(RunState))
    finished_at: Named[float | None]
    stop_reason: Named[StopReason | None] = Column(word(StopReason))
    # copied from the request, so that a list of sweeps decodes no request; the budget is the current one
    name: Named[str] = Column(Plain)
    model: Named[str] = Column(Plain)
    cluster: Named[str] = Column(Plain)
    engine: Named[str] = Column(Plain)
    trial_cluster: Named[str | None] = Column(Plain)
    metric: Named[Metric] = Column(word(Metric))
    under_faults: Named[bool]
    profile: Named[tuple[Weight, ...]] = Column(Documents(Weight))
    front: Named[tuple[Metric, ...]] = Column(Documents(Metric))
    budget: Named[Budget] = Column(KnownFields(Budget))
    # copied from the request, so that history finds sweeps by accelerator, software and job without decoding it
    accelerator: Named[str] = Column(Plain)
    stack: Named[str] = Column(Plain)
    job_key: Named[str] = Column(Plain)
    expected_improvement: Named[ExpectedImprovement | None] = Column(KnownFields(ExpectedImprovement))
    thinned_at: Named[float | None]  # time when retention removed the steps and events of its trials


sweeps = Table(
    "sweeps",
    metadata,
    _Sweeps,
    Index(None, "created_at", "id"),  # the list, newest first
    Index(None, "state", "created_at", "id"),  # the list of one state
    Index(None, "accelerator", "created_at", "id"),  # history of one accelerator
    Index(None, "job_key", "created_at", "id"),  # history of one job
    Index(None, "created_by", "state", "finished_at"),  # usage of one caller
    Index(None, "thinned_at", "finished_at"),  # sweeps that retention may thin
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
    world_size: Named[int]
    stopped: Named[Stopped | None] = Column(Document(Stopped))
    jobs: Named[tuple[EngineJob, ...]] = Column(Documents(EngineJob))
    # Computed from its jobs, so that hours are summed without decoding them: the seconds that they had accelerators,
    # less the starts of running jobs, and the number of running jobs. Null without jobs. A waiting trial without jobs
    # has the seconds that it worked before.
    busy_s: Named[float | None]
    num_busy: Named[int]
    proxy: Named[ProxyTrial | None] = Column(Document(ProxyTrial))
    repeats: Named[int | None]
    expected_gain: Named[float | None]
    failure: Named[TrialFailure | None] = Column(Document(TrialFailure))
    failure_kind: Named[FailureKind | None] = Column(word(FailureKind))  # for history
    gate: Named[GateResult | None] = Column(Document(GateResult))
    gate_hours: Named[float | None]  # accelerator-hours of the gate, so that one index sums a sweep
    waiting: Named[Waiting | None] = Column(Document(Waiting))
    runs: Named[tuple[FinishedRun, ...]] = Column(Documents(FinishedRun))


trials = Table(
    "trials",
    metadata,
    _Trials,
    UniqueConstraint("sweep_id", "number"),
    Index(  # counts and hours
        "ix_trials_overview",
        *("sweep_id", "state", "started_at", "finished_at", "world_size", "busy_s", "num_busy"),
        *("repeats", "gate_hours"),
    ),
    Index(None, "finished_at"),  # the newest of all
)


class _Measurements(TypedColumns):
    trial_id: Named[str] = Column(Plain, ForeignKey(trials.c.id), primary_key=True)
    sweep_id: Named[str] = Column(Plain, ForeignKey(sweeps.c.id))  # the trial's, for the ranking index
    # values for ranking: from the measurement, or from the estimate if the trial ran on fewer ranks than its job
    mfu: Named[float]
    step_time_s: Named[float]
    tokens_per_s: Named[float]
    document: Named[Measurement] = Column(Document(Measurement))
    is_ranked: Named[bool]
    value: Named[float]  # value by the sweep's objective
    step_time_interval_s: Named[float | None]
    noise_floor: Named[float | None]
    estimate: Named[TrialEstimate | None] = Column(Document(TrialEstimate))
    timeline: Named[StepTimeline | None] = Column(Document(StepTimeline))  # not read by lists


measurements = Table("measurements", metadata, _Measurements)
Index("ix_measurements_ranking", measurements.c.is_ranked, measurements.c.mfu.desc(), measurements.c.trial_id)
Index(
    "ix_measurements_sweep_ranking",
    measurements.c.sweep_id,
    measurements.c.is_ranked,
    measurements.c.value.desc(),
    measurements.c.trial_id,
)


class _Steps(TypedColumns):
    trial_id: Named[str] = Column(Plain, ForeignKey(trials.c.id), primary_key=True)
    step: Named[int] = Column(primary_key=True, autoincrement=False)
    document: Named[StepReport] = Column(Document(StepReport))


steps = Table("steps", metadata, _Steps)


class _StudyTrials(TypedColumns):
    run_id: Named[str] = Column(Plain, ForeignKey(runs.c.id), primary_key=True)
    number: Named[int] = Column(primary_key=True, autoincrement=False)
    document: Named[OptimizerTrial] = Column(Document(OptimizerTrial))


study_trials = Table("study_trials", metadata, _StudyTrials)


comments = Table(
    "comments",
    metadata,
    *columns_of(Comment, key="id"),
    ForeignKeyConstraint(["sweep_id"], [sweeps.c.id]),
    Index(None, "sweep_id", "created_at", "id"),  # comments of one sweep, newest first
)


# ---------------------------------------------------------------------- descriptions by name
class _Descriptions(TypedColumns):
    kind: Named[str] = Column(Plain, primary_key=True)  # model, cluster or profile
    name: Named[str] = Column(Plain, primary_key=True)
    document: Named[str] = Column(Text)  # its type follows from the kind
    created_by: Named[str] = Column(Plain)


descriptions = Table("descriptions", metadata, _Descriptions)


# ---------------------------------------------------------------------- retunes and baselines of gates
retunes = Table(
    "retunes",
    metadata,
    Column("name", Plain, primary_key=True),
    *columns_of(Retune, without=("last_run",)),
    Index(None, "next_due_at"),
)


class _Baselines(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    key: Named[str] = Column(Plain, primary_key=True)
    at: Named[float]
    document: Named[Baseline] = Column(Document(Baseline))


baselines = Table("baselines", metadata, _Baselines)


# ---------------------------------------------------------------------- announcements
announcements = Table("announcements", metadata, *columns_of(Announcement, key="id"), Index(None, "at", "id"))


webhooks = Table("webhooks", metadata, *columns_of(Webhook, key="name"))


# ---------------------------------------------------------------------- access and audit log
tokens = Table("tokens", metadata, *columns_of(Token, key="id"), Column("digest", Plain, nullable=False))


sessions = Table(
    "sessions",
    metadata,
    *columns_of(Session, key="id"),
    ForeignKeyConstraint(["token_id"], [tokens.c.id]),
    Index(None, "token_id"),
    Index(None, "expires_at"),
)


audit = Table(
    "audit",
    metadata,
    Column("id", Plain, primary_key=True),
    *columns_of(AuditEntry),
    Index(None, "at", "id"),  # newest first
    Index(None, "caller", "at", "id"),  # entries of one caller
)
