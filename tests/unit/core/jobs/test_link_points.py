"""In which order links are measured, so that none is disturbed by another."""

from __future__ import annotations

from itertools import combinations

import pytest

from autotuner.core.jobs.link_points import LinkPoint, link_rounds, num_ends
from autotuner.errors import InvalidInput
from tests.builders import link_point


@pytest.mark.parametrize("ends", range(17))
def test_up_to_16_ends_measure_every_pair_once_in_the_fewest_rounds(ends: int) -> None:
    rounds = link_rounds(ends)
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(ends), 2))
    assert len(rounds) == (0 if ends < 2 else ends - 1 + ends % 2)


@pytest.mark.parametrize("ends", [17, 18, 63, 64, 257, 1024])
def test_more_ends_measure_their_neighbours_and_others_in_15_rounds(ends: int) -> None:
    rounds = link_rounds(ends)
    pairs = [pair for each in rounds for pair in each]
    assert len(rounds) == 15
    assert len(pairs) == len(set(pairs)) > 5 * ends
    assert {(low, low + 1) for low in range(ends - 1)} | {(0, ends - 1)} <= set(pairs)
    assert {end for pair in pairs for end in pair} == set(range(ends))


@pytest.mark.parametrize("ends", [2, 3, 8, 15, 16, 17, 18, 100])
def test_no_end_meets_two_others_in_a_round(ends: int) -> None:
    for pairs in link_rounds(ends):
        met = [end for pair in pairs for end in pair]
        assert len(met) == len(set(met))
        assert all(0 <= low < high < ends for low, high in pairs)


def test_a_link_is_as_wide_as_its_slower_direction() -> None:
    assert link_point(0, 1, forth=2e9, back=1e9).bandwidth_bytes_per_s == 1e9


def test_ends_are_counted_from_0() -> None:
    assert num_ends([link_point(0, 1), link_point(1, 3)]) == 4
    assert num_ends([]) == 0


def test_a_link_that_passes_nothing_is_no_measurement() -> None:
    with pytest.raises(InvalidInput, match="forth_bytes_per_s"):
        LinkPoint(ends=(0, 1), delay_s=0.0, jitter_s=0.0, forth_bytes_per_s=0.0, back_bytes_per_s=1.0)
