"""Trials of sweeps: workers write them, and everybody reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core import codec
from autotuner.core.convergence_gate import GateResult
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.objective import Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.run import Lease
from autotuner.core.sweep import Event, RunTrial
from autotuner.core.trial import EngineJob, Outcome, RankedTime, Stopped, Trial, TrialState, TrialsVersion
from autotuner.core.trial import trial_id as id_of
from autotuner.store import events, trial_changes
from autotuner.store.engine import AnySelect, one_row, reading, window, writing
from autotuner.store.events import trial_facts, write_event
from autotuner.store.options import Page, TrialFilter
from autotuner.store.runs import Part, hold
from autotuner.store.tables import measurements, runs, steps, sweeps, trials

_BATCH = 500
"""Number of trials that are read at once."""

_UNFINISHED = tuple(state for state in TrialState if not state.finished)

_COLUMNS = [trials.c[field.name] for field in fields(Trial) if field.name in trials.c]

_CHANGING = (
    *("state", "attempts", "started_at", "finished_at", "stopped", "jobs", "waiting", "runs", "failure", "gate"),
)
"""Columns of a trial that change. The number, the layout, the prediction and the columns derived from them never
change."""

_TRIAL_COLUMNS = (*_COLUMNS, measurements.c.document.label("measurement"), measurements.c.estimate)
"""Columns that the constructor of ``Trial`` takes."""

TRIALS: AnySelect = select(*_TRIAL_COLUMNS).select_from(
    trials.outerjoin(measurements, measurements.c.trial_id == trials.c.id)
)


class TrialStore(Part):
    """The store of the trials and events of sweeps.

    The methods with which a worker writes (``add_trial`` to ``set_estimates``) take the lease of the sweep's run. They
    raise ``LeaseLost`` if another worker has claimed the run since then. So a slow worker whose run was taken over
    cannot disturb its successor.
    """

    # ------------------------------------------------------------------ writing, for workers
    def add_trial(self, order: RunTrial, *, lease: Lease) -> Trial:
        """Store the trial that the search orders, as queued.

        Raise ``Conflict`` if the sweep already has a trial with the number of the order. The improvement that the
        search expects from the layout is stored with the trial and, with further expectations, with the sweep. If the
        search did not choose the layout, the sweep keeps its stored expectations.
        """
        expected_improvement = order.expected_improvement
        trial = Trial(
            id=id_of(lease.run_id, order.number),
            sweep_id=lease.run_id,
            number=order.number,
            state=TrialState.QUEUED,
            layout=order.layout,
            prediction=order.prediction,
            proxy=order.proxy,
            repeats=order.repeats,
            expected_gain=None if expected_improvement is None else expected_improvement.expected_gain,
        )
        try:
            with writing(self._engine) as connection:
                hold(connection, lease)
                insert_trial(connection, trial)
                if expected_improvement is not None:
                    mine = update(sweeps).where(sweeps.c.id == trial.sweep_id)
                    connection.execute(mine.values(expected_improvement=expected_improvement))
        except IntegrityError as error:
            raise Conflict(f"sweep {trial.sweep_id} already has a trial {trial.number}") from error
        return trial

    def start_trial(self, trial_id: str, *, lease: Lease, now: float) -> Trial:
        """Store that a queued trial runs. It has one attempt more, unless an engine still runs a job of the trial.

        Writes the event ``trial.started``.
        """
        with self._holding(lease, trial_id) as connection:
            trial = trial_changes.start(get_trial(connection, trial_id), now=now)
            return save_trial(connection, trial, "trial.started", now)

    def add_step(self, trial_id: str, step: StepReport, *, lease: Lease, now: float) -> None:
        """Store the report of one training step of a running trial. Writes the event ``trial.step``."""
        try:
            with self._holding(lease, trial_id) as connection:
                mine = select(trials.c.number, trials.c.state).where(trials.c.id == trial_id)
                number, state = connection.execute(mine).one()
                trial_changes.check_running(trial_id, state)
                connection.execute(insert(steps).values(trial_id=trial_id, step=step.step, document=step))
                facts = {"trial_id": trial_id, "number": number, "step": step.step}
                write_event(connection, lease.run_id, events.STEP, facts, now)
        except IntegrityError as error:
            raise Conflict(f"trial {trial_id} has already reported step {step.step}") from error

    def finish_trial(self, trial_id: str, outcome: Outcome, *, lease: Lease, now: float) -> Trial:
        """Store how the trial's attempt ended: complete, failed, pruned or cancelled.

        After any other end, the trial is queued again. An attempt that ended because of ``shutdown`` does not count,
        unless a job of the trial still runs. Writes the event ``trial.finished``, or ``trial.interrupted`` if the trial
        is queued again.
        """
        with self._holding(lease, trial_id) as connection:
            trial = trial_changes.finish(get_trial(connection, trial_id), outcome, now=now)
            if trial.ran_measurement is not None:
                _insert_measurement(connection, trial, trial.ran_measurement, objective_of(connection, lease.run_id))
            kind = "trial.finished" if trial.state.finished else "trial.interrupted"
            return save_trial(connection, trial, kind, now)

    def add_link_event(self, trial_id: str, event: LinkEvent, *, lease: Lease, now: float) -> None:
        """Write the event ``trial.link_event``, which says what a pipeline found out about its links or ranks."""
        self._tell(trial_id, "trial.link_event", codec.to_plain(event), lease, now)

    def add_note(self, trial_id: str, note: str, *, lease: Lease, now: float) -> None:
        """Write the event ``trial.note``, a message about a running trial for the people who wait for it."""
        self._tell(trial_id, "trial.note", {"note": note}, lease, now)

    def _tell(self, trial_id: str, kind: str, facts: Mapping[str, object], lease: Lease, now: float) -> None:
        with self._holding(lease, trial_id) as connection:
            number = connection.scalars(select(trials.c.number).where(trials.c.id == trial_id)).one()
            write_event(connection, lease.run_id, kind, {"trial_id": trial_id, "number": number, **facts}, now)

    def set_job(self, trial_id: str, job: EngineJob, *, lease: Lease, now: float) -> Trial:
        """Store the current state of a job that an engine, such as Slurm, runs for a trial.

        It replaces the earlier state.

        If the trial has no job of that name, the job is added. The trial waits while the job is in the engine's queue.
        A trial keeps its jobs when it is interrupted. Writes the event ``trial.job``.
        """
        with self._holding(lease, trial_id) as connection:
            trial = trial_changes.set_job(get_trial(connection, trial_id), job)
            update_trial(connection, trial)
            facts = {"trial_id": trial_id, "number": trial.number, **codec.to_plain(job)}
            write_event(connection, lease.run_id, "trial.job", facts, now)
            return trial

    def set_waiting(self, trial_id: str, reason: str | None, *, lease: Lease, now: float) -> Trial:
        """Store that a started trial waits for devices, and why; if ``reason`` is None, store that the wait is over.

        If a job of the trial is in an engine's queue, the trial waits even if ``reason`` is None. Waiting time does not
        count as accelerator time. Writes the event ``trial.waiting`` or ``trial.resumed``.
        """
        with self._holding(lease, trial_id) as connection:
            trial = trial_changes.wait(get_trial(connection, trial_id), reason, now=now)
            update_trial(connection, trial)
            facts = {**trial_facts(trial), "waiting": codec.to_plain(trial.waiting)}
            write_event(connection, lease.run_id, "trial.waiting" if trial.waiting else "trial.resumed", facts, now)
            return trial

    def add_run(self, trial_id: str, run: FinishedRun, *, lease: Lease) -> None:
        """Store a finished run of a started trial, so that no worker repeats this run after an interruption.

        A trial may have several runs. When the trial ends, its finished runs are deleted.
        """
        with self._holding(lease, trial_id) as connection:
            update_trial(connection, trial_changes.add_run(get_trial(connection, trial_id), run))

    def add_gate(self, trial_id: str, result: GateResult, *, lease: Lease, now: float) -> Trial:
        """Store the result of the convergence gate of a complete trial. If the gate failed, the trial loses its rank.

        Writes the event ``trial.gated``. If the trial already has a gate result, ``Conflict`` is raised.
        """
        with self._holding(lease, trial_id) as connection:
            trial = trial_changes.add_gate(get_trial(connection, trial_id), result)
            update_trial(connection, trial)
            mine = update(measurements).where(measurements.c.trial_id == trial_id)
            connection.execute(mine.values(is_ranked=trial.is_ranked))
            facts = {**trial_facts(trial), "outcome": result.outcome.value, "detail": result.detail}
            write_event(connection, lease.run_id, "trial.gated", facts, now)
            return trial

    def set_estimates(
        self, sweep_id: str, estimates: Mapping[str, TrialEstimate], *, lease: Lease, now: float
    ) -> Sequence[Trial]:
        """Store full-size estimates of proxy trials, given by trial id.

        They replace earlier estimates, and the trials are ranked by them. Returns the changed trials in the order of
        ``estimates``. Writes one event ``sweep.estimated``. Raises ``Conflict`` if a trial is not a measured proxy
        trial (a trial on fewer ranks than its job has).
        """
        with writing(self._engine) as connection:
            hold(connection, lease)
            objective = objective_of(connection, sweep_id)
            estimated = []
            for trial_id, estimate in estimates.items():
                trial = trial_changes.set_estimate(get_trial(connection, trial_id), estimate)
                mine = update(measurements).where(measurements.c.trial_id == trial_id)
                connection.execute(mine.values(estimate=estimate, **_rank(trial, estimate, objective)))
                estimated.append(trial)
            facts: dict[str, object] = {"step_time_s": {key: one.step_time_s for key, one in estimates.items()}}
            write_event(connection, sweep_id, "sweep.estimated", facts, now)
            return estimated

    @contextmanager
    def _holding(self, lease: Lease, trial_id: str) -> Iterator[Connection]:
        """Open a transaction in which a worker may write the data of a trial.

        Raises:
            NotFound: No trial has this id.
            LeaseLost: Another worker holds the trial's sweep.
        """
        with writing(self._engine) as connection:
            sweep_id = connection.scalar(select(trials.c.sweep_id).where(trials.c.id == trial_id))
            if sweep_id is None:
                raise NotFound("trial", trial_id)
            if sweep_id != lease.run_id:
                raise LeaseLost(sweep_id, lease.owner)
            hold(connection, lease)
            yield connection

    # ------------------------------------------------------------------ reading
    def get_trial(self, trial_id: str) -> Trial:
        """Return a trial with its steps and the timeline of its measurement; raise ``NotFound`` if it is not stored."""
        with reading(self._engine) as connection:
            return get_trial(connection, trial_id)

    def list_trials(
        self, sweep_id: str, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        """Return one page of a sweep's trials, and the number of trials that match the filter.

        Trials are ordered by number; their steps and timelines are left out.
        """
        mine = (trials.c.sweep_id == sweep_id, *passing(where))
        with reading(self._engine) as connection:
            check_sweep(connection, sweep_id)
            query = TRIALS.where(*mine).order_by(trials.c.number)
            rows, total = window(connection, query, page, counted=select(trials.c.id).where(*mine))
        return [_trial(**row._mapping) for row in rows], total

    def all_trials(self, sweep_id: str) -> Iterator[Trial]:
        """Yield every trial of a sweep, ordered by number, without its steps. Trials are read in batches."""
        total, offset = 1, 0
        while offset < total:
            found, total = self.list_trials(sweep_id, page=Page(limit=_BATCH, offset=offset))
            yield from found
            offset += _BATCH

    def ranking(
        self, sweep_id: str | None = None, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        """Return one page of the trials that have a rank, best first, and the number of ranked trials that match.

        Trials of one sweep are ordered by the value of the sweep's objective. If ``sweep_id`` is None, the trials of
        all sweeps are ordered by MFU. Trials with equal values are ordered by id. The query uses an index.
        """
        with reading(self._engine) as connection:
            if sweep_id is not None:
                check_sweep(connection, sweep_id)
            ids = ranked_ids(sweep_id, where)
            rows, total = window(connection, ranking(sweep_id, where), page, counted=ids)
        return [_trial(**row._mapping) for row in rows], total

    def ranked_times(self, sweep_id: str) -> Sequence[RankedTime]:
        """Return the step time of every ranked trial of a sweep, and the number that decides its rank, best first.

        No trial is decoded.
        """
        with reading(self._engine) as connection:
            check_sweep(connection, sweep_id)
            repeated: dict[str, list[float]] = {}
            for number, step_time_s in connection.execute(repeated_times(sweep_id)):
                assert number is not None, "the query asks for those that repeat one"
                repeated.setdefault(id_of(sweep_id, number), []).append(step_time_s)
            with_values = objective_of(connection, sweep_id).reads_resource_cost
            rows = connection.execute(ranked_times(sweep_id, with_values=with_values)).all()
            return [RankedTime(**row._mapping, repeated_s=tuple(repeated.get(row.trial_id, ()))) for row in rows]

    def trials_version(self, sweep_id: str) -> TrialsVersion:
        """Return a version of a sweep's trials. Caches compare versions to learn whether the trials have changed.

        It changes whenever the result of ``list_trials`` changes.
        """
        with reading(self._engine) as connection:
            check_sweep(connection, sweep_id)
            last_event = connection.scalar(events.last_other_event(sweep_id)) or 0
            num_trials = connection.scalar(count_trials(sweep_id)) or 0
            return TrialsVersion(last_event=last_event, num_trials=num_trials)

    def events(self, run_id: str, *, after: int = 0, limit: int = 500) -> Sequence[Event]:
        """Return up to ``limit`` events of a run with a sequence number above ``after``, in order.

        Only runs of sweeps have events.
        """
        with reading(self._engine) as connection:
            one_row(connection, select(runs.c.id).where(runs.c.id == run_id), "run", run_id)
            return events.read_events(connection, run_id, after, limit)


# ---------------------------------------------------------------------- on a connection: reading
def check_sweep(connection: Connection, sweep_id: str) -> None:
    """Check that a sweep is stored, before a query about its trials; raise ``NotFound`` if it is not."""
    one_row(connection, select(sweeps.c.id).where(sweeps.c.id == sweep_id), "sweep", sweep_id)


def objective_of(connection: Connection, sweep_id: str) -> Objective:
    """Return the objective of a stored sweep: the quantity that its search maximises."""
    columns = [sweeps.c[field.name] for field in fields(Objective)]
    return Objective(**connection.execute(select(*columns).where(sweeps.c.id == sweep_id)).one()._mapping)


def get_trial(connection: Connection, trial_id: str) -> Trial:
    """Return a trial with its outcome, its steps and its timeline; raise ``NotFound`` if it is not stored."""
    timed = TRIALS.add_columns(measurements.c.timeline).where(trials.c.id == trial_id)
    row = one_row(connection, timed, "trial", trial_id)
    reports = select(steps.c.document).where(steps.c.trial_id == trial_id).order_by(steps.c.step)
    values = {**row._mapping, "steps": tuple(connection.scalars(reports))}
    timeline = values.pop("timeline")
    trial = _trial(**values)
    found = trial.ran_measurement
    return trial if found is None else trial.with_measurement(replace(found, timeline=timeline))


def _trial(*, measurement: Measurement | None, **values: Any) -> Trial:
    """Return the trial of a row with its measurement, which belongs to the layout that ran."""
    trial = Trial(**values)
    return trial if measurement is None else trial.with_measurement(measurement)


def get_trials(connection: Connection, sweep_id: str, *states: TrialState) -> list[Trial]:
    """Return the trials of a sweep that are in one of these states, ordered by number, without their steps."""
    mine = TRIALS.where(trials.c.sweep_id == sweep_id, trials.c.state.in_(states))
    return [_trial(**row._mapping) for row in connection.execute(mine.order_by(trials.c.number))]


def has_jobs(connection: Connection, sweep_id: str) -> bool:
    """Return True if an engine may still run a job of an unfinished trial of the sweep."""
    return any(trial.job_goes_on for trial in get_trials(connection, sweep_id, *_UNFINISHED))


def count_trials(sweep_id: str) -> Select[int]:
    """Return the query for the number of trials of a sweep. It reads only an index."""
    return select(func.count()).select_from(trials).where(trials.c.sweep_id == sweep_id)


def passing(where: TrialFilter) -> list[ColumnElement[bool]]:
    """Return the SQL conditions on ``trials`` for the trials that match the filter."""
    return [
        trials.c[field.name] == value for field in fields(where) if (value := getattr(where, field.name)) is not None
    ]


# ---------------------------------------------------------------------- rankings, in the order of indexes
def ranking(sweep_id: str | None, where: TrialFilter) -> AnySelect:
    """Return the query for the trials that have a rank and match the filter, best first.

    If ``sweep_id`` is None, the trials of all sweeps are ranked.
    """
    joined = measurements.join(trials, trials.c.id == measurements.c.trial_id)
    return _best_first(select(*_TRIAL_COLUMNS).select_from(joined).where(*passing(where)), sweep_id)


def ranked_ids(sweep_id: str | None, where: TrialFilter) -> AnySelect:
    """Return the query for the ids of the trials in ``ranking``. Without a filter, it reads only an index."""
    query = select(measurements.c.trial_id).select_from(measurements)
    if filtered := passing(where):
        query = query.join(trials, trials.c.id == measurements.c.trial_id).where(*filtered)
    return _best_first(query, sweep_id)


def ranked_times(sweep_id: str, *, with_values: bool) -> AnySelect:
    """Return the query for ``RankedTime`` rows of a sweep's ranked trials without repeats, best first.

    With ``with_values``, each row also has the product of the objective's value and the step time.
    """
    names = (field.name for field in fields(RankedTime) if field.name in measurements.c)
    product = (measurements.c.value * measurements.c.step_time_s).label("value_per_step")
    columns = [*(measurements.c[name] for name in names), *([product] if with_values else [])]
    return _best_first(select(*columns), sweep_id)


def repeated_times(sweep_id: str) -> Select[int | None, float]:
    """Return the query for the step times of trials that repeat another trial, with the number of that other trial."""
    return (
        select(trials.c.repeats, measurements.c.step_time_s)
        .join_from(trials, measurements, measurements.c.trial_id == trials.c.id)
        .where(trials.c.sweep_id == sweep_id, trials.c.repeats.is_not(None))
        .order_by(trials.c.number)
    )


def _best_first(query: AnySelect, sweep_id: str | None) -> AnySelect:
    """Return the query for ranked trials, best first: by the objective's value in one sweep, by MFU in all sweeps."""
    ranked = query.where(measurements.c.is_ranked)
    if sweep_id is None:
        return ranked.order_by(measurements.c.mfu.desc(), measurements.c.trial_id)
    mine = ranked.where(measurements.c.sweep_id == sweep_id)
    return mine.order_by(measurements.c.value.desc(), measurements.c.trial_id)


