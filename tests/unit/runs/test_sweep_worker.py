from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.cluster import Cluster
from autotuner.core.errors import StoreUnavailable
from autotuner.core.measurement import Measurement
from autotuner.core.run import Lease, Run, RunState, StopReason
from autotuner.core.sweep import Budget, RunTrial, Sweep, SweepRequest
from autotuner.core.trial import FailureKind, Stopped, TrialFailure, TrialState
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.runs.sweep_run import SweepMachine
from autotuner.runs.worker import Worker
from autotuner.store.runs import RunStore
from autotuner.store.schema import memory_engine
from autotuner.store.sql import Store, memory_store
from autotuner.store.sweeps import SWEEP_ROWS
from tests.builders import failure, step_report, sweep_request
from tests.clocks import ManualClock
from tests.contracts.acts import claim_sweep, held_sweeps, lease_of
from tests.fake_launcher import FakeLauncher, plain_measurement, sweep_worker


class House:
    """A store with one sweep in it, a clock, and workers over them."""

    def __init__(self, request: SweepRequest | None = None, store: Store | None = None) -> None:
        self.clock = ManualClock()
        self.store = store or memory_store()
        self.shutdown = threading.Event()
        self.sweep_id = self.store.create_sweep(request or sweep_request(), now=self.clock.now())[0].id

    def worker(self, launcher: Launcher, owner: str = "one") -> Worker:
        return sweep_worker(self.store, launcher, self.clock, owner=owner, lease_s=15.0, shutdown=self.shutdown)

    def claim(self, owner: str) -> None:
        """The sweep goes to that worker, who thinks that the last one is dead."""
        now, held = self.clock.now(), held_sweeps(self.store)
        assert claim_sweep(self.store, owner=owner, now=now, lease_s=15.0, lapsed=held)

    def takes_over(self, worker: Worker) -> None:
        """The worker looks now and then until the lease of another has lapsed."""
        while not worker.run_once():
            self.clock.sleep(1.0)

    def run(self, launcher: Launcher) -> Sweep:
        self.worker(launcher).run_once()
        return self.store.get_sweep(self.sweep_id)


class InterferingLauncher(FakeLauncher):
    """Does something to the world while a trial runs, and passes time enough for the worker to look at its lease."""

    def __init__(self, house: House, interfere: Callable[[TrialSpec], None]) -> None:
        super().__init__()
        self._house = house
        self._interfere = interfere

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        self._interfere(spec)
        self._house.clock.sleep(5.0)
        return super().run(spec, watcher)


def test_a_worker_runs_a_sweep_to_its_end_and_ranks_what_it_measured() -> None:
    house = House(sweep_request(budget=Budget(num_trials=4, prune_below=0, min_gain=0)))
    ended = house.run(
        FakeLauncher(lambda spec: plain_measurement(spec, step_time_s=1.0 / spec.layout.micro_batch_size))
    )
    assert (ended.state, ended.stop_reason) == (RunState.COMPLETE, StopReason.TRIAL_BUDGET)
    ranking, total = house.store.ranking(house.sweep_id)
    assert total == 4
    mfus = [t.measurement.mfu for t in ranking if t.measurement]
    assert mfus == sorted(mfus, reverse=True)


def test_a_sweep_has_its_first_measured_trial_run_twice_and_tells_the_noise_floor() -> None:
    deaths = iter([failure(FailureKind.OOM)])
    launcher = FakeLauncher(lambda spec: next(deaths, None) or replace(plain_measurement(spec), noise_floor=0.02))
    ended = House().run(launcher)
    assert [spec.settings.num_runs for spec in launcher.specs] == [2, 2, 1, 1]
    assert ended.stop_detail.endswith("; repeats of one trial differed by up to 2.0 %")


def test_a_sweep_on_a_cluster_that_the_launcher_does_not_have_fails_at_once_and_says_why() -> None:
    class Elsewhere(FakeLauncher):
        def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
            del trainer
            return f"no {cluster.accelerator.name} here"

    house = House()
    ended = house.run(Elsewhere())
    assert (ended.state, ended.stop_reason) == (RunState.FAILED, StopReason.CANNOT_RUN)
    assert ended.stop_detail == "no cpu here"
    assert house.store.list_trials(house.sweep_id)[1] == 0


@pytest.mark.parametrize("kind", list(FailureKind))
def test_a_sweep_goes_on_after_a_trial_that_died(kind: FailureKind) -> None:
    house = House()
    deaths = iter([failure(kind)])
    ended = house.run(FakeLauncher(lambda spec: next(deaths, None) or plain_measurement(spec)))
    trials, _ = house.store.list_trials(house.sweep_id)
    assert ended.state == RunState.COMPLETE
    assert [t.state for t in trials] == [TrialState.FAILED, *[TrialState.COMPLETE] * 3]
    assert trials[0].failure == failure(kind)


