"""What a search says about memory."""

from __future__ import annotations

import math

from autotuner.search.sampler.propose import LongShot, MemoryBelief
from autotuner.search.sweeps.instructions import long_shot_in_words, memory_in_words


def test_a_long_shot_says_its_chance_what_it_may_gain_and_what_the_likely_would() -> None:
    shot = LongShot(fit_probability=0.312, expected_gain=0.0314, likely_gain=0.0121)
    assert long_shot_in_words(shot, "best MFU") == (
        "only 31 % likely to fit in memory, and tried since it is expected to raise the best MFU by 3.1 % "
        "all the same; a layout with an even chance by 1.2 % at most"
    )


def test_a_long_shot_beside_which_nothing_likely_is_left_says_so() -> None:
    shot = LongShot(fit_probability=0.312, expected_gain=math.inf, likely_gain=None)
    assert long_shot_in_words(shot, "best MFU") == (
        "only 31 % likely to fit in memory, and tried since no untried layout has an even chance"
    )


def test_a_belief_says_the_factor_its_interval_and_how_many_layouts_are_likely_to_fit() -> None:
    belief = MemoryBelief(factor=1.0623, low=0.951, high=1.174, num_untried=16_700, num_likely=7312)
    assert memory_in_words(belief) == (
        "peaks are now believed to be 1.06 x the predicted ones, 8 of 10 layouts within 0.95 to 1.17 x; "
        "7,312 of 16,700 untried layouts have at least an even chance to fit"
    )
