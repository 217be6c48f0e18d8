"""Store contract: overviews of sweeps say what their trials would, without reading them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.errors import NotFound
from autotuner.core.objective import Metric, Objective
from autotuner.core.sweep import Budget, Sweep
from autotuner.core.trial import Stopped, TrialState, Waiting
from autotuner.store.engine import make_engine
from autotuner.store.sql import Store
from tests.builders import cpu_cluster, cpu_layout, failure, measurement, tiny_job
from tests.contracts.acts import (
    OWNER,
    add,
    claim,
    create,
    end,
    finish,
    gate_result,
    held_sweep,
    judge,
    measure,
    release_sweep,
    start,
)

TOKENS_PER_S = Objective(metric=Metric.TOKENS_PER_S)


@pytest.fixture
def counted(database_url: str) -> Iterator[tuple[Store, list[str]]]:
    """A store, and the statements that it sent."""
    engine, sent = make_engine(database_url), list[str]()
    event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
    store = Store(engine)
    yield store, sent
    store.close()


def busy_sweep(store: Store, *, name: str = "") -> Sweep:
    """One of each end, one running since 11 on two ranks, one queued, and a loss gate."""
    create(store, name=name)
    sweep = claim(store)
    measure(store, sweep, 0, mfu=0.2)
    best = measure(store, sweep, 1, mfu=0.4)
    end(store, start(store, sweep, 2), failure())
    end(store, start(store, sweep, 3), Stopped(reason="pruned"))
    start(store, sweep, 4, layout=cpu_layout(tensor_parallel_degree=2))
    add(store, sweep, 5)
    judge(store, best, gate_result(accelerator_hours=0.5))
    return store.get_sweep(sweep.id)


def test_an_overview_says_what_was_asked_and_where_the_sweep_stands(store: Store) -> None:
    sweep = finish(store, held_sweep(store, name="nightly \0", budget=Budget(num_trials=7), objective=TOKENS_PER_S))
    found = store.overview(sweep.id, now=30.0)
    assert (found.id, found.name, found.model, found.cluster) == (sweep.id, "nightly \\0", "tiny", "cpu:2")
    assert (found.state, found.stop_reason, found.stop_detail) == (sweep.state, sweep.stop_reason, sweep.stop_detail)
    assert (found.created_at, found.started_at, found.finished_at) == (1.0, 10.0, 20.0)
    assert (found.budget, found.objective, found.cancel_requested) == (Budget(num_trials=7), TOKENS_PER_S, False)


def test_an_overview_counts_the_trials_of_each_state(store: Store) -> None:
    found = store.overview(busy_sweep(store).id, now=20.0)
    assert found.num_trials == {
        TrialState.COMPLETE: 2,
        TrialState.FAILED: 1,
        TrialState.PRUNED: 1,
        TrialState.RUNNING: 1,
        TrialState.QUEUED: 1,
    }


def test_a_sweep_whose_lease_has_run_out_waits_for_a_worker(store: Store) -> None:
    sweep = held_sweep(store)  # at 10 for 30 s
    assert store.overview(sweep.id, now=39.0).waiting is None
    reason = "waits for a worker: its worker gives no sign of life, and the next one takes it over"
    assert store.overview(sweep.id, now=45.0).waiting == Waiting(reason=reason, since=40.0)
    release_sweep(store, sweep.id, owner=OWNER, now=50.0)
    given_back = store.overview(sweep.id, now=51.0).waiting
    assert given_back is not None
    assert "given it back" in given_back.reason
    claim(store, now=60.0)
    finish(store, sweep, now=70.0)
    assert store.overview(sweep.id, now=500.0).waiting is None


def test_an_overview_sums_the_accelerator_hours_of_its_trials(store: Store) -> None:
    sweep = busy_sweep(store)
    by_trial = sum(store.get_trial(trial.id).accelerator_hours(20.0) for trial in store.list_trials(sweep.id)[0])
    found = store.overview(sweep.id, now=20.0).progress.accelerator_hours
    assert by_trial == pytest.approx(4 * 1 / 3600 + 2 * 9 / 3600 + 0.5)
    assert found == pytest.approx(by_trial, rel=1e-12)  # the same sums in another order


def test_an_overview_names_the_value_and_mfu_of_the_trial_ranked_first(store: Store) -> None:
    sweep = held_sweep(store, objective=TOKENS_PER_S)
    for number, (tokens_per_s, mfu) in enumerate([(900.0, 0.3), (1000.0, 0.2)]):
        end(store, start(store, sweep, number), measurement(tokens_per_s=tokens_per_s, mfu=mfu))
    found = store.overview(sweep.id, now=20.0)
    assert (found.best_value, found.best_mfu) == (1000.0, 0.2)


def test_an_overview_says_how_well_its_best_trial_is_known_and_what_it_reached(store: Store) -> None:
    sweep = held_sweep(store)
    known = measurement(mfu=0.4, tokens_per_s=800.0, step_time_s=2.0, step_time_interval_s=0.1)
    best = end(store, start(store, sweep), known)
    found = store.overview(sweep.id, now=20.0)
    assert (found.best_trial_id, found.best_tokens_per_s, found.best_relative_error) == (best.id, 800.0, 0.05)


def test_an_overview_tells_how_the_best_value_grew(store: Store) -> None:
    sweep = held_sweep(store)
    for number, mfu in enumerate([0.2, 0.1, 0.2, 0.3, 0.25, 0.4]):
        measure(store, sweep, number, mfu=mfu)
    grew = store.overview(sweep.id, now=20.0).best_so_far
    assert [(best.number, best.value) for best in grew] == [(0, 0.2), (3, 0.3), (5, 0.4)]


def test_a_trial_whose_gate_failed_is_not_the_best_of_an_overview(store: Store) -> None:
    sweep = held_sweep(store)
    worse, better = measure(store, sweep, 0, mfu=0.2), measure(store, sweep, 1, mfu=0.4)
    judge(store, better, gate_result(GateOutcome.FAILED))
    assert worse.measurement is not None
    assert store.overview(sweep.id, now=20.0).best_mfu == worse.measurement.mfu


def test_an_overview_of_a_sweep_without_trials_is_empty(store: Store) -> None:
    found = store.overview(create(store).id, now=20.0)
    assert (found.num_trials, found.progress.accelerator_hours) == ({}, 0.0)
    assert (found.best_value, found.best_mfu) == (None, None)


def test_an_unknown_sweep_has_no_overview(store: Store) -> None:
    with pytest.raises(NotFound, match="sw-missing"):
        store.overview("sw-missing", now=1.0)


def test_a_listed_overview_is_the_one_that_is_read_alone(store: Store) -> None:
    sweeps = [busy_sweep(store, name=name) for name in ("first", "second")]
    listed, _ = store.list_overviews(now=20.0)
    assert {found.id: found for found in listed} == {sweep.id: store.overview(sweep.id, now=20.0) for sweep in sweeps}


def test_as_many_queries_list_many_sweeps_as_one(counted: tuple[Store, list[str]]) -> None:
    store, sent = counted
    busy_sweep(store)
    sent.clear()
    store.list_overviews(now=20.0)
    for_one = len(sent)
    for _ in range(3):
        busy_sweep(store)
    sent.clear()
    assert store.list_overviews(now=20.0)[1] == 4
    assert len(sent) == for_one


def test_an_overview_names_the_engine_that_runs_the_trials(store: Store) -> None:
    elsewhere = create(store, job=tiny_job(cluster=cpu_cluster(engine="slurm")))
    assert store.overview(elsewhere.id, now=20.0).engine == "slurm"
    assert store.overview(create(store).id, now=20.0).engine == "local"