def test_a_cancel_request_ends_the_running_trial_and_the_sweep() -> None:
    house = House()
    launcher = InterferingLauncher(house, lambda spec: void(house.store.request_cancel(house.sweep_id, now=1001.0)))
    ended = house.run(launcher)
    assert (ended.state, ended.stop_reason) == (RunState.CANCELLED, StopReason.CANCELLED)
    assert [t.state for t in house.store.list_trials(house.sweep_id)[0]] == [TrialState.CANCELLED]


def test_a_budget_of_time_that_runs_out_ends_the_running_trial_and_the_sweep() -> None:
    house = House(sweep_request(budget=Budget(num_trials=4, wall_clock_s=7.0, min_gain=0)))
    ended = house.run(InterferingLauncher(house, lambda _: None))  # every trial takes five seconds
    assert (ended.state, ended.stop_reason) == (RunState.COMPLETE, StopReason.TIME_BUDGET)
    states = [t.state for t in house.store.list_trials(house.sweep_id)[0]]
    assert states == [TrialState.COMPLETE, TrialState.CANCELLED]


def test_a_shutdown_gives_the_sweep_back_and_the_next_worker_finishes_it_with_nothing_lost() -> None:
    house = House()
    num_runs = iter(range(100))
    house.run(InterferingLauncher(house, lambda spec: house.shutdown.set() if next(num_runs) == 1 else None))
    cut_short = house.store.list_trials(house.sweep_id)[0]
    assert [t.state for t in cut_short] == [TrialState.COMPLETE, TrialState.QUEUED]
    house.shutdown.clear()
    ended = house.run(FakeLauncher())
    trials, _ = house.store.list_trials(house.sweep_id)
    assert ended.state == RunState.COMPLETE
    assert [(t.number, t.attempts) for t in trials] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert trials[0] == cut_short[0]


def test_a_worker_that_lost_its_lease_ends_its_trial_and_changes_nothing_more() -> None:
    house = House()

    def steal(_: TrialSpec) -> None:
        house.clock.sleep(60.0)
        house.claim("two")

    still = house.run(InterferingLauncher(house, steal))
    assert (still.state, still.owner) == (RunState.RUNNING, "two")
    assert [t.state for t in house.store.list_trials(house.sweep_id)[0]] == [TrialState.QUEUED]


@pytest.mark.parametrize("write", ["add_trial", "start_trial", "finish_trial"])
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_trial_beside_which_the_store_was_away_for_a_moment_runs_once(write: str, is_stored: bool) -> None:
    """Whether what was written then is stored or not."""
    answers = iter([False, False, True])

    class Flickering(Store):
        def __getattribute__(self, name: str) -> Any:
            method = super().__getattribute__(name)
            return method if name != write else lambda *given, **named: self.answer(method, *given, **named)

        def answer(self, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
            is_away = next(answers, True) is False
            if is_away and not is_stored:
                raise StoreUnavailable("away")
            found = method(*given, **named)
            if is_away:
                raise StoreUnavailable("the connection was lost after the commit")
            return found

    request = sweep_request(budget=Budget(num_trials=4, prune_below=0, min_gain=0), max_parallel_trials=2)
    house = House(request, store=Flickering(memory_engine()))
    assert house.run(FakeLauncher(capacity=2)).state == RunState.COMPLETE
    trials, _ = house.store.list_trials(house.sweep_id)
    assert [(trial.state, trial.attempts) for trial in trials] == [(TrialState.COMPLETE, 1)] * 4


def test_a_trial_that_loses_from_its_first_steps_is_pruned() -> None:
    house = House(sweep_request(budget=Budget(num_trials=4, prune_below=0.5, min_gain=0)))
    times = iter([1.0, 10.0, 1.0, 1.0])
    house.run(FakeLauncher(lambda spec: plain_measurement(spec, step_time_s=next(times))))
    states = [t.state for t in house.store.list_trials(house.sweep_id)[0]]
    assert states == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE, TrialState.COMPLETE]


def test_a_launcher_that_breaks_fails_its_trial_and_the_sweep_goes_on() -> None:
    house = House()
    num_runs = iter(range(100))

    def broken_once(spec: TrialSpec) -> Measurement:
        if next(num_runs) == 0:
            raise ZeroDivisionError("a bug")
        return plain_measurement(spec)

    ended = house.run(FakeLauncher(broken_once))
    first = house.store.list_trials(house.sweep_id)[0][0]
    assert ended.state == RunState.COMPLETE
    assert first.failure is not None
    assert (first.failure.kind, "ZeroDivisionError: a bug" in first.failure.message) == (FailureKind.CRASH, True)


