"""What a search says about memory: why it tries a layout that will hardly fit, and what it believes after one did not.

The sentences are notes of trials, for people who follow a sweep.
"""

from __future__ import annotations

import math

from autotuner.search.sampler.propose import LongShot, MemoryBelief
from autotuner.search.text.sentences import percent


def long_shot_in_words(shot: LongShot, raised: str) -> str:
    """Why the layout is tried: ``only 31 % likely to fit in memory, and tried since …``.

    Args:
        shot: Of the proposal.
        raised: What a gain raises: ``best MFU``.
    """
    chance = f"only {percent(shot.fit_probability)} likely to fit in memory, and tried since"
    if shot.likely_gain is None:
        return f"{chance} no untried layout has an even chance"
    gain = "" if math.isinf(shot.expected_gain) else f" by {_gain(shot.expected_gain)}"
    likely = f"a layout with an even chance by {_gain(shot.likely_gain)} at most"
    return f"{chance} it is expected to raise the {raised}{gain} all the same; {likely}"


def memory_in_words(belief: MemoryBelief) -> str:
    """What is believed of peaks: ``peaks are now believed to be 1.06 x the predicted ones …``."""
    peaks = f"peaks are now believed to be {belief.factor:.2f} x the predicted ones"
    interval = f"8 of 10 layouts within {belief.low:.2f} to {belief.high:.2f} x"
    left = f"{belief.num_likely:,} of {belief.num_untried:,} untried layouts have at least an even chance to fit"
    return f"{peaks}, {interval}; {left}"


def _gain(share: float) -> str:
    return f"{100 * share:.2g} %"
