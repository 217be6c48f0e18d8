from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.launch.local import LocalLauncher
from autotuner.launch.turn import lock_file, turn
from tests.trials.launching import Watcher, left_over, spec


@pytest.fixture
def somebody_else() -> Iterator[None]:
    """Another launcher whose trial runs."""
    with lock_file().open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_nobody_else_running_it_is_our_turn_at_once() -> None:
    with turn(Watcher(stop_after=0)) as stopped:
        assert stopped is None


@pytest.mark.usefixtures("somebody_else")
def test_while_another_trial_runs_a_launcher_starts_nothing_and_still_hears_a_stop(tmp_path: Path) -> None:
    watcher = Watcher(stop_after=0)
    assert LocalLauncher(tmp_path).run(spec("waiting"), watcher) == watcher.stop_requested()
    assert left_over("waiting") == []


def test_a_turn_that_is_over_is_the_next_ones() -> None:
    for _ in range(2):
        with turn(Watcher(stop_after=0)) as stopped:
            assert stopped is None
