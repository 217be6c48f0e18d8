"""Sweeps whose trials run side by side, on a launcher that holds them until all have met."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from autotuner.core.choices import Precision
from autotuner.core.cluster import Cluster
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.measurement import FinishedRun, LinkEvent, LinkEventKind, Measurement
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, Sweep, SweepRequest
from autotuner.core.trial import FailureKind, Stopped, Trial, TrialFailure, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.runs.clock import SystemClock
from autotuner.runs.lease import LeaseWatch
from autotuner.runs.sweep_study import Candidates
from autotuner.search.results.reached import standings
from autotuner.store.sql import Store, memory_store
from tests.builders import failure, step_report, sweep_request
from tests.clocks import ManualClock
from tests.contracts.acts import claim_sweep, held_sweeps
from tests.fake_launcher import FakeLauncher, plain_measurement, sweep_worker
from tests.patience import PATIENCE_S
from tests.unit.runs.challenged import bf16_and_fp8_request

Behaviour = Callable[[TrialSpec], Measurement | TrialFailure]


class Crowd(FakeLauncher):
    """Ends no trial before as many run as it expects, and remembers how many ran at once."""

    def __init__(self, expected: int, *, capacity: int, behaviour: Behaviour = plain_measurement) -> None:
        super().__init__(behaviour, capacity=capacity)
        self._all_here = threading.Barrier(expected)
        self._lock = threading.Lock()
        self._running = 0
        self.most_at_once = 0

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        with self._lock:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            self._all_here.wait(timeout=PATIENCE_S)
            return super().run(spec, watcher)
        finally:
            with self._lock:
                self._running -= 1


def swept(request: SweepRequest, launcher: Launcher, *, shutdown: threading.Event | None = None) -> tuple[Store, Sweep]:
    store = memory_store()
    sweep_id = store.create_sweep(request, now=time.time())[0].id
    sweep_worker(store, launcher, SystemClock(), owner="one", lease_s=15.0, shutdown=shutdown).run_once()
    return store, store.get_sweep(sweep_id)


@pytest.mark.parametrize(("asked", "capacity"), [(1, 1), (4, 4), (16, 16), (1, 4), (4, 1), (3, 2)])
def test_as_many_trials_run_at_once_as_are_asked_for_and_have_room(asked: int, capacity: int) -> None:
    num_parallel = min(asked, capacity)
    budget = Budget(num_trials=2 * num_parallel, min_gain=0, prune_below=0)
    request = sweep_request(budget=budget, max_parallel_trials=asked)
    launcher = Crowd(num_parallel, capacity=capacity)
    store, ended = swept(request, launcher)
    assert launcher.most_at_once == num_parallel
    assert (ended.state, ended.stop_reason) == (RunState.COMPLETE, StopReason.TRIAL_BUDGET)
    trials, total = store.list_trials(ended.id)
    assert total == 2 * num_parallel
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert len({trial.layout for trial in trials}) == total


def test_a_failed_trial_makes_room_for_the_next() -> None:
    deaths = iter([failure(FailureKind.OOM)] * 4)
    budget = Budget(num_trials=8, min_gain=0, prune_below=0)
    launcher = Crowd(4, capacity=4, behaviour=lambda spec: next(deaths, None) or plain_measurement(spec))
    store, ended = swept(sweep_request(budget=budget, max_parallel_trials=4), launcher)
    states = [trial.state for trial in store.list_trials(ended.id)[0]]
    assert (states.count(TrialState.FAILED), states.count(TrialState.COMPLETE)) == (4, 4)


def notes_of(store: Store, sweep: Sweep) -> list[tuple[object, object]]:
    return [
        (event.data["number"], event.data["note"]) for event in store.events(sweep.id) if event.kind == "trial.note"
    ]


def test_after_a_trial_that_ran_out_of_memory_its_note_says_what_is_believed_of_the_others() -> None:
    deaths = iter([failure(FailureKind.OOM)])
    launcher = FakeLauncher(lambda spec: next(deaths, None) or plain_measurement(spec))
    store, ended = swept(sweep_request(budget=Budget(num_trials=3, min_gain=0, prune_below=0)), launcher)
    [(number, note)] = notes_of(store, ended)
    assert number == 0
    assert str(note).startswith("memory peaks are now estimated as ")
    assert str(note).endswith("untried layouts are more likely to fit than not")


def test_a_trial_that_will_hardly_fit_says_why_it_is_tried() -> None:
    request = sweep_request(budget=Budget(num_trials=1, min_gain=0))
    fewest = Candidates.of(request).least_bytes
    cluster = request.job.cluster
    tight = replace(cluster, accelerator=replace(cluster.accelerator, memory_bytes=int(0.95 * fewest)))
    store, ended = swept(replace(request, job=replace(request.job, cluster=tight)), FakeLauncher(plain_measurement))
    [(number, note)] = notes_of(store, ended)
    assert number == 0
    assert str(note).endswith("it is tried because no untried layout is more likely to fit than not")


def test_a_shutdown_while_several_trials_run_loses_none_and_the_next_worker_runs_them() -> None:
    shutdown = threading.Event()
    store = memory_store()
    request = sweep_request(budget=Budget(num_trials=8, min_gain=0, prune_below=0), max_parallel_trials=4)
    sweep_id = store.create_sweep(request, now=time.time())[0].id

    def until_all_run(spec: TrialSpec) -> Measurement:
        shutdown.set()
        return plain_measurement(spec)

    first = Crowd(4, capacity=4, behaviour=until_all_run)
    sweep_worker(store, first, SystemClock(), owner="one", lease_s=15.0, shutdown=shutdown).run_once()
    begun = store.list_trials(sweep_id)[0]
    assert [trial.state for trial in begun] == [TrialState.QUEUED] * 4
    assert store.get_sweep(sweep_id).state == RunState.RUNNING

    sweep_worker(store, FakeLauncher(capacity=4), SystemClock(), owner="two", lease_s=15.0).run_once()
    trials = store.list_trials(sweep_id)[0]
    assert [trial.number for trial in trials] == list(range(8))
    assert {(trial.state, trial.attempts) for trial in trials} == {(TrialState.COMPLETE, 1)}
    assert [trial.layout for trial in trials[: len(begun)]] == [trial.layout for trial in begun]


def test_a_watchers_own_error_ends_the_sweep_as_an_error_and_no_trial_as_dead() -> None:
    class Corrupt(FakeLauncher):
        """Reports a step of which the plan can make nothing."""

        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            watcher.on_step(step_report(0, step_time_s=0.0))
            return super().run(spec, watcher)

    store, ended = swept(sweep_request(), Corrupt())
    assert (ended.state, ended.stop_reason) == (RunState.FAILED, StopReason.ERROR)
    assert "ZeroDivisionError" in ended.stop_detail
    assert all(trial.failure is None for trial in store.list_trials(ended.id)[0])


def test_a_trial_that_a_budget_ends_says_so() -> None:
    class HeldClock(SystemClock):
        """Time that passes only while the trial runs, however long planning takes."""

        time = 1000.0

        def now(self) -> float:
            return self.time

    clock, store = HeldClock(), memory_store()

    class Slow(FakeLauncher):
        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            while not (stopped := watcher.stop_requested()):
                clock.time += 1.0
            self.specs.append(spec)
            return stopped

    request = sweep_request(budget=Budget(num_trials=4, wall_clock_s=10.0, min_gain=0))
    sweep_id = store.create_sweep(request, now=clock.now())[0].id
    sweep_worker(store, Slow(), clock, owner="one", lease_s=15.0).run_once()
    (trial,) = store.list_trials(sweep_id)[0]
    assert store.get_sweep(sweep_id).stop_reason == StopReason.TIME_BUDGET
    assert trial.state == TrialState.CANCELLED
    assert trial.stopped is not None
    assert trial.stopped.reason == "budget"


def test_a_lease_is_kept_while_the_worker_plans_for_longer_than_it_lasts() -> None:
    store = memory_store()
    sweep_id = store.create_sweep(sweep_request(), now=time.time())[0].id
    stolen: list[Sweep] = []
    clock = ManualClock()
    watch = LeaseWatch(clock)

    def renewals() -> int:
        (held,) = held_sweeps(store)
        return held.renewals

    class Thinking(FakeLauncher):
        def capacity(self, cluster: Cluster) -> int:
            for _ in range(3):
                num_renewals = renewals()
                while renewals() == num_renewals:
                    time.sleep(0.01)
                for _ in range(3):  # a look counts for no more than a quarter of the lease
                    clock.sleep(0.5)
                    lapsed = watch.lapsed(lambda: held_sweeps(store))
                    stolen.extend(filter(None, [claim_sweep(store, owner="two", now=0.0, lease_s=2.0, lapsed=lapsed)]))
            return super().capacity(cluster)

    sweep_worker(store, Thinking(), SystemClock(), owner="one", lease_s=2.0).run_once()
    assert not stolen
    assert store.get_sweep(sweep_id).state == RunState.COMPLETE


def test_notes_of_a_launcher_become_events() -> None:
    class Talking(FakeLauncher):
        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            watcher.on_note("repeat 2 of 3: others used 64 % of the machine's CPU time")
            return super().run(spec, watcher)

    store, ended = swept(sweep_request(), Talking())
    notes = [event.data["note"] for event in store.events(ended.id) if event.kind == "trial.note"]
    assert notes == ["repeat 2 of 3: others used 64 % of the machine's CPU time"] * 4


def test_a_trial_that_waits_for_devices_says_so_and_is_not_billed() -> None:
    seen: list[Trial] = []
    clock = ManualClock()

    class Patient(FakeLauncher):
        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            watcher.on_wait("waits until other trials on this machine have ended")
            seen.append(store.get_trial(spec.trial_id))
            clock.time += 3600.0
            watcher.on_wait(None)
            return super().run(spec, watcher)

    store = memory_store()
    sweep_id = store.create_sweep(sweep_request(), now=clock.now())[0].id
    sweep_worker(store, Patient(), clock, owner="one", lease_s=15.0).run_once()
    assert {trial.state for trial in seen} == {TrialState.WAITING}
    assert {trial.waiting.reason for trial in seen if trial.waiting} == {
        "waits until other trials on this machine have ended"
    }
    overview = store.overview(sweep_id, now=clock.now())
    assert (overview.state, overview.progress.accelerator_hours) == (RunState.COMPLETE, 0.0)


def test_a_trial_that_is_taken_over_brings_its_finished_runs_and_its_gate_none() -> None:
    specs: list[TrialSpec] = []

    class Dying(FakeLauncher):
        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            specs.append(spec)
            outcome = plain_measurement(spec)
            if len(specs) == 1:
                watcher.on_run(FinishedRun(number=0, seconds=1.0, measurement=outcome))
                return Stopped(reason="infrastructure", detail="no room on the disk")
            return outcome

    swept(mixed_precision_request(), Dying())
    assert [len(spec.runs) for spec in specs if spec.trial_id == specs[0].trial_id] == [0, 1]
    assert any("-gate-" in spec.trial_id for spec in specs)
    assert not any(spec.runs for spec in specs if "-gate-" in spec.trial_id)


def test_link_findings_of_a_pipeline_become_events_and_stay_with_the_measurement() -> None:
    found = LinkEvent(step=1, kind=LinkEventKind.LINK_SLOW, stages=(2, 3), delay_s=0.06)
    store, ended = swept(
        sweep_request(), FakeLauncher(lambda trial: replace(plain_measurement(trial), link_events=(found,)))
    )
    told = [event for event in store.events(ended.id) if event.kind == "trial.link_event"]
    assert [(event.data["kind"], event.data["stages"], event.data["delay_s"]) for event in told] == [
        ("link_slow", [2, 3], 0.06)
    ] * 4
    measured = store.get_trial(str(told[0].data["trial_id"])).measurement
    assert measured is not None
    assert measured.link_events == (found,)


# ---------------------------------------------------------------------- bf16 and fp8 in one sweep
def mixed_precision_request(**changes: object) -> SweepRequest:
    return bf16_and_fp8_request(**{"budget": Budget(num_trials=30, min_gain=0, prune_below=0), **changes})


def faster_in_fp8(loss_factor: float) -> Behaviour:
    """Steps a third shorter in fp8, at losses higher by a factor; no two trials take equally long."""

    def run(spec: TrialSpec) -> Measurement:
        is_fp8 = spec.layout.precision == Precision.FP8
        number = int(spec.trial_id.split("-")[2])
        losses = tuple(
            (loss_factor if is_fp8 else 1.0) * (7 - 0.1 * step) for step in range(spec.settings.measured_steps)
        )
        return replace(plain_measurement(spec, step_time_s=(0.75 if is_fp8 else 1.0) + number / 1000), losses=losses)

    return run


@pytest.mark.parametrize("loss_factor", [1.0, 1.1])
def test_the_ranking_of_bf16_and_fp8_layouts_is_the_order_by_tokens_per_s(loss_factor: float) -> None:
    store, ended = swept(mixed_precision_request(), FakeLauncher(faster_in_fp8(loss_factor)))
    ranked = [trial.measurement for trial in store.ranking(ended.id)[0] if trial.measurement]
    tokens_per_s = [measured.tokens_per_s for measured in ranked]
    assert tokens_per_s == sorted(tokens_per_s, reverse=True)
    assert len({measured.peak_flop_per_s for measured in ranked}) == 1


@pytest.mark.parametrize(
    ("loss_factor", "winner", "outcome"),
    [(1.001, Precision.FP8, GateOutcome.PASSED), (1.1, Precision.BF16, GateOutcome.FAILED)],
)
def test_fp8_wins_once_its_losses_passed_the_gate_and_has_no_rank_where_they_failed(
    loss_factor: float, winner: Precision, outcome: GateOutcome
) -> None:
    store, ended = swept(mixed_precision_request(), FakeLauncher(faster_in_fp8(loss_factor)))
    assert store.ranking(ended.id)[0][0].layout.precision == winner
    gated = [trial for trial in store.list_trials(ended.id)[0] if trial.gate]
    assert gated
    for trial in gated:
        assert trial.gate is not None
        assert trial.gate.outcome is outcome
        assert trial.is_ranked == (outcome is GateOutcome.PASSED)
    first = gated[0].gate
    assert first is not None
    assert outcome is GateOutcome.FAILED or len(first.candidate_losses) == ended.request.convergence_gate.num_seeds


def test_standings_of_a_sweep_sum_to_one_and_tie_the_first_with_itself() -> None:
    store, ended = swept(sweep_request(), FakeLauncher())
    found = standings(store.ranked_times(ended.id))
    assert sum(standing.probability_best for standing in found.values()) == pytest.approx(1.0)
    assert next(iter(found.values())).tied_with_best
