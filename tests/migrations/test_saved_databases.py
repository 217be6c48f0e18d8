"""One saved database per schema revision migrates to the newest, and everything in it is still there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

import migrations
from autotuner.domain.jobs.recompute_policy import RecomputePolicy
from autotuner.domain.runs.cluster_check import CheckState
from autotuner.domain.runs.engine_job import EngineJobPhase
from autotuner.domain.runs.job_key import job_key
from autotuner.domain.runs.loss_gate import GateOutcome
from autotuner.domain.runs.objective import Objective
from autotuner.domain.runs.prospects import Prospects
from autotuner.domain.runs.sweep import StopReason, SweepState
from autotuner.domain.runs.trial import Stopped, TrialState
from autotuner.domain.runs.trial_failure import FailureKind
from autotuner.domain.upkeep.announcement import DeliveryState
from autotuner.domain.upkeep.retune import RunState, Trigger
from autotuner.ports import Store
from autotuner.store.engine import make_engine, writing
from autotuner.store.schema import head_revision, migrate
from autotuner.store.sql import open_store
from tests.databases import postgres_database
from tests.migrations.saved import REVISIONS, load

SAVED = sorted(REVISIONS.glob("*.sql"))


@pytest.fixture(scope="module", params=SAVED, ids=lambda path: path.stem)
def revision(request: pytest.FixtureRequest) -> str:
    """That of a saved database."""
    path: Path = request.param
    return path.stem


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def empty_url(
    request: pytest.FixtureRequest, revision: str, tmp_path_factory: pytest.TempPathFactory, postgres: str
) -> Iterator[str]:
    """A database of its own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp(revision)}/store.db"
        return
    with postgres_database(postgres) as url:
        yield url


@pytest.fixture(scope="module")
def store(revision: str, empty_url: str) -> Iterator[Store]:
    """The saved database, migrated; all tests read it, and one worker goes on with it."""
    engine = make_engine(empty_url)
    with writing(engine) as connection:
        load(connection, revision)
    engine.dispose()
    migrate(empty_url)
    migrated = open_store(empty_url)
    yield migrated
    migrated.close()


def test_every_revision_has_a_saved_database() -> None:
    revisions = ScriptDirectory(str(Path(migrations.__file__).parent)).walk_revisions()
    assert [path.stem for path in SAVED] == sorted(script.revision for script in revisions)


def test_a_saved_database_reaches_the_newest_revision(store: Store) -> None:
    assert store.check() == head_revision()


def test_saved_sweeps_are_read(store: Store) -> None:
    running, finished = (store.get_sweep(sweep_id) for sweep_id in ("sw-running000", "sw-finished00"))
    assert (running.id, running.state, running.owner) == ("sw-running000", SweepState.RUNNING, "worker-b")
    assert (finished.id, finished.state, finished.stop_reason) == (
        "sw-finished00",
        SweepState.COMPLETE,
        StopReason.TRIAL_BUDGET,
    )
    assert finished.request.name == "finished"
    assert finished.request.job.model.num_layers == 4


def test_saved_trials_are_read_and_ranked(store: Store) -> None:
    ranked, _ = store.ranking("sw-finished00")
    # Equal tokens/s, so equal MFU: two ranks that claimed one rank's peak do as one rank at half of what it said.
    assert [trial.measurement.mfu for trial in ranked if trial.measurement] == [0.25, 0.25]
    assert [trial.layout.tensor_parallel_degree for trial in ranked] == [1, 2]
    failed = store.get_trial("sw-finished00-0002")
    assert failed.failure is not None
    assert (failed.state, failed.failure.kind, len(failed.steps)) == (TrialState.FAILED, FailureKind.OOM, 1)
    (step,) = store.get_trial("sw-running000-0000").steps
    assert math.isnan(step.loss)


def test_what_a_search_expected_is_read_where_the_revision_had_it(store: Store, revision: str) -> None:
    sweep, trial = store.get_sweep("sw-finished00"), store.get_trial("sw-finished00-0001")
    if revision < "0010":
        assert (sweep.prospects, trial.expected_gain) == (None, None)
        return
    assert sweep.prospects == Prospects(num_candidates=12, num_fitting=9, expected_gain=0.004)
    assert trial.expected_gain == 0.125


