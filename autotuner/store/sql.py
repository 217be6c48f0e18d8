"""Store: the Store port on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.convergence_gate import GateResult
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound, StoreUnavailable
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, LinkEvent, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.profile import DeviceProfile
from autotuner.core.run import Lease, Run, RunState
from autotuner.core.sweep import Event, Prospects, Sweep, SweepOverview, SweepRequest
from autotuner.core.trial import EngineJob, Outcome, RankedTime, ScaledTrial, Trial, TrialsVersion
from autotuner.store import (
    checks,
    overviews,
    queueing,
    records,
    statements,
    steps,
    sweep_lists,
    transitions,
)
from autotuner.store.access import AccessStore
from autotuner.store.announcements import AnnouncementStore
from autotuner.store.control import ControlStore
from autotuner.store.descriptions import Shelf
from autotuner.store.engine import make_engine, reading, writing
from autotuner.store.health import Health
from autotuner.store.history import HistoryStore
from autotuner.store.identity import new_sweep_id
from autotuner.store.mfu_gates import GATE_ROWS, MfuGateStore
from autotuner.store.optimizer_studies import OptimizerStudyStore
from autotuner.store.options import ALL_SWEEPS, NEWEST_FIRST, Page, SweepFilter, SweepOrder, TrialFilter
from autotuner.store.retention import Retention
from autotuner.store.retunes import RETUNE_ROWS, RetuneStore
from autotuner.store.runs import ROWS, RunStore, hold
from autotuner.store.schema import current_revision, memory_engine, why_unfit, write_again
from autotuner.store.sweeps import SWEEP_ROWS
from autotuner.store.tables import clusters, models, profiles, sweeps, trials

_BATCH = 500
"""Trials that are read at once."""

_ANSWER_S = 15.0
"""Far longer than any statement of ours takes, and about as long as somebody waits for a page."""


def open_store(url: str, *, answer_s: float = _ANSWER_S) -> Store:
    """The store in the database of that URL; nothing is connected before the first call.

    Args:
        url: As ``make_engine`` takes it.
        answer_s: How long a server may take to answer before it counts as out of reach.

    Raises:
        InvalidInput: The URL names no SQLite or PostgreSQL database.
    """
    return Store(make_engine(url, answer_s=answer_s))


def memory_store() -> Store:
    """An empty store in this process's memory, for tests and for questions whose answers nobody keeps."""
    return Store(memory_engine())