# ---------------------------------------------------------------------- on a connection: writing
def insert_trial(connection: Connection, trial: Trial) -> None:
    """Insert the row of a new trial. Its columns include those that queries use as filters."""
    degrees = {field.name: getattr(trial.layout, field.name) for field in fields(TrialFilter) if field.name != "state"}
    values = {column.name: getattr(trial, column.name) for column in _COLUMNS} | degrees | _summed(trial)
    connection.execute(insert(trials).values(values | {"world_size": trial.ran.world_size}))


def update_trial(connection: Connection, trial: Trial) -> None:
    """Write those values of a trial that may change after the trial was stored to its row."""
    changed = {name: getattr(trial, name) for name in _CHANGING} | _summed(trial)
    connection.execute(update(trials).where(trials.c.id == trial.id).values(changed))


def _summed(trial: Trial) -> dict[str, Any]:
    """Return the columns that queries sum or search, so that no document has to be decoded.

    At any time, the trial's jobs have had accelerators for ``busy_s + num_busy * now`` seconds. A waiting trial without
    jobs has ``num_busy`` 0, so that its time does not grow.
    """
    started = [job for job in trial.jobs if job.started_at is not None]
    seconds = sum((job.ended_at or 0.0) - (job.started_at or 0.0) for job in started)
    busy = {"busy_s": seconds if trial.jobs else None, "num_busy": sum(job.ended_at is None for job in started)}
    if trial.waiting is not None and not trial.jobs:
        busy = {"busy_s": trial.worked_s(trial.waiting.since), "num_busy": 0}
    return {
        **busy,
        "failure_kind": trial.failure.kind if trial.failure else None,
        "gate_hours": trial.gate.accelerator_hours if trial.gate else None,
    }


