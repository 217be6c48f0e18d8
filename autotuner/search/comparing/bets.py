"""Bets on what the runs will show: how much each has paid by now says which answer is safe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.comparison import Decision, SequentialTest
from autotuner.search.comparing.belief import Belief

_ON_THE_POINT = 0.8
"""Share of a stake on just the loss that must be found, or on none at all. What is left is spread over other changes:
runs that lie far from both points tell them apart badly."""

_FURTHER = tuple(1.25**step for step in range(1, 17))
"""Those further away, as multiples of that loss in logarithms: of 5 % up to a fifth of the rate, and five times it. So
close to each other that no loss lies far from all of them, however quiet the machine: one that none is near to would
look as much like an odd sitting of equal layouts."""


_NEGLIGIBLE = 25.0
"""Natural logarithms below what a bet is held against at which nothing matters: 1 in 70 thousand million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bets:
    """What both have paid, as logarithms of multiples of their stakes.

    Attributes:
        on_loss: On a loss, against equal layouts.
        on_none: On no loss, against just the loss that must be found.
    """

    on_loss: float
    on_none: float


def place(belief: Belief, test: SequentialTest) -> Bets:
    """What the bets have paid by the runs that the belief knows."""
    point = math.log1p(-test.loss)
    equal, lost = belief.log_likelihoods([0.0, point])
    losses = [math.log1p(-(test.tolerance + test.loss) / 2), *(k * point for k in _FURTHER)]
    gains = [-k * point for k in _FURTHER]
    others = belief.reaching(min(equal, lost) - _NEGLIGIBLE).log_likelihoods([*losses, *gains])
    on_losses, on_gains = others[: len(losses)], others[len(losses) :]
    return Bets(on_loss=_mixed(lost, on_losses) - equal, on_none=_mixed(equal, on_gains) - lost)


def decide(belief: Belief, test: SequentialTest) -> Decision:
    """The side of the tolerance that the change lies on, once the bet on that side has paid enough.

    A bet on a loss multiplies its stake by 1 / ``false_alarms`` in at most that share of equal layouts, however long it
    runs; the other by 1 / (1 - ``power``) in at most that share of those with the loss.
    """
    bets, change = place(belief, test), math.expm1(belief.middle())
    if change < -test.tolerance and bets.on_loss >= -math.log(test.false_alarms):
        return Decision.SLOWER
    if change >= -test.tolerance and bets.on_none >= -math.log1p(-test.power):
        return Decision.NOT_SLOWER
    return Decision.UNDECIDED


def _mixed(point: float, others: Sequence[float]) -> float:
    """The stake on the point and what is spread over the others, after the runs."""
    shared = (1 - _ON_THE_POINT) / len(others)
    paid = [math.log(_ON_THE_POINT) + point, *(math.log(shared) + other for other in others)]
    highest = max(paid)
    return highest + math.log(sum(math.exp(value - highest) for value in paid))
