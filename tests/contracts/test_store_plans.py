"""Store contract: plans and optimizer studies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, Select, literal, select, text

from autotuner.core.access import Caller, Scope
from autotuner.core.errors import Conflict, LeaseLost, NotFound
from autotuner.core.run import Lease, Run, RunState
from autotuner.core.trial import TrialState
from autotuner.store import (
    access,
    announcements,
    events,
    health,
    history,
    overviews,
    runs,
    trials,
)
from autotuner.store.engine import make_engine, reading, select_total
from autotuner.store.options import Page, SweepOrder, TrialFilter
from autotuner.store.schema import migrate
from autotuner.store.sql import Store
from autotuner.store.tables import sweeps
from tests.databases import postgres_database
from tests.runs import claimed, lease_of
from tests.studies import reached_trial, study_request, study_trial


# ---------------------------------------------------------------- plans
@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Engine]:
    engine = make_engine(sqlite_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def postgresql(postgres: str) -> Iterator[Engine]:
    """A database that no row was ever written to, so that autovacuum never counts its rows.

    With a count of few rows any index costs the same, and the planner takes either; with none it assumes many.
    """
    with postgres_database(postgres) as url:
        migrate(url)
        engine = make_engine(url)
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE {_OURS}"))
        yield engine
        engine.dispose()


_OURS = "relkind = 'r' AND relnamespace = 'public'::regnamespace"


def plan(engine: Engine, query: Select[*tuple[object, ...]]) -> str:
    """How the database would run the query, a step per line."""
    statement = str(query.limit(50).compile(engine, compile_kwargs={"literal_binds": True}))
    with reading(engine) as connection:
        if engine.dialect.name == "sqlite":
            return "\n".join(row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {statement}")))
        # A table of a few rows is always scanned; what counts is that the index can serve where it is large.
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        connection.execute(text("SET LOCAL enable_sort = off"))
        return "\n".join(connection.scalars(text(f"EXPLAIN {statement}")))


@pytest.mark.parametrize("where", [TrialFilter(), TrialFilter(tensor_parallel_degree=2)], ids=["all", "filtered"])
def test_sqlite_ranks_a_sweep_by_its_index_without_a_sort(sqlite: Engine, where: TrialFilter) -> None:
    steps = plan(sqlite, trials.ranking("sw-x", where))
    assert "SEARCH measurements USING INDEX ix_measurements_sweep_ranking (sweep_id=? AND is_ranked=?)" in steps
    assert "TEMP B-TREE" not in steps


def test_sqlite_ranks_all_sweeps_by_their_index_without_a_sort(sqlite: Engine) -> None:
    steps = plan(sqlite, trials.ranking(None, TrialFilter()))
    assert "SEARCH measurements USING INDEX ix_measurements_ranking (is_ranked=?)" in steps
    assert "TEMP B-TREE" not in steps


def test_postgresql_can_rank_by_the_indexes_without_a_sort(postgresql: Engine) -> None:
    of_one = plan(postgresql, trials.ranking("sw-x", TrialFilter()))
    of_all = plan(postgresql, trials.ranking(None, TrialFilter()))
    assert "Index Scan using ix_measurements_sweep_ranking" in of_one
    assert "Index Scan using ix_measurements_ranking" in of_all
    assert "Sort" not in of_one + of_all


def test_sqlite_counts_what_is_ranked_from_indexes_alone(sqlite: Engine) -> None:
    of_one = plan(sqlite, select_total(trials.ranked_ids("sw-x", TrialFilter()), Page()))
    of_all = plan(sqlite, select_total(trials.ranked_ids(None, TrialFilter()), Page()))
    assert "COVERING INDEX ix_measurements_sweep_ranking (sweep_id=? AND is_ranked=?)" in of_one
    assert "COVERING INDEX ix_measurements_ranking (is_ranked=?)" in of_all
    assert "trials" not in of_one + of_all


@pytest.mark.parametrize(("offset", "total"), [(0, 10_050), (9_960, 20_000)])
def test_a_list_counts_no_further_behind_a_page_than_stated(sqlite: Engine, offset: int, total: int) -> None:
    first = select(literal(1).label("n")).cte("numbers", recursive=True)
    numbers = first.union_all(select(first.c.n + 1).where(first.c.n < 20_000))
    with reading(sqlite) as connection:
        assert connection.scalar(select_total(select(numbers.c.n).select_from(numbers), Page(offset=offset))) == total


def test_sqlite_looks_for_trials_of_each_accelerator_by_indexes(sqlite: Engine) -> None:
    steps = plan(sqlite, history.select_accelerators())
    assert "COVERING INDEX ix_sweeps_accelerator_created_at_id" in steps
    assert "SEARCH sweeps USING INDEX ix_sweeps_accelerator_created_at_id (accelerator=?)" in steps
    assert "SCAN trials" not in steps


def test_sqlite_compares_ranked_times_by_the_index_without_a_sort(sqlite: Engine) -> None:
    steps = plan(sqlite, trials.ranked_times("sw-x", with_values=True))
    assert "SEARCH measurements USING INDEX ix_measurements_sweep_ranking (sweep_id=? AND is_ranked=?)" in steps
    assert "TEMP B-TREE" not in steps


def test_sqlite_finds_the_version_of_a_sweep_s_trials_by_keys_alone(sqlite: Engine) -> None:
    last = plan(sqlite, events.last_other_event("sw-x"))
    count = plan(sqlite, trials.count_trials("sw-x"))
    assert "SEARCH events USING" in last
    assert "SEARCH trials USING COVERING INDEX" in count
    assert "TEMP B-TREE" not in last + count


def test_sqlite_lists_overviews_in_the_order_of_an_index_and_looks_up_each_best(sqlite: Engine) -> None:
    steps = plan(sqlite, overviews.in_order(overviews.OVERVIEWS, SweepOrder()))
    assert "SCAN sweeps USING INDEX ix_sweeps_created_at_id" in steps
    assert "SEARCH measurements USING COVERING INDEX ix_measurements_sweep_ranking" in steps
    assert "TEMP B-TREE" not in steps


def test_sqlite_counts_trials_and_sums_hours_from_indexes_alone(sqlite: Engine) -> None:
    progress = plan(sqlite, overviews.select_progress(["sw-x", "sw-y"], 1.0))
    assert "SEARCH trials USING COVERING INDEX ix_trials_overview (sweep_id=?)" in progress
    assert "TEMP B-TREE" not in progress


def test_sqlite_finds_how_the_best_grew_and_who_asked_from_indexes_alone(sqlite: Engine) -> None:
    grew = plan(sqlite, overviews.select_best_so_far(["sw-x", "sw-y"]))
    assert "SEARCH measurements USING COVERING INDEX ix_measurements_sweep_ranking (sweep_id=? AND is_ranked=?)" in grew
    assert "SCAN trials" not in grew
    assert "COVERING INDEX ix_sweeps_created_by_state_finished_at" in plan(sqlite, overviews.select_owners())


def test_postgresql_can_count_and_look_up_by_the_indexes_without_a_sort(postgresql: Engine) -> None:
    listed = plan(postgresql, overviews.in_order(overviews.OVERVIEWS, SweepOrder()))
    progress = plan(postgresql, overviews.select_progress(["sw-x", "sw-y"], 1.0))
    assert "using ix_sweeps_created_at_id" in listed
    assert "using ix_measurements_sweep_ranking" in listed
    assert "Sort" not in listed
    assert "Seq Scan" not in progress  # by which of the two indexes over a sweep's trials depends on how many there are


def test_sqlite_finds_what_a_caller_used_by_indexes_alone(sqlite: Engine) -> None:
    steps = plan(sqlite, access.select_used("ada", 1e6))
    assert "SEARCH sweeps USING COVERING INDEX ix_sweeps_created_by_state_finished_at" not in steps  # it has no id
    assert "SEARCH sweeps USING INDEX ix_sweeps_created_by_state_finished_at (created_by=? AND state=?" in steps
    assert "SCAN trials" not in steps
    assert "SCAN sweeps" not in steps


def test_sqlite_finds_the_sweep_to_claim_among_open_ones_only(sqlite: Engine) -> None:
    lapsed = Lease(run_id="sw-x", owner="worker-a", claim=1, renewals=3, lease_s=15.0)
    steps = plan(sqlite, runs.select_due([lapsed]).params(kinds=["sweep"], now=1.0))
    assert "USING INDEX ix_runs_kind_state_due_at_created_at_id (kind=? AND state=? AND due_at<?)" in steps
    assert "SCAN" not in steps


def test_sqlite_reads_events_behind_a_sequence_by_the_primary_key(sqlite: Engine) -> None:
    found = plan(sqlite, events.select_events("sw-x", 7, 50))
    assert "(run_id=? AND sequence>?)" in found
    assert "TEMP B-TREE" not in found


def test_sqlite_reads_the_reports_of_steps_with_events_by_the_primary_key(sqlite: Engine) -> None:
    assert "(trial_id=? AND step>? AND step<?)" in plan(sqlite, events.select_reports({"a", "b"}, [3, 9]))


TROUBLES = {
    "ix_runs_kind_subject_created_at_id": health.select_last("retune"),
    "ix_sweeps_state_created_at_id": health.select_sweeps(1.0),
    "ix_runs_kind_state_created_at_id": health.select_failed("gate", 1.0),
    "ix_runs_kind_state_due_at_created_at_id": runs.select_due().params(kinds=["plan"], now=1.0),
}
"""Queries by an index that each is found by; of open runs there are few, and these are sorted."""


@pytest.mark.parametrize("index", TROUBLES)
def test_sqlite_finds_what_went_wrong_by_indexes(sqlite: Engine, index: str) -> None:
    assert index in plan(sqlite, TROUBLES[index])


UPKEEP = {
    "ix_sweeps_accelerator_created_at_id": history.select_history([sweeps.c.accelerator == "cpu"], 1.0),
    "ix_sweeps_job_key_created_at_id": history.select_history([sweeps.c.job_key == "x"], 1.0),
    "ix_announcements_at_id": announcements.select_feed(),
    "ix_runs_kind_created_at_id": runs.select_runs(["gate"]),
    "ix_runs_kind_subject_created_at_id": runs.select_runs(["retune"], "nightly"),
    "ix_runs_kind_state_created_at_id": runs.select_runs(["delivery"], states=[RunState.FAILED]),
    "ix_audit_at_id": access.select_audit(None),
    "ix_audit_caller_at_id": access.select_audit("ada"),
}
"""Queries by the index that each is read in the order of."""


@pytest.mark.parametrize("index", UPKEEP)
def test_sqlite_reads_what_is_done_with_layouts_in_use_by_indexes_without_a_sort(sqlite: Engine, index: str) -> None:
    steps = plan(sqlite, UPKEEP[index])
    assert index in steps
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps  # only trials of one sweep are sorted


@pytest.mark.parametrize("index", UPKEEP)
def test_postgresql_can_read_them_by_the_same_indexes_without_a_sort(postgresql: Engine, index: str) -> None:
    steps = plan(postgresql, UPKEEP[index])
    assert index in steps
    assert "Sort" not in steps or "Presorted Key: sweeps.created_at" in steps


# ---------------------------------------------------------------- optimizer studies
REQUEST = study_request(name="contract")


def asked(store: Store) -> Run:
    return store.optimizer_studies.create(REQUEST, now=1.0)[0]


def test_a_study_waits_as_it_was_asked_for(store: Store) -> None:
    study = asked(store)
    assert store.runs.get("study", study.id) == study
    assert (study.request, study.state) == (REQUEST, RunState.QUEUED)
    assert store.optimizer_studies.trials(study.id) == []


def test_trials_of_a_study_that_is_not_stored_are_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="optimizer study"):
        store.optimizer_studies.trials("os-nowhere")


def test_a_key_makes_one_study_for_each_caller(store: Store) -> None:
    studies = store.optimizer_studies
    first, is_new = studies.create(REQUEST, now=1.0, idempotency_key="k")
    assert is_new
    assert studies.create(REQUEST, now=2.0, idempotency_key="k") == (first, False)
    ada = Caller(name="ada", scope=Scope.RUN)
    assert studies.create(REQUEST, now=2.0, idempotency_key="k", caller=ada)[0].created_by == "ada"
    with pytest.raises(Conflict, match=first.id):
        studies.create(replace(REQUEST, seed=1), now=3.0, idempotency_key="k")


def test_trials_are_kept_by_number_and_replaced_as_they_go_on(store: Store) -> None:
    asked(store)
    study = claimed(store, "study")
    running = replace(study_trial(1, 6.0, state=TrialState.RUNNING), study_id=study.id)
    ended = replace(reached_trial(1, 2.0, 1.0), study_id=study.id)
    first = replace(study_trial(0, 6.0), study_id=study.id)
    for trial in (running, first, ended):
        store.optimizer_studies.save_trial(trial, lease_of(study))
    assert store.optimizer_studies.trials(study.id) == [first, ended]


def test_a_worker_that_lost_its_study_stores_no_trial(store: Store) -> None:
    asked(store)
    first = claimed(store, "study")
    assert store.runs.claim(["study"], owner="b", now=5.0, lease_s=10.0, lapsed=[lease_of(first)]) is not None
    with pytest.raises(LeaseLost):
        store.optimizer_studies.save_trial(replace(study_trial(0, 6.0), study_id=first.id), lease_of(first))
    assert store.optimizer_studies.trials(first.id) == []