class Store:
    """Sweeps, trials, their outcomes and events; models and clusters by name.

    Every method is one transaction and may be called from any thread. Writes that a worker makes for a sweep
    (``add_trial`` to ``set_estimates``) name the lease of its run and raise ``LeaseLost`` if the run has been claimed
    since, so a worker that was thought dead cannot disturb its successor. A database that is out of
    reach or cannot write raises ``StoreUnavailable``. An id that is not stored raises ``NotFound``.
    """

    def __init__(self, engine: Engine, *, new_id: Callable[[], str] = new_sweep_id) -> None:
        self._engine = engine
        self._new_id = new_id
        self._models = Shelf(engine, models.c.document, "model")
        self._clusters = Shelf(engine, clusters.c.document, "cluster")
        self._profiles = Shelf(engine, profiles.c.document, "profile")
        self.runs = RunStore(engine, {**ROWS, "sweep": SWEEP_ROWS, "gate": GATE_ROWS, "retune": RETUNE_ROWS})
        self.control = ControlStore(engine, self.runs)
        self.retunes = RetuneStore(engine, self.runs)
        self.mfu_gates = MfuGateStore(engine, self.runs)
        self.optimizer_studies = OptimizerStudyStore(engine)
        self.announcements = AnnouncementStore(engine)
        self.history = HistoryStore(engine)
        self.retention = Retention(engine)
        self.health = Health(engine)
        self.access = AccessStore(engine)

    # ------------------------------------------------------------------ sweeps
    def create_sweep(
        self,
        request: SweepRequest,
        *,
        now: float,
        idempotency_key: str | None = None,
        caller: Caller = NOBODY_ASKED,
    ) -> tuple[Sweep, bool]:
        """Store a queued sweep of the caller and say whether it is new.

        The same key of the same caller with an equal request returns the stored sweep and False, whatever became of its
        budget since; with another request it raises ``Conflict``. Two concurrent calls with one key create one sweep.
        Writes the event ``sweep.created``.

        A new sweep is held to the caller's quota, however many ask at once: ``QuotaExceeded`` where nothing is left of
        it, and where it counts accelerator-hours, no more of them than are left.
        """
        try:
            with writing(self._engine) as connection:
                key, new_id = idempotency_key, self._new_id
                return queueing.create_sweep(
                    connection, request, now, caller=caller, idempotency_key=key, new_id=new_id
                )
        except IntegrityError:  # a request with the same key was faster
            with reading(self._engine) as connection:
                if found := queueing.find_created(connection, request, caller, idempotency_key):
                    return found, False
            raise

    def get_sweep(self, sweep_id: str) -> Sweep:
        """As it stands now."""
        with reading(self._engine) as connection:
            return records.get_sweep(connection, sweep_id)

    def list_sweeps(self, *, state: RunState | None = None, page: Page = Page()) -> tuple[Sequence[Sweep], int]:
        """Newest first, and how many there are in all."""
        with reading(self._engine) as connection:
            rows, total = records.window(connection, statements.newest_first(statements.SWEEPS, state), page)
        return list(statements.read_readable(rows)), total

    def overview(self, sweep_id: str, *, now: float) -> SweepOverview:
        """The sweep with its trials counted, by queries that read no trial."""
        with reading(self._engine) as connection:
            return overviews.get_overview(connection, sweep_id, now)

    def list_overviews(
        self, *, now: float, where: SweepFilter = ALL_SWEEPS, order: SweepOrder = NEWEST_FIRST, page: Page = Page()
    ) -> tuple[Sequence[SweepOverview], int]:
        """Those that pass, in that order, and how many there are; as many queries for a thousand sweeps as for one."""
        with reading(self._engine) as connection:
            return overviews.list_overviews(connection, where, order, page, now)

    def sweep_owners(self) -> Sequence[str]:
        """Names of all callers who asked for a sweep, by name."""
        with reading(self._engine) as connection:
            return connection.scalars(sweep_lists.select_owners()).all()

    def request_cancel(self, sweep_id: str, *, now: float) -> Sweep:
        """Ask for the end: of a sweep that a worker holds it comes by that worker, of another at once.

        Where an engine still runs jobs of a sweep that nobody holds, the next worker to claim it ends these, and it.
        A finished sweep stays as it is.
        """
        try:
            self.runs.cancel("sweep", sweep_id, "cancelled while no worker held it", now=now)
        except InvalidInput as problem:
            self.runs.fail_unreadable("sweep", sweep_id, problem, now=now)
            raise Conflict(f"this release cannot read the sweep {sweep_id}; it has ended as failed") from problem
        return self.get_sweep(sweep_id)

    # ------------------------------------------------------------------ trials
    def add_trial(
        self,
        sweep_id: str,
        *,
        lease: Lease,
        number: int,
        layout: Layout,
        prediction: Prediction,
        scaled: ScaledTrial | None = None,
        repeats: int | None = None,
        prospects: Prospects | None = None,
    ) -> Trial:
        """Store a queued trial. ``number`` is unique in its sweep: adding it again raises ``Conflict``.

        Args:
            sweep_id: Whose it is.
            lease: Of the sweep.
            number: Counts from 0.
            layout: Of the sweep's job.
            prediction: Of that layout.
            scaled: What runs in its place, on fewer ranks; None: the layout itself.
            repeats: Number of the trial whose layout it runs again; None: it is the first of its layout.
            prospects: What the search expected when it chose the layout, kept with the sweep and in part with the
                trial; None: it did not choose it, and the sweep's stay as they were.
        """
        queued = transitions.new_trial(sweep_id, number, layout, prediction, scaled, repeats)
        trial = transitions.chosen(queued, prospects)
        try:
            with self.runs.holding(lease) as connection:
                connection.execute(statements.insert_trial(trial))
                if prospects is not None:
                    mine = update(sweeps).where(sweeps.c.id == sweep_id)
                    connection.execute(mine.values(prospects=prospects))
        except IntegrityError as error:
            raise transitions.number_taken(trial) from error
        return trial

    def start_trial(self, trial_id: str, *, lease: Lease, now: float) -> Trial:
        """From queued to running; ``attempts`` grows by one, but for a trial of which a job goes on.

        Writes ``trial.started``.
        """
        with self._holding(lease, trial_id) as connection:
            trial = transitions.start_trial(records.get_trial(connection, trial_id), now=now)
            return records.save_trial(connection, trial, "trial.started", now)

    def add_step(self, trial_id: str, step: StepReport, *, lease: Lease, now: float) -> None:
        """Store a step of the running attempt. Writes ``trial.step``."""
        try:
            with self._holding(lease, trial_id) as connection:
                number, state = connection.execute(statements.select_progress(trial_id)).one()
                transitions.check_running(trial_id, state)
                connection.execute(steps.insert_step(trial_id, step))
                facts = transitions.step_facts(trial_id, number, step)
                records.write_event(connection, lease.run_id, steps.STEP, facts, now)
        except IntegrityError as error:
            raise transitions.step_taken(trial_id, step) from error

    def finish_trial(self, trial_id: str, outcome: Outcome, *, lease: Lease, now: float) -> Trial:
        """Store how the trial ended: complete, failed, pruned, cancelled; or queued again for any other stop.

        A stop for ``shutdown`` gives the attempt back, unless a job of the trial goes on. Writes ``trial.finished``, or
        ``trial.interrupted`` when the trial is queued again.
        """
        with self._holding(lease, trial_id) as connection:
            trial = transitions.finish_trial(records.get_trial(connection, trial_id), outcome, now=now)
            if trial.measurement is not None:
                objective = records.objective_of(connection, lease.run_id)
                connection.execute(statements.insert_measurement(trial, trial.measurement, objective))
            if trial.failure is not None:
                connection.execute(statements.insert_failure(trial, trial.failure))
            kind = "trial.finished" if trial.state.finished else "trial.interrupted"
            return records.save_trial(connection, trial, kind, now)

    def add_note(self, trial_id: str, note: str, *, lease: Lease, now: float) -> None:
        """Write the event ``trial.note``: what a person who waits should know of a running trial."""
        with self._holding(lease, trial_id) as connection:
            number, _ = connection.execute(statements.select_progress(trial_id)).one()
            facts = transitions.note_facts(trial_id, number, note)
            records.write_event(connection, lease.run_id, "trial.note", facts, now)

    def add_link_event(self, trial_id: str, event: LinkEvent, *, lease: Lease, now: float) -> None:
        """Write the event ``trial.link_event``: what a running trial's pipeline found out about its links and ranks."""
        with self._holding(lease, trial_id) as connection:
            number, _ = connection.execute(statements.select_progress(trial_id)).one()
            facts = transitions.link_facts(trial_id, number, event)
            records.write_event(connection, lease.run_id, "trial.link_event", facts, now)

    def set_job(self, trial_id: str, job: EngineJob, *, lease: Lease, now: float) -> Trial:
        """Store how a job of a running trial stands, in the place of what was known of that name, or behind the others.

        The trial waits while the job is in a queue. Interruptions keep a trial's jobs. Writes the event ``trial.job``.
        """
        with self._holding(lease, trial_id) as connection:
            trial = transitions.set_job(records.get_trial(connection, trial_id), job)
            connection.execute(statements.update_trial(trial))
            records.write_event(connection, lease.run_id, "trial.job", transitions.job_facts(trial, job), now)
            return trial

    def set_waiting(self, trial_id: str, reason: str | None, *, lease: Lease, now: float) -> Trial:
        """Store that a started trial waits for devices, and why; None: it has them, unless a job of it is in a queue.

        The time that it waited is no accelerator time. Writes ``trial.waiting`` or ``trial.resumed``.
        """
        with self._holding(lease, trial_id) as connection:
            trial = transitions.wait(records.get_trial(connection, trial_id), reason, now=now)
            connection.execute(statements.update_trial(trial))
            kind = "trial.waiting" if trial.waiting else "trial.resumed"
            records.write_event(connection, trial.sweep_id, kind, transitions.waiting_facts(trial), now)
            return trial

    def add_run(self, trial_id: str, run: FinishedRun, *, lease: Lease, now: float) -> None:
        """Store a finished run of a started trial, which interruptions keep and the trial's end forgets."""
        del now  # no event tells of it
        with self._holding(lease, trial_id) as connection:
            trial = transitions.add_run(records.get_trial(connection, trial_id), run)
            connection.execute(statements.update_trial(trial))

    def add_gate(self, trial_id: str, result: GateResult, *, lease: Lease, now: float) -> Trial:
        """Store what the loss gate found of a complete trial, which loses its rank if it failed.

        Writes ``trial.gated``. A second result of one trial raises ``Conflict``.
        """
        with self._holding(lease, trial_id) as connection:
            trial = transitions.gate_trial(records.get_trial(connection, trial_id), result)
            connection.execute(statements.insert_gate(trial, result))
            connection.execute(statements.update_rank(trial))
            records.write_event(connection, lease.run_id, "trial.gated", transitions.gate_facts(trial, result), now)
            return trial

    def set_estimates(
        self, sweep_id: str, estimates: Mapping[str, TrialEstimate], *, lease: Lease, now: float
    ) -> Sequence[Trial]:
        """Store what is estimated of trials by their ids, in the place of what was; each is then ranked by it.

        The trials as they are now, in that order. Writes ``sweep.estimated`` once. A trial that nobody measured on
        fewer ranks than its job has raises ``Conflict``.
        """
        with self.runs.holding(lease) as connection:
            objective, estimated = records.objective_of(connection, sweep_id), []
            for trial_id, estimate in estimates.items():
                trial = transitions.estimate_trial(records.get_trial(connection, trial_id), estimate)
                connection.execute(statements.update_estimate(trial, objective))
                estimated.append(trial)
            facts = transitions.estimates_facts(estimated)
            records.write_event(connection, sweep_id, "sweep.estimated", facts, now)
            return estimated

    @contextmanager
    def _holding(self, lease: Lease, trial_id: str) -> Iterator[Connection]:
        """Open a transaction in which a worker may write what belongs to a trial.

        Raises:
            NotFound: No trial has that id.
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

    def get_trial(self, trial_id: str) -> Trial:
        """With its steps, and the timeline of its measurement."""
        with reading(self._engine) as connection:
            return records.get_trial(connection, trial_id)

    def list_trials(
        self, sweep_id: str, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        """By number, without steps and timelines, and how many match in all."""
        mine = (trials.c.sweep_id == sweep_id, *statements.passing(where))
        with reading(self._engine) as connection:
            records.check_sweep(connection, sweep_id)
            query = statements.TRIALS.where(*mine).order_by(trials.c.number)
            rows, total = records.window(connection, query, page, counted=select(trials.c.id).where(*mine))
        return [statements.read_trial(row) for row in rows], total

    def all_trials(self, sweep_id: str) -> Iterator[Trial]:
        """Every trial of a sweep by number, without steps."""
        total, offset = 1, 0
        while offset < total:
            found, total = self.list_trials(sweep_id, page=Page(limit=_BATCH, offset=offset))
            yield from found
            offset += _BATCH

    def ranking(
        self, sweep_id: str | None = None, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        """Trials that have a rank, the best first; equal ones by id. An indexed query.

        Those of one sweep are ordered by its objective's value, those of all sweeps by MFU.
        """
        with reading(self._engine) as connection:
            if sweep_id is not None:
                records.check_sweep(connection, sweep_id)
            ids = statements.ranked_ids(sweep_id, where)
            rows, total = records.window(connection, statements.ranking(sweep_id, where), page, counted=ids)
        return [statements.read_trial(row) for row in rows], total

    def ranked_times(self, sweep_id: str) -> Sequence[RankedTime]:
        """What the order of every ranked trial of a sweep rests on, in that order, from columns alone."""
        with reading(self._engine) as connection:
            records.check_sweep(connection, sweep_id)
            return records.ranked_times(connection, sweep_id)

    def trials_version(self, sweep_id: str) -> TrialsVersion:
        """What changes whenever ``list_trials`` of the sweep would, so that who keeps its answer may ask for this."""
        with reading(self._engine) as connection:
            records.check_sweep(connection, sweep_id)
            last_event = connection.scalar(steps.last_other_event(sweep_id)) or 0
            num_trials = connection.scalar(statements.count_trials(sweep_id)) or 0
            return TrialsVersion(last_event=last_event, num_trials=num_trials)

    # ------------------------------------------------------------------ events
    def events(self, sweep_id: str, *, after: int = 0, limit: int = 500) -> Sequence[Event]:
        """Events with ``sequence > after``, in order."""
        with reading(self._engine) as connection:
            records.check_sweep(connection, sweep_id)
            return steps.read_events(connection, sweep_id, after, limit)

    # ------------------------------------------------------------------ names
    def save_model(self, model: TransformerSpec, *, created_by: str = "") -> None:
        """Store under its name; an equal one stored before stays its maker's, a different one raises ``Conflict``."""
        self._models.add(model, created_by)

    def get_model(self, name: str) -> TransformerSpec:
        """The model saved under that name."""
        return self._models.get(name)

    def list_models(self) -> Sequence[TransformerSpec]:
        """By name."""
        return self._models.list()

    def model_owners(self) -> Mapping[str, str]:
        """Who stored each model, by the model's name; empty text where nobody was asked."""
        return self._models.owners()

    def remove_model(self, name: str) -> None:
        """Forget it; sweeps keep what they were given."""
        self._models.remove(name)

    def save_cluster(self, cluster: Cluster, *, created_by: str = "") -> None:
        """Store under its name, as ``save_model`` does."""
        self._clusters.add(cluster, created_by)

    def get_cluster(self, name: str) -> Cluster:
        """The cluster saved under that name."""
        return self._clusters.get(name)

    def list_clusters(self) -> Sequence[Cluster]:
        """By name."""
        return self._clusters.list()

    def cluster_owners(self) -> Mapping[str, str]:
        """Who stored each cluster, by the cluster's name."""
        return self._clusters.owners()

    def remove_cluster(self, name: str) -> None:
        """Forget it with its checks and with the profile that one of them took; sweeps keep what they were given.

        A check that is not finished raises ``Conflict``.
        """
        with writing(self._engine) as connection:
            checks.remove_cluster(connection, name)

    def save_profile(self, profile: DeviceProfile) -> None:
        """Store under its name, in the place of an older one of that name: a machine is what it was last measured."""
        self._profiles.put(profile)

    def get_profile(self, name: str) -> DeviceProfile:
        """The profile saved last under that name."""
        return self._profiles.get(name)

    def list_profiles(self) -> Sequence[DeviceProfile]:
        """By name."""
        return self._profiles.list()

    # ------------------------------------------------------------------ checks of clusters
    def create_check(self, name: str, request: CheckRequest, *, now: float, created_by: str = "") -> Run:
        """Queue a check of the stored cluster of that name; while another of it is not finished, ``Conflict``."""
        with writing(self._engine) as connection:
            check_id = checks.create_check(connection, name, request, now, created_by)
        return self.runs.get("check", check_id)

    # ------------------------------------------------------------------ health
    def check(self) -> str:
        """The schema revision: the one of this program, or of a newer one.

        Raises:
            StoreUnavailable: The database does not answer, is not migrated or takes no write: its disk is full, say.
        """
        with writing(self._engine) as connection:
            revision = current_revision(connection)
            if revision is not None:
                write_again(connection, revision)
        if refusal := why_unfit(revision):
            raise StoreUnavailable(refusal)
        assert revision is not None
        return revision

    def close(self) -> None:
        """Release connections; the store is not used afterwards."""
        self._engine.dispose()
