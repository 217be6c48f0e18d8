"""Sweeps that people pause, give another budget or have run a trial again, while a worker runs them and after."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from autotuner.core.measurement import Measurement
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, Sweep, SweepRequest
from autotuner.core.trial import FailureKind, Stopped, Trial, TrialFailure, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.store.sql import memory_store
from tests.builders import failure, sweep_request
from tests.clocks import ManualClock
from tests.contracts.acts import claim_sweep
from tests.fake_launcher import FakeLauncher, plain_measurement, sweep_worker


def paced(spec: TrialSpec) -> Measurement:
    """Some layouts are faster than others, always by as much."""
    return plain_measurement(spec, step_time_s=1.0 / (1 + spec.layout.micro_batch_size + spec.layout.world_size))


class Steered:
    """One sweep in a store, and a worker that is interfered with before the trials of some numbers."""

    def __init__(self, request: SweepRequest | None = None) -> None:
        self.store, self.clock = memory_store(), ManualClock()
        asked = request or sweep_request(budget=Budget(num_trials=4, prune_below=0, min_gain=0))
        self.sweep_id = self.store.create_sweep(asked, now=self.clock.now())[0].id

    def run(self, launcher: Launcher | None = None) -> Sweep:
        worker = sweep_worker(self.store, launcher or FakeLauncher(paced), self.clock, owner="one", lease_s=15.0)
        assert worker.run_once()
        return self.sweep

    @property
    def sweep(self) -> Sweep:
        return self.store.get_sweep(self.sweep_id)

    @property
    def trials(self) -> list[Trial]:
        return list(self.store.list_trials(self.sweep_id)[0])

    def pause(self) -> None:
        self.store.runs.pause("sweep", self.sweep_id, now=self.clock.now())

    def resume(self) -> None:
        self.store.runs.resume("sweep", self.sweep_id, now=self.clock.now())

    def cancel(self) -> None:
        self.store.request_cancel(self.sweep_id, now=self.clock.now())

    def extend(self, **limits: object) -> None:
        self.store.control.change_budget(self.sweep_id, limits, now=self.clock.now())

    def rerun(self, number: int) -> None:
        self.store.control.rerun(self.trials[number].id, now=self.clock.now())

    def ranking(self) -> list[tuple[object, float]]:
        ranked, _ = self.store.ranking(self.sweep_id)
        return [(trial.layout, trial.measurement.mfu) for trial in ranked if trial.measurement]


class During(FakeLauncher):
    """Does something while the run of that number goes on, and passes time enough for a look at the lease."""

    def __init__(self, steered: Steered, number: int, interfere: Callable[[], None]) -> None:
        super().__init__(paced)
        self._steered = steered
        self._number = number
        self._interfere = interfere

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        if len(self.specs) == self._number:
            self._interfere()
        self._steered.clock.sleep(5.0)
        return super().run(spec, watcher)


# ---------------------------------------------------------------------- pauses
def test_a_pause_ends_the_trial_in_good_order_and_the_sweep_ends_as_if_nothing_had_been() -> None:
    undisturbed, steered = Steered(), Steered()
    undisturbed.run()
    paused = steered.run(During(steered, 1, steered.pause))
    assert (paused.state, paused.owner) == (RunState.PAUSED, None)
    assert [(trial.state, trial.attempts) for trial in steered.trials] == [
        (TrialState.COMPLETE, 1),
        (TrialState.QUEUED, 0),
    ]
    steered.resume()
    assert steered.run().state is RunState.COMPLETE
    assert [trial.attempts for trial in steered.trials] == [1, 1, 1, 1]
    assert steered.ranking() == undisturbed.ranking()


def test_the_time_of_a_pause_is_none_of_the_budget() -> None:
    budget = Budget(num_trials=4, wall_clock_s=60.0, prune_below=0, min_gain=0)
    steered = Steered(sweep_request(budget=budget))
    steered.run(During(steered, 1, steered.pause))
    steered.clock.sleep(7200.0)
    steered.resume()
    assert steered.run().stop_reason is StopReason.TRIAL_BUDGET


def test_a_pause_that_is_taken_back_or_cancelled_in_time_is_none() -> None:
    steered = Steered()

    def hesitate() -> None:
        steered.pause()
        steered.resume()

    launcher = During(steered, 1, hesitate)
    assert steered.run(launcher).state is RunState.COMPLETE
    assert len(launcher.specs) == 4
    steered = Steered()

    def interfere() -> None:
        steered.pause()
        steered.cancel()

    assert steered.run(During(steered, 1, interfere)).state is RunState.CANCELLED


# ---------------------------------------------------------------------- budgets
def test_a_budget_that_comes_during_or_after_the_last_trial_or_ends_it_sooner_counts() -> None:
    steered = Steered()
    ended = steered.run(During(steered, 3, lambda: steered.extend(num_trials=6)))
    assert (ended.stop_reason, ended.stop_detail[:15]) == (StopReason.TRIAL_BUDGET, "6 of 6 trials r")
    assert len(steered.trials) == 6
    steered = Steered()

    class Late(FakeLauncher):
        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            outcome = super().run(spec, watcher)
            if len(self.specs) == 4:  # the worker looks at its lease no more before it ends the sweep
                steered.extend(num_trials=5)
            return outcome

    assert steered.run(Late(paced)).stop_detail.startswith("5 of 5 trials ran")
    steered = Steered()
    assert steered.run(During(steered, 1, lambda: steered.extend(num_trials=2))).stop_reason is StopReason.TRIAL_BUDGET
    assert len(steered.trials) == 2


def test_a_finished_sweep_with_a_larger_budget_tries_what_one_with_that_budget_would_have() -> None:
    long = Steered(sweep_request(budget=Budget(num_trials=7, prune_below=0, min_gain=0)))
    long.run()
    steered = Steered()
    steered.run()
    steered.clock.sleep(3600.0)
    steered.extend(num_trials=7)
    assert steered.run().state is RunState.COMPLETE
    assert [trial.number for trial in steered.trials] == list(range(7))
    assert steered.ranking() == long.ranking()


def test_a_trial_that_was_cut_short_or_lost_is_run_to_its_end_the_next_time() -> None:
    budget = Budget(num_trials=4, wall_clock_s=7.0, prune_below=0, min_gain=0)
    steered = Steered(sweep_request(budget=budget))
    steered.run(During(steered, -1, lambda: None))  # every trial takes five seconds
    assert [trial.state for trial in steered.trials] == [TrialState.COMPLETE, TrialState.CANCELLED]
    steered.extend(wall_clock_s=3600.0)
    steered.run()
    assert [trial.state for trial in steered.trials] == [TrialState.COMPLETE] * 4
    budget = Budget(num_trials=4, prune_below=0.5, min_gain=0)
    steered, times = Steered(sweep_request(budget=budget)), iter([1.0, 10.0])
    steered.run(FakeLauncher(lambda spec: plain_measurement(spec, step_time_s=next(times, 1.0))))
    assert steered.trials[1].state is TrialState.PRUNED
    steered.rerun(1)
    steered.run(FakeLauncher(lambda spec: plain_measurement(spec, step_time_s=10.0)))
    assert steered.trials[4].state is TrialState.COMPLETE


# ---------------------------------------------------------------------- trials again
def test_a_trial_of_a_finished_sweep_runs_again_without_a_rank_and_the_sweep_ends_as_it_had() -> None:
    steered = Steered()
    before = steered.run()
    ranking = steered.ranking()
    steered.rerun(1)
    after = steered.run()
    assert (after.state, after.stop_reason, after.stop_detail) == (before.state, before.stop_reason, before.stop_detail)
    again = steered.trials[4]
    assert (again.repeats, again.layout, again.state) == (1, steered.trials[1].layout, TrialState.COMPLETE)
    assert steered.ranking() == ranking
    times = {time.trial_id: time.repeated_s for time in steered.store.ranked_times(steered.sweep_id)}
    assert len(times[steered.trials[1].id]) == 1


def test_a_trial_that_died_and_runs_again_well_is_ranked_and_completes_its_sweep() -> None:
    deaths = iter([failure(FailureKind.CRASH)])
    steered = Steered()
    steered.run(FakeLauncher(lambda spec: next(deaths, None) or paced(spec)))
    assert len(steered.ranking()) == 3
    steered.rerun(0)
    steered.run()
    assert (steered.trials[4].repeats, len(steered.ranking())) == (None, 4)
    steered = Steered()
    assert steered.run(FakeLauncher(lambda _: failure(FailureKind.OOM))).state is RunState.FAILED
    steered.rerun(0)
    after = steered.run()
    assert after.state is RunState.COMPLETE
    assert after.stop_detail.endswith("after that, a repeated trial was measured")


def test_a_trial_runs_again_beside_no_other_and_the_search_goes_on_after_it() -> None:
    asked = sweep_request(budget=Budget(num_trials=6, prune_below=0, min_gain=0), max_parallel_trials=2)
    steered = Steered(asked)
    launcher = Alone(steered)
    assert steered.run(launcher).state is RunState.COMPLETE
    repeats = [trial for trial in steered.trials if trial.repeats is not None]
    assert [trial.repeats for trial in repeats] == launcher.asked
    assert list(launcher.beside.values()) == [0]
    assert len(steered.trials) == 7


class Alone(FakeLauncher):
    """Asks once for a trial again that has ended, and counts what runs beside each repeat."""

    def __init__(self, steered: Steered) -> None:
        super().__init__(paced, capacity=2)
        self._steered = steered
        self._lock = threading.Lock()
        self._running = 0
        self.asked: list[int] = []
        self.beside: dict[str, int] = {}

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        with self._lock:
            if spec.repeat:
                self.beside[spec.trial_id] = self._running
            self._running += 1
            ended = [trial.number for trial in self._steered.trials if trial.state.finished]
            if ended and not self.asked:
                self.asked = ended[:1]
                self._steered.rerun(ended[0])
        self._steered.clock.sleep(2.0)
        outcome = super().run(spec, watcher)
        with self._lock:
            self._running -= 1
        return outcome


def test_a_cancel_while_a_trial_runs_again_leaves_the_end_that_the_sweep_had() -> None:
    steered = Steered()
    before = steered.run()
    steered.rerun(0)
    after = steered.run(During(steered, 0, steered.cancel))
    assert (after.state, after.stop_detail) == (RunState.COMPLETE, before.stop_detail)
    assert steered.trials[4].state is TrialState.CANCELLED


@pytest.mark.parametrize("num_pauses", [1, 3])
def test_a_worker_that_takes_the_sweep_up_after_pauses_still_runs_what_was_to_run_again(num_pauses: int) -> None:
    steered = Steered()
    steered.run()
    steered.rerun(2)
    for _ in range(num_pauses):
        steered.run(During(steered, 0, steered.pause))
        steered.resume()
    steered.run()
    assert [trial.repeats for trial in steered.trials[4:]] == [2]


def test_a_pause_that_a_dead_worker_was_asked_for_is_made_by_the_next_and_begins_nothing() -> None:
    steered, launcher = Steered(), FakeLauncher(paced)
    assert claim_sweep(steered.store, owner="dead", now=steered.clock.now(), lease_s=15.0)
    steered.pause()
    worker = sweep_worker(steered.store, launcher, steered.clock, owner="next", lease_s=15.0)
    while not worker.run_once():
        steered.clock.sleep(1.0)
    assert (steered.sweep.state, steered.trials, launcher.specs) == (RunState.PAUSED, [], [])
