"""Store contract: many threads and processes on one store."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from autotuner.core.trial import Trial
from autotuner.store import overviews
from autotuner.store.engine import make_engine, reading, window
from autotuner.store.options import Page
from autotuner.store.sql import Store, open_store
from tests.builders import sweep_request
from tests.contracts.acts import claim, claim_sweep, create, held_sweep, held_sweeps, measure, start, step, take_over
from tests.contracts.crowd import claim_all, in_processes, in_threads, open_and_claim_all

NUM_THREADS = 8


def test_each_sweep_is_claimed_by_one_thread(store: Store) -> None:
    ids = {create(store, now=float(number)).id for number in range(24)}
    claimed = in_threads(NUM_THREADS, lambda index: claim_all(store, f"thread-{index}"))
    every = [sweep_id for mine in claimed for sweep_id in mine]
    assert len(every) == 24
    assert set(every) == ids


def test_each_sweep_is_claimed_by_one_process(database_url: str) -> None:
    store = open_store(database_url)
    ids = {create(store, now=float(number)).id for number in range(24)}
    claimed = in_processes(3, open_and_claim_all, database_url)
    every = [sweep_id for mine in claimed for sweep_id in mine]
    assert len(every) == 24
    assert set(every) == ids
    store.close()


def test_a_lapsed_lease_is_taken_over_by_one_thread(store: Store) -> None:
    held_sweep(store)
    seen = held_sweeps(store)
    taken = in_threads(
        NUM_THREADS,
        lambda index: claim_sweep(store, owner=f"thread-{index}", now=50.0, lease_s=30.0, lapsed=seen),
    )
    assert len([sweep for sweep in taken if sweep is not None]) == 1


def test_one_key_sent_by_many_threads_creates_one_sweep(store: Store) -> None:
    answers = in_threads(NUM_THREADS, lambda _: store.create_sweep(sweep_request(), now=1.0, idempotency_key="one key"))
    assert len({sweep.id for sweep, _ in answers}) == 1
    assert [created for _, created in answers].count(True) == 1
    assert store.runs.list("sweep")[1] == 1


def test_a_reader_sees_every_event_once_and_in_order_while_writers_write(store: Store) -> None:
    sweep = held_sweep(store)
    trials = [start(store, sweep, number) for number in (0, 1)]

    def report(trial: Trial) -> None:
        for number in range(40):
            step(store, trial, number)

    seen = list(store.events(sweep.id))
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(report, trial) for trial in trials]
        while not all(writer.done() for writer in writers):
            seen += store.events(sweep.id, after=seen[-1].sequence)
    assert [writer.result() for writer in writers] == [None, None]
    seen += store.events(sweep.id, after=seen[-1].sequence)
    assert seen == store.events(sweep.id)
    for trial in trials:
        mine = [event.data for event in seen if event.kind == "trial.step" and event.data["trial_id"] == trial.id]
        assert [data["step"] for data in mine] == list(range(40))


def test_one_read_sees_the_database_at_one_moment(database_url: str) -> None:
    store, engine = open_store(database_url), make_engine(database_url)
    with reading(engine) as connection:
        before = window(connection, overviews.OVERVIEWS, Page())
        create(store)
        assert window(connection, overviews.OVERVIEWS, Page()) == before
    assert store.runs.list("sweep")[1] == 1
    engine.dispose()
    store.close()


def test_workers_on_different_sweeps_do_not_disturb_each_other(store: Store) -> None:
    for _ in range(4):
        create(store)
    held = [claim(store) for _ in range(4)]
    in_threads(4, lambda index: [measure(store, held[index], number, mfu=0.1 + number / 100) for number in range(8)])
    for sweep in held:
        assert [trial.number for trial in store.ranking(sweep.id)[0]] == list(range(7, -1, -1))
        sequences = [event.sequence for event in store.events(sweep.id)]
        assert len(set(sequences)) == 2 + 2 * 8  # created and started; started and finished per trial


KILLED_WRITER = """
import sys
from autotuner.store.engine import make_engine, writing
from tests.builders import queued_trial
from autotuner.core.run import Lease
from autotuner.store.runs import hold
from autotuner.store.trials import insert_trial

url, sweep_id = sys.argv[1:]
with writing(make_engine(url)) as connection:
    hold(connection, Lease(run_id=sweep_id, owner="worker-a", claim=1, renewals=1, lease_s=30.0))
    insert_trial(connection, queued_trial(sweep_id))
    print("half done", flush=True)
    sys.stdin.read()
"""


def test_a_process_killed_in_the_middle_of_a_write_leaves_nothing_of_it_and_no_lock(database_url: str) -> None:
    store = open_store(database_url)
    sweep = held_sweep(store)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_WRITER, database_url, sweep.id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half done\n"
        assert store.list_trials(sweep.id) == ([], 0)  # readers do not wait for a writer
        writer.kill()
    assert measure(store, sweep, 0, mfu=0.3).number == 0
    assert take_over(store) == store.get_sweep(sweep.id)
    store.close()
