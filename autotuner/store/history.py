"""The measurements of the trials of all sweeps, on SQLite and PostgreSQL."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select, type_coerce

from autotuner.core import codec
from autotuner.core.cluster import SIMULATED
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.measurement import Breakdown, PhaseTimes
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, PastTrial, ProxyTrial, TrialState
from autotuner.store.engine import AnyRow, AnySelect, reading
from autotuner.store.runs import Part
from autotuner.store.tables import KnownFields, measurements, runs, steps, sweeps, trials


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The fields of a measurement that later predictions learn from; the other fields are not read."""

    step_time_s: float
    peak_bytes: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_simulated: bool = False
    breakdown: Breakdown | None = None
    phases: PhaseTimes | None = None
    foreign_cpu_share: float = 0.0


class HistoryStore(Part):
    """The past trials of all sweeps that were measured or ran out of memory. Later predictions are calibrated by them.

    Simulated trials are left out. Results are ordered by the age of the sweep, newest first, then by the number of the
    trial, highest first. Trials that finished at the time ``before`` or later are left out.
    """

    def measured(
        self, accelerator: str, stack: str | None = None, *, before: float, after: float = 0.0, limit: int = 1000
    ) -> Sequence[PastTrial]:
        """Return up to ``limit`` past trials on accelerators with the name ``accelerator``, newest first.

        Args:
            accelerator: Name of the accelerator.
            stack: Only trials with this software stack; None: with any stack.
            before: Only trials that finished before this time.
            after: Only trials that finished after this time; 0: at any time.
            limit: Greatest number of trials to return.
        """
        mine = [sweeps.c.accelerator == accelerator]
        if stack is not None:
            mine.append(sweeps.c.stack == stack)
        if after:
            mine.append(trials.c.finished_at > after)
        return self._past(mine, before, limit)

    def of_job(self, job_key: str, *, before: float, limit: int = 1000) -> Sequence[PastTrial]:
        """Return past trials of sweeps with exactly this job; their search spaces and budgets may differ.

        ``core.sweep.job_key`` computes the key of a job.
        """
        return self._past([sweeps.c.job_key == job_key], before, limit)

    def accelerators(self) -> Sequence[str]:
        """Return the names of all accelerators on which a real trial (not a simulated one) has ended, in order."""
        with reading(self._engine) as connection:
            return list(connection.scalars(select_accelerators()))

    def newest_at(self) -> float | None:
        """Return the time at which the last trial of all sweeps finished, or None.

        As long as this time stays the same, the history stays the same.
        """
        with reading(self._engine) as connection:
            return connection.scalar(select(func.max(trials.c.finished_at)))

    def _past(self, mine: Sequence[ColumnElement[bool]], before: float, limit: int) -> Sequence[PastTrial]:
        with reading(self._engine) as connection:
            rows = connection.execute(select_history(mine, before).limit(limit)).all()
            requests = _requests(connection, {row.sweep_id for row in rows})
            pruned = _timed_steps(connection, [row.id for row in rows if row.state is TrialState.PRUNED])
        return [*_read(rows, requests, pruned)]


def select_accelerators() -> Select[str]:
    """Return the query for the names of accelerators on which a real trial (not a simulated one) has ended.

    Its cost does not depend on the number of sweeps, because it reads one trial of each accelerator.
    """
    names = select(sweeps.c.accelerator).distinct().subquery()
    ran = (sweeps.c.accelerator == names.c.accelerator) & (sweeps.c.engine != SIMULATED)
    ended = trials.c.finished_at.is_not(None)
    found = select(trials.c.id).join_from(sweeps, trials, trials.c.sweep_id == sweeps.c.id).where(ran, ended)
    return select(names.c.accelerator).where(found.exists()).order_by(names.c.accelerator)


