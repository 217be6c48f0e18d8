from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.layouts.choice import ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.loss_gate import GateOutcome
from autotuner.search.text.sentences import (
    change_in_words,
    expected_mfu,
    expected_rate,
    expected_seconds,
    fit_in_words,
    gate_in_words,
    likely,
    listed,
    percent,
    ranges,
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
    assert expected_seconds(97.5, 1.96) == "97.5 s, 32.9 s to 289 s"
    assert expected_rate(104e3, 1.5) == "104 ktoken/s, 41.6 ktoken/s to 260 ktoken/s"
    assert expected_mfu(0.41, 0.11) == "41.0 ± 4.5 %"
    assert expected_mfu(0.41, None) == "41.0 %"
    assert expected_rate(104_000, 0.11) == "104 ktoken/s ± 11 %"
    assert expected_rate(104_000, None) == "104 ktoken/s"


def test_an_interval_whose_sides_differ_much_is_given_by_its_ends_and_no_mfu_is_above_that_of_its_peak() -> None:
    assert expected_mfu(0.3, 0.5) == "30.0 %, 20 to 45 %"
    assert expected_mfu(0.612, 1.02) == "61.2 %, 30 to 100 %"
    assert expected_mfu(0.8, 1.0, 0.4) == "80.0 %, 40 to 160 %"
    assert expected_mfu(0.8, 1.5, 0.4) == "80.0 %, 32 to 200 %"


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


@pytest.mark.parametrize(("numbers", "text"), [((1, 2, 3, 5), "1–3, 5"), ((1, 3), "1, 3"), ((4,), "4"), ((), "")])
def test_neighbouring_ranks_are_drawn_together(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


def test_what_is_all_but_certain_is_not_said_to_be_certain() -> None:
    assert [likely(p) for p in (0.001, 0.5, 0.996, 1.0)] == ["<1 %", "50 %", ">99 %", "100 %"]


def test_every_outcome_of_a_loss_gate_has_words() -> None:
    assert [gate_in_words(outcome) for outcome in GateOutcome] == [
        "loss gate passed",
        "loss gate failed",
        "loss not gated",
    ]


def test_words_are_listed_as_sentences_do() -> None:
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