def test_saved_events_and_descriptions_are_read(store: Store) -> None:
    events = store.events("sw-finished00")
    assert [event.sequence for event in events] == list(range(1, 13))
    assert (events[0].kind, events[-1].kind) == ("sweep.created", "sweep.finished")
    assert [model.name for model in store.list_models()] == ["tiny"]
    assert store.list_clusters()[0].name == "cpu:2"


def test_saved_sweeps_are_listed_with_their_columns(store: Store) -> None:
    found = {overview.id: overview for overview in store.list_overviews(now=300.0)[0]}
    finished, running = found["sw-finished00"], found["sw-running000"]
    assert (finished.name, finished.model, finished.cluster) == ("finished", "tiny", "cpu:2")
    assert finished.budget == store.get_sweep("sw-finished00").request.budget
    assert finished.objective == Objective()
    assert finished.num_trials == {TrialState.COMPLETE: 2, TrialState.FAILED: 1}
    assert (finished.best_value, finished.best_mfu) == (0.25, 0.25)
    assert finished.accelerator_hours == pytest.approx((0.75 + 2 * 0.75 + 2 * 0.75) / 3600)  # 1, 2 and 2 ranks
    assert running.num_trials == {TrialState.RUNNING: 1}


def test_loss_gates_and_stopped_trials_are_read_where_the_revision_had_them(store: Store, revision: str) -> None:
    if revision < "0004":
        assert not any(trial.gate or trial.stopped for trial in store.list_trials("sw-finished00")[0])
        return
    plain, gated, stopped = store.list_trials("sw-gated00000")[0]
    assert (plain.gate, plain.stopped) == (None, None)
    assert gated.gate is not None
    assert (gated.gate.outcome, gated.gate.accelerator_hours) == (GateOutcome.PASSED, 0.25)
    assert stopped.stopped == Stopped(reason="budget", detail="2 of 2 accelerator-hours are spent")
    assert store.ranking("sw-gated00000") == ([gated, plain], 2)


def test_what_a_saved_stack_keeps_and_hides_is_read_in_todays_words(store: Store, revision: str) -> None:
    if revision < "0004":
        return  # no saved request of that time names a stack
    stack = store.get_sweep("sw-gated00000").request.job.stack
    assert stack.selective_recompute == (RecomputePolicy.ALL_BUT_PRODUCTS,)
    assert stack.overlaps_tensor_backward == 0.0


def test_a_saved_key_still_finds_its_sweep(store: Store) -> None:
    request = store.get_sweep("sw-finished00").request
    sweep, created = store.create_sweep(request, now=300.0, idempotency_key="nightly 1")
    assert (sweep.id, created) == ("sw-finished00", False)


def test_jobs_of_engines_are_read_where_the_revision_had_them(store: Store, revision: str) -> None:
    if revision < "0006":
        assert not any(trial.jobs for trial in store.list_trials("sw-finished00")[0])
        return
    _, moved, _ = store.list_trials("sw-gated00000")[0]
    assert [(job.handle, job.phase) for job in moved.jobs] == [
        ("4711", EngineJobPhase.LOST),
        ("4712", EngineJobPhase.ENDED),
    ]
    assert store.overview("sw-running000", now=300.0).accelerator_hours == (300.0 - 232.0) / 3600
    cluster = store.get_sweep("sw-running000").request.job.cluster
    assert (cluster.engine, cluster.queue) == ("slurm", "batch")


def test_small_trials_and_their_estimates_are_read_where_the_revision_had_them(store: Store, revision: str) -> None:
    if revision < "0008":
        assert not any(trial.scaled or trial.estimate for trial in store.list_trials("sw-finished00")[0])
        return
    (trial,), _ = store.ranking("sw-small00000")
    assert trial.scaled is not None
    assert trial.estimate is not None
    assert (trial.ran.world_size, trial.layout.world_size) == (4, 8)
    assert trial.estimate.said == "estimated from a trial on 4 of 8 ranks"
    overview = store.overview("sw-small00000", now=300.0)
    assert (overview.trial_cluster, overview.best_mfu) == ("cpu:4", 0.1875)


def test_profiles_are_read_where_the_revision_had_them(store: Store, revision: str) -> None:
    names = [profile.name for profile in store.list_profiles()]
    assert names == (["local"] if revision >= "0003" else [])


