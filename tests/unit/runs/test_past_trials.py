"""What stored trials teach the service and the sweeps that come after them, with a real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotuner.core.job import Calibration, Job
from autotuner.core.measurement import Measurement
from autotuner.core.sweep import Budget, Sweep, SweepRequest
from autotuner.core.trial import PastTrial, Trial
from autotuner.core.trial_spec import TrialSpec
from autotuner.costmodel.predict import predict_one
from autotuner.runs.past_trials import CalibrationCache, informed
from autotuner.store.history import HistoryStore
from autotuner.store.sql import Store, memory_store
from tests.builders import sweep_request
from tests.fake_launcher import FakeLauncher, plain_measurement, sweep_worker

FEW = Budget(num_trials=3)


class Clock:
    """An hour passes between two looks at it."""

    def __init__(self) -> None:
        self._hours = 0

    def now(self) -> float:
        self._hours += 1
        return 3600.0 * self._hours

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits {seconds} s here")


class Counted(HistoryStore):
    """A history that counts how often its trials are read."""

    num_read = 0
    num_trials = 0

    def measured(
        self, accelerator: str, stack: str | None = None, *, before: float, after: float = 0.0, limit: int = 1000
    ) -> Sequence[PastTrial]:
        found = super().measured(accelerator, stack, before=before, after=after, limit=limit)
        self.num_read, self.num_trials = self.num_read + 1, self.num_trials + len(found)
        return found


class Team:
    """Sweeps one after the other, whose trials take so many times as long as a typical machine is predicted to."""

    def __init__(self) -> None:
        self.store: Store = memory_store()
        self.clock = Clock()

    def sweep(self, slower: float, request: SweepRequest | None = None) -> tuple[Sweep, list[Trial]]:
        asked = replace(request or sweep_request(), budget=FEW)
        sweep, _ = self.store.create_sweep(asked, now=self.clock.now())

        def slow(spec: TrialSpec) -> Measurement:
            predicted = predict_one(spec.layout, replace(asked.job, calibration=None))
            return plain_measurement(spec, step_time_s=slower * predicted.step_time.total_s)

        sweep_worker(self.store, FakeLauncher(slow), self.clock, owner="one", lease_s=1e9).run_once()
        return self.store.get_sweep(sweep.id), list(self.store.all_trials(sweep.id))


@pytest.fixture
def team() -> Team:
    return Team()


JOB = sweep_request().job


def known(job: Job) -> Calibration:
    assert job.calibration is not None
    return job.calibration


def test_nothing_is_known_without_a_trial(team: Team) -> None:
    assert CalibrationCache(team.store.history).calibrated(JOB) == JOB
    assert CalibrationCache(team.store.history).calibrations() == []


def test_trials_that_ended_tell_how_fast_such_hardware_is(team: Team) -> None:
    team.sweep(1.5)
    said = known(CalibrationCache(team.store.history).calibrated(JOB))
    assert 1.1 < said.factor < 1.6
    assert (said.num_runs, said.num_trials, said.num_sweeps) == (3, 3, 1)


def test_each_trial_that_ends_is_known_to_the_next_question(team: Team) -> None:
    remembered = CalibrationCache(team.store.history)
    team.sweep(1.5)
    assert known(remembered.calibrated(JOB)).num_trials == 3
    team.sweep(1.5)
    assert known(remembered.calibrated(JOB)).num_trials == 6


def test_trials_are_read_once_while_no_other_has_ended(team: Team) -> None:
    team.sweep(1.5)
    history = Counted(team.store._engine, team.store.runs)
    remembered = CalibrationCache(history)
    larger = replace(JOB, workload=replace(JOB.workload, global_batch_size=2 * JOB.workload.global_batch_size))
    for job in (JOB, larger, JOB):
        remembered.calibrated(job)
    remembered.calibrations()
    assert history.num_read == 1


def test_only_trials_that_ended_since_are_read_again(team: Team) -> None:
    team.sweep(1.5)
    history = Counted(team.store._engine, team.store.runs)
    remembered = CalibrationCache(history)
    remembered.calibrated(JOB)
    team.sweep(1.5)
    assert known(remembered.calibrated(JOB)) == known(CalibrationCache(team.store.history).calibrated(JOB))
    assert history.num_trials == 3 + 4  # the last of those before, and three new ones: an hour lies between trials


def test_runs_that_a_caller_sent_count_beside_the_stored_trials(team: Team) -> None:
    team.sweep(1.5)
    sent = replace(JOB, calibration=Calibration(factor=1.5, deviation=0.05, num_runs=2))
    said = known(CalibrationCache(team.store.history).calibrated(sent))
    assert (said.num_runs, said.num_trials) == (5, 3)


def test_a_simulated_cluster_learns_nothing_from_real_ones(team: Team) -> None:
    team.sweep(1.5)
    simulated = replace(JOB, cluster=replace(JOB.cluster, engine="simulated"))
    assert CalibrationCache(team.store.history).calibrated(simulated) == simulated


def test_a_sweep_predicts_with_what_earlier_ones_measured(team: Team) -> None:
    _, first = team.sweep(1.5)
    _, second = team.sweep(1.5)
    typical, informed_s = (
        [one.prediction.step_time.total_s for one in trials if one.layout == second[0].layout] or [0.0]
        for trials in (first, second)
    )
    expected = predict_one(second[0].layout, JOB).step_time.total_s
    assert informed_s[0] > 1.1 * expected
    assert typical[0] in (0.0, pytest.approx(expected))


def test_a_sweep_that_is_to_know_nothing_predicts_as_the_first_did(team: Team) -> None:
    team.sweep(1.5)
    _, trials = team.sweep(1.5, replace(sweep_request(), uses_history=False))
    for trial in trials:
        assert trial.prediction.step_time.total_s == pytest.approx(predict_one(trial.layout, JOB).step_time.total_s)


def test_a_sweep_knows_for_all_of_its_life_what_had_ended_when_it_was_asked_for(team: Team) -> None:
    team.sweep(1.5)
    sweep, _ = team.sweep(1.5)
    before = known(informed(sweep, team.store.history).request.job)
    team.sweep(3.0)
    assert known(informed(sweep, team.store.history).request.job) == before
    assert known(CalibrationCache(team.store.history).informed(sweep).request.job) == before
    assert before.num_trials == 3


def test_each_platform_has_its_calibration(team: Team) -> None:
    sweep, _ = team.sweep(1.5)
    (found,) = CalibrationCache(team.store.history).calibrations()
    assert found.platform.accelerator == sweep.request.job.cluster.accelerator.name
    assert (found.num_trials, found.num_sweeps) == (3, 1)
    assert CalibrationCache(team.store.history).calibrations("h100-sxm") == []


def test_a_sweep_that_nothing_ended_after_knows_what_a_prediction_knows(team: Team) -> None:
    team.sweep(1.5)
    sweep, _ = team.store.create_sweep(sweep_request(), now=team.clock.now())
    remembered = CalibrationCache(team.store.history)
    expected = known(informed(sweep, team.store.history).request.job)
    assert known(remembered.informed(sweep).request.job) == expected == known(remembered.calibrated(JOB))
