"""A distribution of lengths is counted, checked and asked for moments and shares."""

from __future__ import annotations

import pytest

from autotuner.core.jobs.lengths import LengthDistribution
from autotuner.errors import InvalidInput


def test_counted_sequences_become_a_histogram() -> None:
    assert LengthDistribution.of([64, 16, 64]) == LengthDistribution(lengths=(16, 64), weights=(1.0, 2.0))


def test_moments_are_means_of_powers() -> None:
    lengths = LengthDistribution.of([16, 64, 64])
    assert (lengths.mean, lengths.moment(2)) == ((16 + 64 + 64) / 3, (16**2 + 64**2 + 64**2) / 3)


def test_a_share_of_all_sequences_is_no_longer_than_its_length() -> None:
    lengths = LengthDistribution.of([16, 64, 64, 64])
    assert lengths.at_each([0.0, 0.24, 0.25, 0.99, 1.0]) == (16, 16, 64, 64, 64)
    assert lengths.at(0.24) == 16


@pytest.mark.parametrize(
    ("lengths", "weights"),
    [((), ()), ((0, 1), (1.0, 1.0)), ((2, 1), (1.0, 1.0)), ((1, 2), (1.0,)), ((1,), (0.0,)), ((1,), (float("inf"),))],
)
def test_what_is_no_distribution_is_refused(lengths: tuple[int, ...], weights: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput):
        LengthDistribution(lengths=lengths, weights=weights)
