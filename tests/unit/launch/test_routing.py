"""Trials go to the engine that their cluster names."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.measurement import Measurement
from autotuner.core.trial import TrialFailure
from autotuner.launch.fake import FakeLauncher
from autotuner.launch.routing import RoutedLauncher
from tests.builders import cpu_cluster
from tests.trials.launching import Watcher, spec

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