def test_checks_of_clusters_are_read_where_the_revision_had_them(store: Store, revision: str) -> None:
    if revision < "0007":
        assert [cluster.name for cluster in store.list_clusters()] == ["cpu:2"]
        return
    (running, complete), _ = store.list_checks("pair")
    assert (running.state, running.owner, running.request.quick) == (CheckState.RUNNING, "worker-b", True)
    assert (complete.state, complete.findings.num_points, complete.findings.jobs[0].handle) == (
        CheckState.COMPLETE,
        30,
        "17",
    )
    taken_over = store.claim_check(owner="worker-c", now=300.0, lease_s=30.0, lapsed=store.held_checks())
    assert taken_over is not None
    assert (taken_over.id, taken_over.started_at) == ("ck-running000", 130.5)


def test_history_is_found_by_the_job_of_every_saved_sweep(store: Store) -> None:
    request = store.get_sweep("sw-finished00").request
    found = store.history.of_job(job_key(request), before=110.0)
    # The third ran out of memory; the first is a layout of one rank on a cluster of two, as no sweep has it.
    assert [past.step_time_s for past in found] == [None, 0.5]
    assert store.history.measured("cpu", "torch", before=110.0)[:2] == found
    assert store.history.newest_at() is not None


def test_retunes_and_their_runs_are_read_where_the_revision_had_them(store: Store, revision: str) -> None:
    if revision < "0009":
        assert store.retunes.list() == []
        return
    (retune,) = store.retunes.list()
    assert (retune.name, retune.request.cron, retune.request.time_zone) == ("nightly", "0 3 * * *", "Europe/Berlin")
    assert (retune.incumbent, retune.baseline, retune.next_due_at) == (retune.request.incumbent, (), 700.0)
    skipped, running, regression = store.retunes.runs("nightly")[0]
    assert (skipped.state, running.trigger, running.num_missed) == (RunState.SKIPPED, Trigger.CAUGHT_UP, 2)
    assert store.retunes.unfinished_run("nightly") == running
    assert regression.outcome is not None
    assert [str(change) for change in regression.outcome.changes] == ["torch was 2.9.1 and is 2.10.0"]
    first, again = store.list_trials("sw-challenge0")[0]
    assert (first.repeats, again.repeats) == (None, 0)
    assert store.ranking("sw-challenge0") == ([first], 1)


def test_mfu_gates_and_announcements_are_read_where_the_revision_had_them(store: Store, revision: str) -> None:
    if revision < "0009":
        assert store.mfu_gates.list() == ([], 0)
        assert store.announcements.feed() == ([], 0)
        return
    waits, measured = store.mfu_gates.list()[0]
    assert store.mfu_gates.find_reusable(measured.content) == measured
    assert store.mfu_gates.concludable() == [(waits, None)]
    assert store.mfu_gates.list_baselines() == [waits.baseline]
    assert [told.subject_id for told in store.announcements.feed()[0]] == ["mg-measured00", "rt-regression"]
    passed, regression = store.announcements.deliveries(webhook="team")[0]
    assert (passed.state, regression.state) == (DeliveryState.PENDING, DeliveryState.DELIVERED)


def test_who_may_call_and_what_they_did_is_read_where_the_revision_had_it(store: Store, revision: str) -> None:
    if revision < "0010":
        assert store.access.list_tokens() == []
        assert store.accounts.audit() == ([], 0)
        assert {sweep.created_by for sweep in store.list_sweeps()[0]} == {""}
        return
    ada, ci = store.access.list_tokens()
    assert (ada.name, ada.scope, ada.quota.accelerator_hours_per_day, ada.is_valid(800.0)) == ("ada", "run", 64.0, True)
    assert (ci.scope, ci.revoked_at, ci.is_valid(80.0)) == ("admin", 70.0, False)
    assert store.access.get_session("5e884898da28047151d0e56f8dc62927").token_id == ada.id
    assert [(entry.caller, entry.status) for entry in store.accounts.audit()[0]] == [("", 401), ("ada", 201)]
    assert [worker.name for worker in store.workers.list()] == ["worker-b"]
    gated = store.get_sweep("sw-gated00000")
    assert (gated.created_by, gated.renewals) == ("ada", 3)
    assert store.announcements.get_webhook("team").created_by == "ada"


def test_a_worker_goes_on_with_a_saved_sweep(store: Store) -> None:
    sweep = store.claim_sweep(owner="worker-c", now=300.0, lease_s=30.0, lapsed=store.held_sweeps())
    assert sweep is not None
    assert sweep.id == "sw-running000"
    trial = store.start_trial("sw-running000-0000", owner="worker-c", now=301.0)
    assert trial.attempts == (1 if trial.jobs else 2)  # a job that still runs is not started again
