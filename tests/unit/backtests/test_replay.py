from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from autotuner.backtests.replay import PROPOSERS, Proposer, Replay, chance, ours, tpe
from tests.unit.backtests.sheets import EVERY_LAYOUT, LAYOUTS, PREDICTED_S, sheet, with_values

SOME_OUT_OF_MEMORY = with_values(PREDICTED_S, {2: np.nan, 5: np.nan, 11: np.nan})

everyone = pytest.mark.parametrize("propose", PROPOSERS.values(), ids=PROPOSERS)


@everyone
def test_no_layout_is_proposed_twice_and_none_that_is_known(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY)).knowing(4, seed=1)
    proposed = list(propose(replay, 0))
    assert len(set(proposed)) == len(proposed)
    assert set(proposed) <= set(replay.open.tolist())


@pytest.mark.parametrize("propose", [tpe, chance])
def test_the_baselines_come_to_every_layout_in_an_order_of_the_seed(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY))
    assert sorted(propose(replay, 0)) == list(range(len(replay)))
    assert list(propose(replay, 3)) != list(propose(replay, 4))


@everyone
def test_the_same_seed_gives_the_same_order(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY))
    assert list(propose(replay, 3)) == list(propose(replay, 3))


@everyone
def test_the_result_of_a_layout_is_unknown_until_it_was_tried(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY))
    first = list(islice(propose(replay, 0), 4))
    tried = first[:3]
    elsewhere = np.array([replay.step_time_s[x] if x in tried else 1e3 * (x + 1) for x in range(len(replay))])
    assert list(islice(propose(replace(replay, step_time_s=elsewhere), 0), 4)) == first


def test_our_first_proposal_is_the_best_predicted_layout_that_surely_fits() -> None:
    replay = Replay.of(sheet())
    assert replay.predictions.fit_probability.min() > 0.999  # nothing but time decides
    assert next(ours(replay, 0)) == replay.predictions.step_time.total_s.argmin()
    assert replay.predictions.step_time.total_s[replay.layout_of_row] == pytest.approx(PREDICTED_S)  # other row order


def test_tpe_learns_which_layouts_are_fast() -> None:
    x = EVERY_LAYOUT
    degrees = x.tensor_parallel_degree + x.pipeline_parallel_degree + np.log2(x.micro_batch_size)
    options = x.recompute + (x.shard_level + x.sequence_parallel + x.pipeline_schedule) / 2
    replay = Replay.of(sheet(1.0 + degrees + options / 4, x))
    # one layout is best; a random order comes to it in the middle, and TPE's first ten trials are random too
    assert np.mean([len(replay.walk(tpe(replay, seed))) for seed in range(20)]) < 0.6 * len(replay) / 2


REPEATED = LAYOUTS.take(np.array([0, 0, 0, 1, 1, 2]))


def test_a_layout_that_ran_several_times_has_their_median_or_ran_out_if_all_did() -> None:
    replay = Replay.of(sheet(np.array([1.0, 9.0, 2.0, np.nan, 4.0, np.nan]), REPEATED))
    assert len(replay) == 3
    assert replay.step_time_s[replay.layout_of_row].tolist()[:5] == [2.0, 2.0, 2.0, 4.0, 4.0]
    assert [replay.ran_out(layout) for layout in replay.layout_of_row] == [False] * 5 + [True]


def test_known_layouts_are_neither_open_nor_judged_nor_the_best_with_all_of_their_runs() -> None:
    replay = Replay.of(sheet())
    fastest = replay.best
    seed = next(seed for seed in range(100) if fastest in replay.knowing(5, seed).known)
    after = replay.knowing(5, seed)
    assert after.open.size == len(replay) - 5
    assert after.judged_rows.sum() == len(replay) - 5
    assert after.best in after.open
    assert after.step_time_s[after.best] > replay.step_time_s[fastest]
    replay = Replay.of(sheet(np.ones(6), REPEATED))
    for seed in range(5):
        after = replay.knowing(1, seed)
        assert set(after.layout_of_row[~after.judged_rows]) == set(after.known.tolist())
    replay = Replay.of(sheet())
    assert len({tuple(sorted(replay.knowing(3, seed).known)) for seed in range(5)}) > 1


def test_a_walk_ends_with_the_first_layout_within_two_percent_of_the_best_or_with_all() -> None:
    replay = Replay.of(sheet(with_values(np.full(len(LAYOUTS), 2.0), {3: 1.0, 7: 1.019, 9: 1.021, 5: np.nan})))
    order = [int(replay.layout_of_row[row]) for row in (5, 9, 7, 3)]
    assert replay.walk(order) == order[:3]
    replay = Replay.of(sheet())
    others = [layout for layout in replay.open.tolist() if not replay.is_near_best(layout)]
    assert replay.walk(others) == others
