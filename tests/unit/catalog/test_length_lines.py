"""Lengths are read as people write them down, and written so that they read back alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.catalog.length_lines import read_lengths, written_lengths
from autotuner.core.errors import InvalidInput
from autotuner.core.workload import LengthDistribution
from tests.unit.batches.samsung import wikipedia


def test_counted_lengths_of_a_file_become_a_histogram() -> None:
    assert read_lengths("512\n96\n512\n") == LengthDistribution.of([96, 512, 512])


def test_a_histogram_spreads_what_lies_in_a_range() -> None:
    said = read_lengths("1-4:6, 4:0.5  # of a corpus\n8")
    assert said == LengthDistribution(lengths=(1, 2, 3, 4, 8), weights=(1.5, 1.5, 1.5, 2.0, 1.0))


def test_json_says_lengths_and_weights() -> None:
    assert read_lengths('{"lengths": [16, 64], "weights": [1, 3]}').weights == (1, 3)


def test_ranges_without_a_weight_hold_each_length_once() -> None:
    assert read_lengths("2-4") == LengthDistribution.of([2, 3, 4])


@given(st.dictionaries(st.integers(1, 50), st.floats(1e-3, 1e3), min_size=1))
def test_what_is_written_reads_back(weights: dict[int, float]) -> None:
    rising = sorted(weights)
    lengths = LengthDistribution(lengths=tuple(rising), weights=tuple(weights[length] for length in rising))
    assert read_lengths(written_lengths(lengths)) == lengths


def test_lengths_one_after_the_other_are_written_as_one_range() -> None:
    assert written_lengths(LengthDistribution.of([2, 3, 4, 9, 9])) == "2-4:3, 9:2"
    assert len(written_lengths(wikipedia())) < 80


@pytest.mark.parametrize("text", ["", "# nothing", "many", "0", "4-2", "16:much", "16:-1", "{", '{"lengths": [2]}'])
def test_what_says_no_lengths_is_refused_with_its_words(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_lengths(text)
