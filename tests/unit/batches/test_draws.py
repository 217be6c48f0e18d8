"""Lengths are drawn by seed and step."""

from __future__ import annotations

import pytest

from autotuner.batches.draws import drawn
from autotuner.core.workload import LengthDistribution

HALVES = LengthDistribution(lengths=(16, 64), weights=(1.0, 3.0))


def test_a_seed_and_a_step_draw_the_same_lengths_in_every_process() -> None:
    assert drawn(HALVES, num_sequences=8, seed=1, step=2) == (16, 64, 64, 64, 64, 64, 64, 64)
    assert drawn(HALVES, num_sequences=8, seed=1, step=3) != drawn(HALVES, num_sequences=8, seed=1, step=2)


def test_lengths_occur_as_often_as_their_weights_say() -> None:
    lengths = drawn(HALVES, num_sequences=10_000, seed=0, step=0)
    assert set(lengths) == {16, 64}
    # four standard deviations of a share of 10,000 draws
    assert lengths.count(64) / len(lengths) == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 10_000) ** 0.5)