def test_a_bug_ends_its_sweep_with_the_reason_and_leaves_the_worker_alive() -> None:
    class Broken(FakeLauncher):
        def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
            del trainer
            raise ZeroDivisionError(f"a bug with {cluster.name}")

    house = House()
    ended = house.run(Broken())
    assert (ended.state, ended.stop_reason) == (RunState.FAILED, StopReason.ERROR)
    assert "ZeroDivisionError: a bug" in ended.stop_detail
    assert not house.worker(FakeLauncher()).run_once()


def test_a_sweep_that_measured_nothing_has_failed_whatever_ended_it() -> None:
    ended = House().run(FakeLauncher(lambda spec: failure(FailureKind.OOM)))
    assert ended.state == RunState.FAILED
    assert "no trial was measured" in ended.stop_detail


def test_a_trial_that_kills_the_service_each_time_is_given_up_as_interrupted() -> None:
    house = House()
    for attempt in range(3):  # three services die while the first trial runs
        house.claim(f"dead-{attempt}")
        if attempt == 0:
            plan_first_trial(house, owner="dead-0")
        trial = house.store.list_trials(house.sweep_id)[0][0]
        house.store.start_trial(
            trial.id, lease=lease_of(house.store, trial.id, f"dead-{attempt}"), now=house.clock.now()
        )
    house.takes_over(house.worker(FakeLauncher()))
    first = house.store.list_trials(house.sweep_id)[0][0]
    assert first.failure is not None
    assert first.failure.kind == FailureKind.INTERRUPTED


@pytest.mark.parametrize(("peak_is_measured", "peaks"), [(False, [None, 100e9, 100e9, 100e9]), (True, [100e9] * 4)])
def test_the_first_trial_on_cores_measures_the_peak_of_all_unless_it_was_measured_with_the_cluster(
    peak_is_measured: bool, peaks: list[float | None]
) -> None:
    request, launcher = sweep_request(), FakeLauncher()
    cluster = request.job.cluster
    cores = replace(cluster, accelerator=replace(cluster.accelerator, peak_is_measured=peak_is_measured))
    House(replace(request, job=replace(request.job, cluster=cores))).run(launcher)
    assert [spec.reference_flop_per_s for spec in launcher.specs] == peaks
    assert {spec.device for spec in launcher.specs} == {"cpu"}


def test_two_runs_with_the_same_seed_try_the_same_layouts() -> None:
    launchers = FakeLauncher(), FakeLauncher()
    for launcher in launchers:
        House(replace(sweep_request(), seed=7)).run(launcher)
    assert [s.layout for s in launchers[0].specs] == [s.layout for s in launchers[1].specs]


def test_the_steps_of_a_running_trial_are_stored_as_they_come() -> None:
    house = House()
    seen: list[int] = []

    class Watching(FakeLauncher):
        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            watcher.on_step(step_report(0))
            seen.append(len(house.store.get_trial(spec.trial_id).steps))
            return failure(FailureKind.CRASH)

    house.run(Watching())
    assert set(seen) == {1}


def plan_first_trial(house: House, owner: str) -> None:
    """What a worker does before it starts its first trial."""
    order = SweepMachine(house.store.get_sweep(house.sweep_id).request, [], started_at=0.0).decide(0.0)
    assert isinstance(order, RunTrial)
    house.store.add_trial(
        RunTrial(
            number=0,
            layout=order.layout,
            prediction=order.prediction,
        ),
        lease=lease_of(house.store, house.sweep_id, owner),
    )


def void(value: object) -> None:
    del value


def test_a_sweep_is_not_taken_from_a_worker_that_could_not_say_that_it_lives_on_a_full_disk() -> None:
    class Full(RunStore):
        is_full = False

        def claim(
            self, kinds: Collection[str], *, owner: str, now: float, lease_s: float, lapsed: Collection[Lease] = ()
        ) -> Run | None:
            if self.is_full and lapsed:
                raise StoreUnavailable("disk full")
            return super().claim(kinds, owner=owner, now=now, lease_s=lease_s, lapsed=lapsed)

    store = memory_store()
    store.runs = full = Full(store._engine, {"sweep": SWEEP_ROWS})
    house = House(store=store)
    house.claim("two")
    worker, full.is_full = house.worker(FakeLauncher()), True
    with pytest.raises(StoreUnavailable):
        house.takes_over(worker)
    full.is_full = False
    house.clock.sleep(1.0)
    assert not worker.run_once()
    assert house.store.get_sweep(house.sweep_id).owner == "two"