def select_history(mine: Sequence[ColumnElement[bool]], before: float) -> AnySelect:
    """Return the query for trials that were measured or ran out of memory, newest sweep first.

    The database reads the rows in the order of an index, so it need not sort them.

    ``mine`` holds further conditions on ``sweeps`` and ``trials``; a trial must meet all of them. Simulated trials are
    left out.
    """
    ended = or_(trials.c.state.in_((TrialState.COMPLETE, TrialState.PRUNED)), trials.c.failure_kind == FailureKind.OOM)
    past = (sweeps.c.created_at < before) & (trials.c.finished_at < before)
    return (
        select(
            *(trials.c[name] for name in ("id", "sweep_id", "state", "layout", "proxy", "finished_at")),
            type_coerce(measurements.c.document, KnownFields(_Measured)).label("measured"),
        )
        .select_from(sweeps)
        .join(trials, trials.c.sweep_id == sweeps.c.id)
        .outerjoin(measurements, measurements.c.trial_id == trials.c.id)
        .where(*mine, sweeps.c.engine != SIMULATED, past, ended)
        .order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc(), trials.c.number.desc())
    )


def _requests(connection: Connection, sweep_ids: set[str]) -> Mapping[str, SweepRequest]:
    """Return the requests of these sweeps, without those that this release cannot read."""
    found: dict[str, SweepRequest] = {}
    for sweep_id, text in connection.execute(select(runs.c.id, runs.c.request).where(runs.c.id.in_(sweep_ids))).all():
        with suppress(InvalidInput):
            found[sweep_id] = codec.loads(SweepRequest, text)
    return found


def _timed_steps(connection: Connection, trial_ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
    """Return the step times of trials that were ended early, without their warm-up steps."""
    found: dict[str, list[float]] = {}
    for trial_id, step in connection.execute(
        select(steps.c.trial_id, steps.c.document).where(steps.c.trial_id.in_(trial_ids))
    ).all():
        if step.is_measured:
            found.setdefault(trial_id, []).append(step.step_time_s)
    return found


def _read(
    rows: Sequence[AnyRow], requests: Mapping[str, SweepRequest], pruned: Mapping[str, Sequence[float]]
) -> Iterator[PastTrial]:
    for row in rows:
        request = requests.get(row.sweep_id)
        if request is None or (row.measured is not None and row.measured.is_simulated):
            continue
        if row.state is TrialState.PRUNED and row.id not in pruned:
            continue  # the trial ended before its first measured step
        with suppress(InvalidInput):  # skip layouts that do not fit their cluster's size
            yield _past_trial(row, request, pruned.get(row.id, ()))


def _past_trial(row: AnyRow, request: SweepRequest, timed: Sequence[float]) -> PastTrial:
    facts: dict[str, Any] = {"step_time_s": statistics.median(timed) if timed else None}
    if row.measured is not None:
        facts = {
            "step_time_s": row.measured.step_time_s,
            "peak_bytes": _peak_bytes(row.measured, request),
            "environment": row.measured.environment,
            "parts": row.measured.breakdown or row.measured.phases,
            "foreign_share": _foreign_share(row.measured, request),
        }
    return PastTrial(
        job=_job(request, row.proxy),
        layout=row.layout if row.proxy is None else row.proxy.layout,
        sweep_id=row.sweep_id,
        trainer=request.trainer.name if request.trainer else None,
        finished_at=row.finished_at,
        **facts,
    )


def _job(request: SweepRequest, proxy: ProxyTrial | None) -> Job:
    """Return the job that the trial ran: on the trial's cluster, and scaled down for a proxy trial."""
    if proxy is None or request.small_cluster is None:
        return request.trial_job
    return proxy.job(request.job, request.small_cluster)


def _foreign_share(measured: _Measured, request: SweepRequest) -> float:
    """Return the share of the CPU cores' time that other processes used during a trial; 0 for a trial on GPUs."""
    return measured.foreign_cpu_share if request.runs_on.accelerator.kind == "cpu" else 0.0


def _peak_bytes(measured: _Measured, request: SweepRequest) -> float | None:
    """Return the peak memory in bytes to compare with predictions; None if it is unknown.

    A trainer may not report it, and on CPU cores it would include the memory of the interpreter.
    """
    is_of_process = request.trainer is not None and request.runs_on.accelerator.kind == "cpu"
    return max(measured.peak_bytes) if measured.peak_bytes and not is_of_process else None
