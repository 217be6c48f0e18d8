from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.cluster import Cluster
from autotuner.core.measurement import FinishedRun, LinkEvent, LinkEventKind, Measurement
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSettings, TrialSpec
from autotuner.launch.contract import TrialWatcher
from autotuner.launch.fake import FakeLauncher, plain_measurement
from autotuner.launch.repeating import RepeatingLauncher
from tests.builders import cpu_cluster, failure, tiny_model
from tests.trials.launching import SHORT, Watcher, spec

Behaviour = Callable[[TrialSpec], Measurement | TrialFailure]


def disturbed_by(*shares: float) -> Behaviour:
    """Each run in turn with so much of the machine used by others; a run is as long as it was disturbed."""
    rest = iter(shares)

    def behave(trial: TrialSpec) -> Measurement:
        share = next(rest)
        return replace(plain_measurement(trial, step_time_s=1.0 + share), foreign_cpu_share=share)

    return behave


def in_turn(outcomes: Iterable[float | TrialFailure]) -> Behaviour:
    """Each run in turn takes so long, or fails so."""
    rest = iter(outcomes)

    def behave(trial: TrialSpec) -> Measurement | TrialFailure:
        outcome = next(rest)
        return outcome if isinstance(outcome, TrialFailure) else plain_measurement(trial, step_time_s=outcome)

    return behave


def measured(launcher: FakeLauncher, settings: TrialSettings, watcher: Watcher | None = None) -> Measurement:
    outcome = RepeatingLauncher(launcher).run(spec("repeated", settings), watcher or Watcher())
    assert isinstance(outcome, Measurement), outcome
    return outcome


def test_a_trial_that_nobody_disturbs_runs_once_and_stays_as_it_is() -> None:
    launcher = FakeLauncher(disturbed_by(0.1))
    outcome = measured(launcher, SHORT)
    assert launcher.specs == [spec("repeated", SHORT)]
    assert (outcome.num_disturbed, outcome.noise_floor, outcome.extrapolated_from) == (0, None, ())


def test_a_disturbed_trial_is_run_again_until_it_is_not() -> None:
    launcher = FakeLauncher(disturbed_by(0.5, 0.3, 0.05, 0.0))
    outcome = measured(launcher, replace(SHORT, max_repeats=5))
    assert len(launcher.specs) == 3
    assert (outcome.foreign_cpu_share, outcome.num_disturbed) == (0.05, 2)


def test_of_runs_that_were_all_disturbed_the_least_disturbed_counts() -> None:
    outcome = measured(FakeLauncher(disturbed_by(0.5, 0.2, 0.4)), replace(SHORT, max_repeats=2))
    assert (outcome.foreign_cpu_share, outcome.step_time_s, outcome.num_disturbed) == (0.2, 1.2, 2)


def test_equal_runs_tell_the_noise_floor() -> None:
    outcome = measured(FakeLauncher(in_turn([1.0, 1.1])), replace(SHORT, num_runs=2))
    assert outcome.noise_floor == pytest.approx(0.1 / 1.05)
    assert outcome.num_steps == 4


def test_runs_that_finished_before_the_service_died_are_not_repeated() -> None:
    watcher, settings = Watcher(), replace(SHORT, num_runs=3)
    measured(FakeLauncher(in_turn([1.0, 1.1, failure(FailureKind.CRASH)])), settings, watcher)
    assert [run.number for run in watcher.runs] == [0, 1]
    launcher, again = FakeLauncher(in_turn([1.2])), Watcher()
    outcome = RepeatingLauncher(launcher).run(replace(spec("repeated", settings), runs=tuple(watcher.runs)), again)
    assert isinstance(outcome, Measurement)
    assert [(one.run, one.runs) for one in launcher.specs] == [(2, ())]
    assert outcome.noise_floor == pytest.approx(0.2 / 1.1)
    kept = "was measured before the trial was interrupted, and is kept"
    assert [note for note in again.notes if kept in note] == [f"run 1 {kept}", f"run 2 {kept}"]


def test_the_time_of_kept_runs_counts_towards_the_limit_of_the_trial() -> None:
    settings = replace(SHORT, num_runs=2)
    run = FinishedRun(number=0, seconds=0.75 * SHORT.timeout_s, measurement=plain_measurement(spec("repeated")))
    launcher = FakeLauncher()
    RepeatingLauncher(launcher).run(replace(spec("repeated", settings), runs=(run,)), Watcher())
    assert launcher.specs == []  # another run as long would not fit


def test_a_second_run_that_dies_leaves_the_first_ones_figures() -> None:
    launcher = FakeLauncher(in_turn([1.0, failure(FailureKind.CRASH)]))
    outcome = measured(launcher, replace(SHORT, num_runs=3))
    assert (len(launcher.specs), outcome.step_time_s, outcome.noise_floor) == (2, 1.0, None)


