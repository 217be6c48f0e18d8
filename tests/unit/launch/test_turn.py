from __future__ import annotations

from autotuner.launch.turn import turn
from tests.trials.launching import Watcher


def test_nobody_else_running_it_is_our_turn_at_once() -> None:
    with turn(Watcher(stop_after=0)) as stopped:
        assert stopped is None


def test_a_turn_that_is_over_is_the_next_ones() -> None:
    for _ in range(2):
        with turn(Watcher(stop_after=0)) as stopped:
            assert stopped is None
