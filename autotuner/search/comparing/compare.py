"""Comparison of runs: slower, not slower, or undecided until there are more of them.

Two bets run while the runs come in. One pays where the candidate lost what must be found, against a candidate that is
equal; the other pays where it lost nothing, against one that lost just what must be found. What a bet has paid is the
ratio of how likely the runs are under both. Of equal candidates at most one in a hundred ever sees the first pay a
hundredfold, however often one looks (Ville's inequality), so that one may look after every run and stop at will.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotuner.core.columns import Floats
from autotuner.core.comparison import Comparison, Decision, RunGroup, SequentialTest
from autotuner.core.errors import InvalidInput
from autotuner.search.comparing.belief import Belief, believe, believe_pairs
from autotuner.search.comparing.bets import decide
from autotuner.search.comparing.sitting import sittings

_INTERVAL = (0.025, 0.975)


def compare(
    reference: Sequence[RunGroup],
    candidate: Sequence[RunGroup],
    test: SequentialTest,
    *,
    same_sitting: bool = False,
) -> Comparison:
    """What the runs so far say of the candidate; may be asked after every run.

    Args:
        reference: What the candidate is held to, a group for each sitting (a night, a gate).
        candidate: What is judged, the same way.
        test: How strictly.
        same_sitting: Both ran by turns: the i-th runs of both make a pair, and what has no partner yet waits.

    Raises:
        InvalidInput: One side has no runs.
    """
    belief = weigh(reference, candidate, same_sitting=same_sitting)
    change, (low, high) = math.expm1(belief.middle()), (math.expm1(end) for end in belief.quantiles(_INTERVAL))
    num_reference, num_candidate = _num_runs(reference), _num_runs(candidate)
    counted = min(num_reference, num_candidate) if same_sitting else num_candidate
    decision = decide(belief, test) if counted >= test.min_runs else Decision.UNDECIDED
    return Comparison(
        decision=decision,
        change=change,
        low=low,
        high=high,
        noise=belief.noise(),
        num_reference=num_reference,
        num_candidate=num_candidate,
        detail=_detail(decision, belief, (low, change, high), (num_candidate, num_reference)),
    )


def weigh(reference: Sequence[RunGroup], candidate: Sequence[RunGroup], *, same_sitting: bool = False) -> Belief:
    """What the runs leave possible of the change; the arguments are those of ``compare``.

    Raises:
        InvalidInput: One side has no runs.
    """
    for name, groups in (("reference", reference), ("candidate", candidate)):
        if not groups:
            raise InvalidInput(name, [], "must have one run or more")
    return _paired(reference, candidate) if same_sitting else _apart(reference, candidate)


def _apart(reference: Sequence[RunGroup], candidate: Sequence[RunGroup]) -> Belief:
    both = sittings([np.log(group.rates) for group in (*reference, *candidate)])
    return believe(both[: len(reference)], both[len(reference) :])


def _paired(reference: Sequence[RunGroup], candidate: Sequence[RunGroup]) -> Belief:
    sides = [np.log([rate for group in groups for rate in group.rates]) for groups in (reference, candidate)]
    num_pairs = min(map(len, sides))
    differences: Floats = sides[1][:num_pairs] - sides[0][:num_pairs]
    return believe_pairs(sittings([differences])[0])


def _num_runs(groups: Sequence[RunGroup]) -> int:
    return sum(len(group.rates) for group in groups)


def _detail(decision: Decision, belief: Belief, change: tuple[float, float, float], num_runs: tuple[int, int]) -> str:
    """``5.1 % slower (95 % interval 4.2 to 6.0 %), by 4 runs beside 10 that scatter by 0.6 %``."""
    low, middle, high = change
    runs = f"{num_runs[0]} {'run' if num_runs[0] == 1 else 'runs'} beside {num_runs[1]}"
    scatter = f"{runs} that scatter by {_percent(belief.noise())}"
    undecided = ", which does not decide it" if decision is Decision.UNDECIDED else ""
    return f"{_signed(middle)} (95 % interval {_interval(low, high)}), by {scatter}{undecided}"


def _interval(low: float, high: float) -> str:
    """The end nearer to no change first; with words where the ends lie on both sides of it."""
    if low < 0 < high:
        return f"{_signed(low)} to {_signed(high)}"
    near, far = sorted((low, high), key=abs)
    return f"{100 * abs(near):.1f} to {_percent(far)}"


def _signed(change: float) -> str:
    return f"{_percent(change)} {'slower' if change < 0 else 'faster'}"


def _percent(share: float) -> str:
    return f"{100 * abs(share):.1f} %"