def test_a_trial_that_dies_is_not_run_again() -> None:
    launcher = FakeLauncher(in_turn([failure(FailureKind.OOM), 1.0]))
    settings = replace(SHORT, num_runs=2, max_repeats=2)
    assert RepeatingLauncher(launcher).run(spec("dead", settings), Watcher()) == failure(FailureKind.OOM)
    assert len(launcher.specs) == 1


def test_the_watcher_hears_the_steps_of_the_first_run_alone() -> None:
    watcher = Watcher()
    measured(FakeLauncher(in_turn([1.0, 1.1])), replace(SHORT, num_runs=2), watcher)
    assert [step.step for step in watcher.steps] == [0, 1, 2]


def test_the_watcher_hears_the_events_of_the_first_runs_links_alone() -> None:
    watcher, event = Watcher(), LinkEvent(step=1, kind=LinkEventKind.LINK_SLOW, stages=(0, 1), delay_s=0.06)
    launcher = FakeLauncher(lambda trial: replace(plain_measurement(trial), link_events=(event,)))
    outcome = measured(launcher, replace(SHORT, num_runs=2), watcher)
    assert (watcher.link_events, outcome.link_events) == ([event], (event,))


@pytest.mark.parametrize("changes", [{"num_runs": 2}, {"proxy_layers_per_stage": (1, 2)}])
def test_a_watcher_may_stop_any_of_the_runs(changes: dict[str, Any]) -> None:
    class Second(FakeLauncher):
        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            del watcher
            self.specs.append(spec)
            return plain_measurement(spec) if len(self.specs) == 1 else Stopped(reason="shutdown")

    outcome = RepeatingLauncher(Second()).run(spec("stopped", replace(SHORT, **changes)), Watcher())
    assert outcome == Stopped(reason="shutdown")


def test_a_run_again_has_the_time_that_the_first_left() -> None:
    launcher = FakeLauncher(in_turn([1.0, 1.0]))
    measured(launcher, replace(SHORT, num_runs=2))
    first, second = (trial.settings.timeout_s for trial in launcher.specs)
    assert second < first == SHORT.timeout_s


def test_a_trial_at_proxy_depth_runs_two_smaller_models_and_says_so() -> None:
    launcher, watcher = FakeLauncher(), Watcher()
    settings = replace(SHORT, proxy_layers_per_stage=(1, 2))
    outcome = RepeatingLauncher(launcher).run(spec("proxy", settings, model=tiny_model(num_layers=8)), watcher)
    assert isinstance(outcome, Measurement)
    assert [trial.model.num_layers for trial in launcher.specs] == [1, 2]
    assert outcome.extrapolated_from == (1, 2)
    assert watcher.steps == []  # they are not the steps of the model that was asked for


def test_a_proxy_that_dies_says_with_how_many_layers() -> None:
    launcher = FakeLauncher(in_turn([1.0, failure(FailureKind.OOM)]))
    settings = replace(SHORT, proxy_layers_per_stage=(1, 2))
    outcome = RepeatingLauncher(launcher).run(spec("proxy", settings), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.OOM
    assert outcome.message.startswith("with 2 of 4 layers: ")


def test_what_the_launcher_refuses_is_refused() -> None:
    class Elsewhere(FakeLauncher):
        def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
            del trainer
            return f"no {cluster.accelerator.name} here"

    assert RepeatingLauncher(Elsewhere()).refuses(cpu_cluster(2)) == "no cpu here"


def test_a_person_who_waits_is_told_why_a_trial_is_run_again() -> None:
    watcher = Watcher()
    measured(FakeLauncher(disturbed_by(0.64, 0.8, 0.05)), replace(SHORT, max_repeats=3), watcher)
    assert watcher.notes == [
        "is measured again, because other programs used 64 % of the CPU time (repeat 1 of at most 3)",
        "is measured again, because in the quietest run so far other programs used 64 % of the CPU time "
        "(repeat 2 of at most 3)",
    ]


def test_a_trial_on_gpus_is_not_disturbed_by_those_who_use_the_cores_beside_it() -> None:
    launcher = FakeLauncher(disturbed_by(0.5))
    RepeatingLauncher(launcher).run(spec("gpus", device="cuda"), Watcher())
    assert len(launcher.specs) == 1


def test_a_person_who_waits_is_told_of_runs_for_the_noise_floor_and_of_proxies() -> None:
    watcher = Watcher()
    measured(FakeLauncher(), replace(SHORT, num_runs=2, proxy_layers_per_stage=(1, 2)), watcher)
    again = "run 2 of 2, to see how much repeats differ"
    first, second = (f"runs {num_layers} of 4 layers, to extrapolate from" for num_layers in (1, 2))
    assert watcher.notes == [first, again, second, again]