def _insert_measurement(connection: Connection, trial: Trial, measurement: Measurement, objective: Objective) -> None:
    """Store the measurement of a trial with the columns that queries rank by."""
    values = {
        "trial_id": trial.id,
        "sweep_id": trial.sweep_id,
        "document": replace(measurement, timeline=None),
        "timeline": measurement.timeline,
        "noise_floor": measurement.noise_floor,
        "estimate": trial.estimate,
        **_rank(trial, trial.reached or measurement, objective),
    }
    connection.execute(insert(measurements).values(values))


def _rank(trial: Trial, reached: Measurement | TrialEstimate, objective: Objective) -> dict[str, Any]:
    """Return the columns that queries rank by.

    MFU and tokens per second, which rank trials of all sweeps, come from steps without faults. The other columns come
    from the steps that the sweep's objective counts.
    """
    counted = objective.counted(reached)
    return {
        "mfu": reached.mfu,
        "step_time_s": counted.step_time_s,
        "tokens_per_s": reached.tokens_per_s,
        "is_ranked": trial.is_ranked,
        "value": objective.value(reached),
        "step_time_interval_s": counted.step_time_error_s,
    }


def save_trial(connection: Connection, trial: Trial, event_kind: str, now: float) -> Trial:
    """Write the changes of a trial, and an event of the kind ``event_kind``. Return the trial.

    If the trial is queued again and has no finished run, its steps are deleted.
    """
    update_trial(connection, trial)
    write_event(connection, trial.sweep_id, event_kind, trial_facts(trial), now)
    if trial.state is TrialState.QUEUED and not trial.runs:  # steps are of the first run
        events.forget_steps(connection, trial)
    return trial


def end_trials(connection: Connection, sweep_id: str, stopped: Stopped, now: float) -> None:
    """Cancel all unfinished trials of a finished sweep.

    If this release cannot read one of the trials, it sets the state and the end of all of them without reading them.
    """
    try:
        for trial in get_trials(connection, sweep_id, *_UNFINISHED):
            update_trial(connection, trial_changes.finish(trial, stopped, now=now))
    except InvalidInput:
        unfinished = (trials.c.sweep_id == sweep_id) & trials.c.state.in_(_UNFINISHED)
        ended = {"state": TrialState.CANCELLED, "finished_at": now, "waiting": None}
        connection.execute(update(trials).where(unfinished).values(ended))
