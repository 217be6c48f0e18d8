from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from autotuner.backtest.proposers import PROPOSERS, Proposer, chance, ours, tpe
from autotuner.backtest.replay import Replay
from tests.unit.backtest.sheets import EVERY_LAYOUT, PREDICTED_S, sheet, with_values

SOME_OUT_OF_MEMORY = with_values(PREDICTED_S, {2: np.nan, 5: np.nan, 11: np.nan})

everyone = pytest.mark.parametrize("propose", PROPOSERS.values(), ids=PROPOSERS)


@everyone
def test_no_layout_is_proposed_twice_and_none_that_is_known(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY)).knowing(4, seed=1)
    proposed = list(propose(replay, 0))
    assert len(set(proposed)) == len(proposed)
    assert set(proposed) <= set(replay.open.tolist())


@pytest.mark.parametrize("propose", [tpe, chance])
def test_the_baselines_come_to_every_layout_in_the_end(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY))
    assert sorted(propose(replay, 0)) == list(range(len(replay)))


@everyone
def test_the_same_seed_gives_the_same_order(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY))
    assert list(propose(replay, 3)) == list(propose(replay, 3))


@pytest.mark.parametrize("propose", [tpe, chance])
def test_another_seed_gives_another_order(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY))
    assert list(propose(replay, 3)) != list(propose(replay, 4))


@everyone
def test_what_a_layout_does_is_unknown_until_it_was_tried(propose: Proposer) -> None:
    replay = Replay.of(sheet(SOME_OUT_OF_MEMORY))
    first = list(islice(propose(replay, 0), 4))
    tried = first[:3]
    elsewhere = np.array([replay.step_time_s[x] if x in tried else 1e3 * (x + 1) for x in range(len(replay))])
    assert list(islice(propose(replace(replay, step_time_s=elsewhere), 0), 4)) == first


def test_our_first_proposal_is_the_best_predicted_layout_that_surely_fits() -> None:
    replay = Replay.of(sheet())
    assert replay.predictions.fit_probability.min() > 0.999  # nothing but time decides
    assert next(ours(replay, 0)) == replay.predictions.step_time.total_s.argmin()


def test_tpe_learns_which_layouts_are_fast() -> None:
    x = EVERY_LAYOUT
    degrees = x.tensor_parallel_degree + x.pipeline_parallel_degree + np.log2(x.micro_batch_size)
    options = x.recompute + (x.shard_level + x.sequence_parallel + x.pipeline_schedule) / 2
    replay = Replay.of(sheet(1.0 + degrees + options / 4, x))
    # one layout is best; a random order comes to it in the middle, and TPE's first ten trials are random too
    assert np.mean([len(replay.walk(tpe(replay, seed))) for seed in range(20)]) < 0.6 * len(replay) / 2
