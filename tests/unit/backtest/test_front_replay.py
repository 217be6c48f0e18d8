from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from autotuner.backtest.front_replay import FRONT_PROPOSERS, FrontProposer, FrontReplay, ours
from autotuner.backtest.replay import Replay
from autotuner.core.objective import Metric
from tests.unit.backtest.sheets import PREDICTED_S, sheet, with_values

METRICS = (Metric.MFU, Metric.SIMPLICITY)

everyone = pytest.mark.parametrize("propose", FRONT_PROPOSERS.values(), ids=FRONT_PROPOSERS)


def replayed() -> FrontReplay:
    some_out_of_memory = with_values(PREDICTED_S, {2: np.nan, 5: np.nan})
    return FrontReplay.of(Replay.of(sheet(some_out_of_memory)), METRICS)


@everyone
def test_no_layout_is_proposed_twice_and_the_same_seed_gives_the_same_order(propose: FrontProposer) -> None:
    front = replayed()
    proposed = list(propose(front, 3))
    assert len(set(proposed)) == len(proposed)
    assert list(propose(front, 3)) == proposed


@everyone
def test_all_layouts_together_dominate_the_whole_hypervolume(propose: FrontProposer) -> None:
    front = replayed()
    shares = front.volume_shares(propose(front, 0), 16)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_layouts_that_ran_out_of_memory_dominate_nothing() -> None:
    front = replayed()
    died = [layout for layout in range(len(front.replay)) if front.replay.ran_out(layout)]
    assert len(died) == 2
    assert front.volume_share(died) == 0.0


def test_where_predictions_are_right_ours_takes_few_trials_more_than_the_front_has_layouts() -> None:
    front = replayed()
    tried = list(islice(ours(front, 0), front.num_on_front + 3))
    assert front.volume_share(tried) > 0.95


def test_nsga_learns_from_the_generations_that_it_was_told_of() -> None:
    front = replayed()
    of_5, of_50 = (list(FRONT_PROPOSERS[name](front, 0)) for name in ("nsga2-of-5", "nsga2"))
    assert of_5[:5] == of_50[:5]
    assert of_5 != of_50
