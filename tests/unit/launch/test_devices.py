from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from subprocess import run

import psutil
import pytest

from autotuner.core.measurement import Measurement
from autotuner.core.trial import TrialFailure
from autotuner.launch.fake import FakeLauncher
from autotuner.launch.ranks import ATTEMPT_ID, end_all
from autotuner.launch.repeating import pooled
from autotuner.launch.routing import RoutedLauncher
from autotuner.launch.this_machine import software_of_this_machine
from tests.builders import breakdown, cpu_cluster, measurement
from tests.trials.launching import Watcher, spec


# ---------------------------------------------------------------- pooling
def test_one_run_stays_as_it_is() -> None:
    assert pooled([measurement()]) == measurement()


def test_the_noise_floor_is_the_relative_distance_of_the_medians() -> None:
    runs = [replace(measurement(), step_time_s=time_s) for time_s in (1.0, 1.1)]
    assert pooled(runs).step_time_s == pytest.approx(1.05)
    assert pooled(runs).noise_floor == pytest.approx(0.1 / 1.05)


def test_rates_follow_the_step_time() -> None:
    run = measurement()
    slower = replace(run, step_time_s=3 * run.step_time_s)
    both = pooled([run, slower])
    assert both.mfu == pytest.approx(run.mfu / 2)
    assert both.hfu == pytest.approx(run.hfu / 2)
    assert both.tokens_per_s == pytest.approx(run.tokens_per_s / 2)
    assert both.model_flop_per_s == pytest.approx(run.model_flop_per_s / 2)


@pytest.mark.parametrize(("times_s", "middle"), [((1.2, 1.0, 1.1), 2), ((1.1, 1.0), 1)])
def test_a_step_went_where_it_went_in_the_run_in_the_middle(times_s: tuple[float, ...], middle: int) -> None:
    runs = [measurement(step_time_s=time_s, breakdown=breakdown(forward_s=time_s)) for time_s in times_s]
    assert pooled(runs).breakdown == runs[middle].breakdown


def test_a_rank_needs_the_most_that_it_ever_held_and_the_worst_disturbance_counts() -> None:
    one = replace(measurement(), peak_bytes=(3, 5), foreign_cpu_share=0.02, num_disturbed=1)
    other = replace(measurement(), peak_bytes=(4, 4), foreign_cpu_share=0.07, num_disturbed=2)
    both = pooled([one, other])
    assert (both.peak_bytes, both.foreign_cpu_share, both.num_disturbed) == ((4, 5), 0.07, 3)


def test_the_interval_is_never_below_what_lies_between_the_runs() -> None:
    one = replace(measurement(), step_time_s=1.0, step_time_interval_s=0.003)
    near, far = (replace(one, step_time_s=time_s, step_time_interval_s=0.004) for time_s in (1.0, 1.2))
    assert pooled([one, near]).step_time_interval_s == pytest.approx(0.0025)  # (3² + 4²)½ / 2
    assert pooled([one, far]).step_time_interval_s == pytest.approx(0.1)


def test_without_intervals_there_is_none() -> None:
    run = replace(measurement(), step_time_interval_s=None)
    assert pooled([run, run]).step_time_interval_s is None


# ---------------------------------------------------------------- processes
@pytest.fixture
def process() -> Iterator[psutil.Process]:
    """A process of the trial ``sleeping``."""
    with subprocess.Popen(["sleep", "60"], env={**os.environ, ATTEMPT_ID: "sleeping"}) as sleeping:
        yield psutil.Process(sleeping.pid)
        sleeping.kill()


def test_processes_that_leave_when_they_are_told_to_are_gone(process: psutil.Process) -> None:
    assert end_all("sleeping", grace_s=5.0) == ()
    assert process.status() == psutil.STATUS_ZOMBIE


def test_a_process_that_outlasts_every_signal_is_given_up_and_named(process: psutil.Process) -> None:
    """As one does that a driver keeps: here it only looks as if it were there still."""
    assert end_all("sleeping", grace_s=0.0, living=lambda attempt_id: [process]) == (process.pid,)


# ---------------------------------------------------------------- software
def test_versions_are_told_as_trials_record_them() -> None:
    facts = software_of_this_machine()
    assert facts["torch"] == version("torch")
    assert set(facts) >= {"host", "python", "kernel"}


def test_nothing_is_imported_to_tell_it() -> None:
    code = (
        "import sys; from autotuner.launch.this_machine import software_of_this_machine; software_of_this_machine();"
        "sys.exit('torch' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- Trials go to the engine that their cluster names
ELSEWHERE = replace(cpu_cluster(), engine="elsewhere")


def routed() -> tuple[RoutedLauncher, FakeLauncher, FakeLauncher]:
    here, elsewhere = FakeLauncher(), FakeLauncher(capacity=4)
    return RoutedLauncher({"local": here, "elsewhere": elsewhere}), here, elsewhere


def test_a_trial_runs_where_its_cluster_says() -> None:
    launcher, here, elsewhere = routed()
    assert isinstance(launcher.run(spec("routed", cluster=ELSEWHERE), Watcher()), Measurement)
    assert (len(here.specs), len(elsewhere.specs)) == (0, 1)


def test_a_trial_of_no_cluster_runs_here() -> None:
    launcher, here, elsewhere = routed()
    launcher.run(spec("routed"), Watcher())
    assert (len(here.specs), len(elsewhere.specs)) == (1, 0)


def test_the_engines_launcher_says_how_much_room_there_is() -> None:
    launcher, _, _ = routed()
    assert launcher.capacity(ELSEWHERE) == 4
    assert launcher.capacity(cpu_cluster()) == 1


def test_an_engine_that_nobody_registered_is_refused_with_those_there_are() -> None:
    launcher, _, _ = routed()
    nowhere = replace(cpu_cluster(), engine="nowhere")
    assert launcher.refuses(nowhere) == "no engine nowhere is registered where trials run (there are: local, elsewhere)"
    outcome = launcher.run(spec("routed", cluster=nowhere), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert "no engine nowhere" in outcome.message
    assert launcher.capacity(nowhere) == 1
