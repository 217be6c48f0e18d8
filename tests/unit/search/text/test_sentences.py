from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.layouts.choice import ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.search.text.sentences import (
    change_in_words,
    expected_mfu,
    expected_seconds,
    fit_in_words,
    percent,
)


def test_a_change_names_both_values_of_every_field_that_differs() -> None:
    before = Layout(tensor_parallel_degree=4, data_parallel_replicate_degree=8, sequence_parallel=True)
    after = replace(before, tensor_parallel_degree=2, data_parallel_replicate_degree=16, sequence_parallel=False)
    assert change_in_words(before, after) == "tensor 4 → 2, replicate 8 → 16, sequence parallel on → off"


def test_replicas_that_are_only_sharded_otherwise_are_said_by_their_sharding() -> None:
    before = Layout(data_parallel_replicate_degree=8)
    after = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.OPTIMIZER)
    assert change_in_words(before, after) == "sharding none → optimizer"


def test_a_prediction_is_said_with_the_half_width_of_its_interval() -> None:
    assert expected_seconds(1.234, 0.11) == "1.23 s ± 11 %"
    assert expected_seconds(1.234, None) == "1.23 s"
    assert expected_mfu(0.41, 0.11) == "41.0 ± 4.5 %"
    assert expected_mfu(0.41, None) == "41.0 %"


def test_an_interval_whose_sides_differ_much_is_given_by_its_ends_and_no_mfu_is_above_one() -> None:
    assert expected_mfu(0.3, 0.5) == "30.0 %, 20 to 45 %"
    assert expected_mfu(0.612, 1.02) == "61.2 %, 30 to 100 %"


@pytest.mark.parametrize(
    ("fits", "probability", "words"),
    [
        (True, 0.97, "fits, 97 % sure"),
        (False, 0.2, "does not fit, 80 % sure"),
        (True, 0.9999, "fits, >99 % sure"),
        (True, None, "fits"),
        (False, None, "does not fit"),
    ],
)
def test_whether_a_layout_fits_is_said_with_how_sure_that_is(fits: bool, probability: float | None, words: str) -> None:
    assert fit_in_words(fits, probability) == words


def test_a_share_that_is_there_is_never_said_to_be_nothing() -> None:
    assert [percent(share) for share in (0.0, 0.001, 0.006, 0.114)] == ["0 %", "<1 %", "1 %", "11 %"]
