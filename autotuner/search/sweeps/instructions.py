"""What a plan has its sweep do next, and what it says about memory where it tries a layout that will hardly fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotuner.core.convergence_gate import GateResult
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.core.sweep import Prospects
from autotuner.core.trial import ScaledTrial, Trial
from autotuner.search.sampler.propose import LongShot, MemoryBelief
from autotuner.search.sweeps.stopping import Finish
from autotuner.search.text.sentences import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrial:
    """Try this layout."""

    number: int
    layout: Layout
    prediction: Prediction
    stored: Trial | None
    """The interrupted trial to try again, or None for a new one."""
    scaled: ScaledTrial | None = None
    """What runs in its place, where trials have fewer ranks than their job."""
    repeats: int | None = None
    """Number of the trial whose layout it runs again, to be compared; None: it is the first of its layout."""
    prospects: Prospects | None = None
    """What the search expected when it chose the layout; None where it did not."""
    note: str = ""
    """What who follows should know of the choice; empty where there is nothing special."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Run a layout again by itself, to be compared."""

    layout: Layout
    repeats: int | None
    """Number of its first trial that was measured; None: it has none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGate:
    """Train what ran as a complete trial beside ``reference``, and compare their losses."""

    trial: Trial
    reference: Layout
    known: GateResult | None = None
    """What the gate of another trial says of this one, so that nothing has to be trained."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing new may begin until something that runs has ended."""


Instruction = RunTrial | RunGate | Wait | Finish


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
