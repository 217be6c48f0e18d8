"""How many more runs a comparison takes, as far as the runs so far can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autotuner.core.comparison import Decision, RunGroup, SequentialTest
from autotuner.search.comparing.belief import believe
from autotuner.search.comparing.bets import decide
from autotuner.search.comparing.compare import compare
from autotuner.search.comparing.sitting import Sitting, sittings

_TRIED = (1, 2, 3, 5, 8, 13, 21, 34)
"""Numbers of further runs that are tried, for an answer in milliseconds."""

_SURPRISES = (-2.0, -1.0, 1.0, 2.0)
"""How far the mean of further runs may lie from that of the runs so far, in its deviations, to be thought possible."""

_FEW, _CALMER = 10, 0.25
"""Of fewer runs one that was disturbed says too much of the scatter, which may turn out to be this share of it."""

_BASELINE_SHARE = 4
"""One in so many of the most runs that a candidate may take is what a baseline takes in its first sitting."""

_Z95 = 1.645
"""Normal quantile of 0.95: what a baseline leaves to bad luck."""


def next_runs(
    reference: Sequence[RunGroup],
    candidate: Sequence[RunGroup],
    test: SequentialTest,
    *,
    same_sitting: bool = False,
) -> int:
    """How many more runs of the candidate, and where both run by turns of each, would decide if they are like the last.

    Ask again after every run. 0: it is decided, there were the most runs allowed, or no runs of this sitting can
    decide it, since what is unknown is how far sittings lie apart or where the reference lies.
    """
    counts = [sum(len(group.rates) for group in groups) for groups in (reference, candidate)]
    num_runs = min(counts) if same_sitting else counts[1]
    if num_runs < test.min_runs:
        return test.min_runs - num_runs
    if num_runs >= test.max_runs:
        return 0
    if compare(reference, candidate, test, same_sitting=same_sitting).decision is not Decision.UNDECIDED:
        return 0
    return 1 if same_sitting else _more(reference, candidate, test)


def next_baseline_runs(runs: RunGroup | None, test: SequentialTest) -> int:
    """How many more runs of its first sitting make a baseline beside which a lost ``test.loss`` can be found.

    As many as a candidate of as many runs needs, with a little bad luck. Few runs may hide some of their scatter: the
    deviation of three is less than half the truth once in five times, that of ten less than three quarters. At most a
    quarter of ``max_runs``, since later sittings add theirs.
    """
    if runs is None or len(runs.rates) < test.min_runs:
        return test.min_runs - (len(runs.rates) if runs else 0)
    sitting = sittings([np.log(runs.rates)])[0]
    hidden = 1 + 1 / math.sqrt(sitting.num_runs - 1) if sitting.num_runs > 1 else 1.0
    most = max(test.max_runs // _BASELINE_SHARE, sitting.num_runs)
    enough = (n for n in range(sitting.num_runs, most) if _finds_loss(_of_length(sitting, n, hidden), test))
    return next(enough, most) - sitting.num_runs


def _more(reference: Sequence[RunGroup], candidate: Sequence[RunGroup], test: SequentialTest) -> int:
    """About as many as would decide it, were they like those so far; all that are left where only others might."""
    both = sittings([np.log(group.rates) for group in (*reference, *candidate)])
    before, (*others, last) = both[: len(reference)], both[len(reference) :]
    left = test.max_runs - sum(sitting.num_runs for sitting in (*others, last))

    def decides(num_more: int, surprise: float = 0.0, calm: float = 1.0) -> bool:
        grown = _of_length(last, last.num_runs + num_more, calm)
        moved = surprise * _deviation(last) * math.sqrt(1 / last.num_runs - 1 / grown.num_runs)
        belief = believe(before, [*others, replace(grown, mean=last.mean + moved)])
        return decide(belief, test) is not Decision.UNDECIDED

    enough = next((more for more in (*_TRIED, left) if more <= left and decides(more)), None)
    if enough is not None:
        return enough
    calms = (1.0, _CALMER) if last.num_runs < _FEW else (1.0,)
    return left if any(decides(left, surprise, calm) for surprise in _SURPRISES for calm in calms) else 0


def _finds_loss(baseline: Sitting, test: SequentialTest) -> bool:
    unlucky = _Z95 * _deviation(baseline) * math.sqrt(2 / baseline.num_runs)
    candidate = replace(baseline, mean=baseline.mean + math.log1p(-test.loss) + unlucky)
    return decide(believe([baseline], [candidate]), test) is Decision.SLOWER


def _of_length(sitting: Sitting, num_runs: int, calm: float = 1.0) -> Sitting:
    """A longer sitting that scatters so many times as much."""
    return replace(sitting, num_runs=num_runs, squares=(calm * _deviation(sitting)) ** 2 * (num_runs - 1))


def _deviation(sitting: Sitting) -> float:
    return math.sqrt(sitting.squares / max(sitting.num_runs - 1, 1))
