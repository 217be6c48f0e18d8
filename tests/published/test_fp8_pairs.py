"""What fp8 gains at one layout, against published pairs of runs that differ in nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.core.choices import Fp8Recipe
from bench.fp8_pairs import Pair, all_pairs, errors


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """Those of all tables, predicted once."""
    return all_pairs()


@pytest.fixture(scope="module")
def dense(pairs: list[Pair]) -> list[Pair]:
    return [pair for pair in pairs if not pair.has_experts]


@pytest.mark.parametrize(
    ("table", "num_pairs", "median"),
    [
        # half as much again as python -m bench.fp8_pairs prints, 1.6 and 5.2 %
        ("dgxc_benchmarking", 39, 0.03),
        # of one model with 0.8 billion parameters, whose runs in bf16 at this layout differ by 3 %
        ("gh200_alps_megatron", 5, 0.08),
    ],
)
def test_the_ratio_of_step_times_in_fp8_and_bf16_is_predicted(
    dense: list[Pair], table: str, num_pairs: int, median: float
) -> None:
    off = np.abs(errors(pair for pair in dense if pair.table == table))
    assert len(off) == num_pairs
    assert np.median(off) < median


def test_of_all_dense_pairs_the_median_is_within_three_percent(dense: list[Pair]) -> None:
    assert np.median(np.abs(errors(dense))) < 0.03


def test_experts_gain_less_from_fp8_than_the_prediction_says(pairs: list[Pair]) -> None:
    # 5.9 %: what rounding and padding the tokens of each expert takes was not fitted
    assert np.median(np.abs(errors(pair for pair in pairs if pair.has_experts))) < 0.09


def test_recipes_take_longer_in_the_order_in_which_they_were_measured(pairs: list[Pair]) -> None:
    by_recipe = {pair.run.layout.fp8_recipe: pair for pair in pairs if pair.table == "gh200_alps_megatron"}
    order = (Fp8Recipe.DELAYED, Fp8Recipe.TENSORWISE)
    predicted = [by_recipe[recipe].predicted for recipe in order]
    assert predicted == sorted(predicted)
