from __future__ import annotations

import numpy as np
import pytest

from autotuner.backtest.replay import Replay
from tests.unit.backtest.sheets import LAYOUTS, PREDICTED_S, sheet, with_values

REPEATED = LAYOUTS.take(np.array([0, 0, 0, 1, 1, 2]))


def test_a_layout_that_was_run_several_times_has_the_median_of_the_runs_that_ended() -> None:
    replay = Replay.of(sheet(np.array([1.0, 9.0, 2.0, np.nan, 4.0, np.nan]), REPEATED))
    assert len(replay) == 3
    assert replay.step_time_s[replay.layout_of_row].tolist()[:5] == [2.0, 2.0, 2.0, 4.0, 4.0]


def test_a_layout_ran_out_of_memory_if_all_of_its_runs_did() -> None:
    replay = Replay.of(sheet(np.array([1.0, 9.0, 2.0, np.nan, 4.0, np.nan]), REPEATED))
    assert [replay.ran_out(layout) for layout in replay.layout_of_row] == [False] * 5 + [True]


def test_each_row_finds_the_prediction_of_its_own_layout() -> None:
    replay = Replay.of(sheet())
    assert replay.predictions.step_time.total_s[replay.layout_of_row] == pytest.approx(PREDICTED_S)  # other row order


def test_known_layouts_are_neither_open_nor_judged_nor_the_best() -> None:
    replay = Replay.of(sheet())
    fastest = replay.best
    seed = next(seed for seed in range(100) if fastest in replay.knowing(5, seed).known)
    after = replay.knowing(5, seed)
    assert after.open.size == len(replay) - 5
    assert after.judged_rows.sum() == len(replay) - 5
    assert after.best in after.open
    assert after.step_time_s[after.best] > replay.step_time_s[fastest]


def test_all_runs_of_a_known_layout_are_kept_from_judgement() -> None:
    replay = Replay.of(sheet(np.ones(6), REPEATED))
    for seed in range(5):
        after = replay.knowing(1, seed)
        assert set(after.layout_of_row[~after.judged_rows]) == set(after.known.tolist())


def test_another_seed_makes_other_layouts_known() -> None:
    replay = Replay.of(sheet())
    assert len({tuple(sorted(replay.knowing(3, seed).known)) for seed in range(5)}) > 1


def test_a_walk_ends_with_the_first_layout_within_two_percent_of_the_best() -> None:
    replay = Replay.of(sheet(with_values(np.full(len(LAYOUTS), 2.0), {3: 1.0, 7: 1.019, 9: 1.021, 5: np.nan})))
    order = [int(replay.layout_of_row[row]) for row in (5, 9, 7, 3)]
    assert replay.walk(order) == order[:3]


def test_a_walk_that_never_arrives_holds_every_proposal() -> None:
    replay = Replay.of(sheet())
    others = [layout for layout in replay.open.tolist() if not replay.is_near_best(layout)]
    assert replay.walk(others) == others
