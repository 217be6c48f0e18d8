"""A sequential test whether runs of one layout are slower than those of another; it asks for runs until it knows.

Two bets run while the runs come in. One pays where the candidate lost what must be found, against a candidate that is
equal; the other pays where it lost nothing, against one that lost just what must be found. What a bet has paid is the
ratio of how likely the runs are under both. Of equal candidates at most one in a hundred ever sees the first pay a
hundredfold, however often one looks (Ville's inequality), so that one may look after every run and stop at will.

The logarithm of a rate is normal around the rate of its session, and that around the rate of its layout. How far runs
scatter in a session is unknown, and so is how far sessions lie apart: both are summed over, the first with no opinion
(its logarithm is uniform), the second with the opinion of ``_BETWEEN``, which several sessions of the reference
overrule and without which one session could never be compared with another. The candidate may scatter more or less
than its reference did: a machine is not as quiet every day, and of three runs two may have been disturbed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial

import numpy as np

from autotuner.core.columns import Floats
from autotuner.core.comparison import Comparison, Decision, RunGroup, SequentialTest
from autotuner.core.errors import InvalidInput

_FAR = 4.0
"""Deviations from the median of its session beyond which a run counts as lying there: of normal runs 1 in 16,000."""

_RUNS_PER_OUTLIER = 5
"""Number of runs among which one outlier is pulled in. If more lie off, the machine is like that, and they count as
noise; and of three runs that disagree nobody can say which are the outliers."""

_MAD = 1.4826
"""Standard deviation of normal values by their median absolute deviation: 1 / the normal quantile of 0.75."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """Summary of the runs of one layout in one session: their number, mean and squared deviations."""

    num_runs: int
    """Number of runs."""
    mean: float
    """Their mean logarithm."""
    squares: float
    """Squared distances from it, summed."""


def sittings(groups: Sequence[Floats]) -> tuple[Sitting, ...]:
    """Return a summary of each session (group of runs), given the logarithms of the runs' throughput.

    A few outliers in a session are moved towards its median. The distance that counts as an outlier is computed from
    all sessions together.
    """
    scale = _robust_deviation(groups)
    found = []
    for logs in (_pulled_in(group, _FAR * scale) for group in groups):
        mean = float(logs.mean())
        found.append(Sitting(num_runs=len(logs), mean=mean, squares=float(((logs - mean) ** 2).sum())))
    return tuple(found)


def _pulled_in(logs: Floats, distance: float) -> Floats:
    """The runs, with the few that lie further from the median than this put at that distance."""
    median = float(np.median(logs))
    pulled: Floats = np.clip(logs, median - distance, median + distance)
    num_far = int((pulled != logs).sum())
    return pulled if num_far <= len(logs) // _RUNS_PER_OUTLIER else logs


def _robust_deviation(groups: Sequence[Floats]) -> float:
    """Standard deviation from run to run, by the median distance from the medians.

    Of an odd number of runs one is the median itself, whose distance of 0 says nothing; the median of an even number
    lies between two runs, nearer to them than their mean is known.
    """
    every = []
    for logs in groups:
        if (num_runs := len(logs)) > 1:
            distances = np.sort(np.abs(logs - np.median(logs)))
            every.append(distances[1:] if num_runs % 2 else distances * np.sqrt(num_runs / (num_runs - 1)))
    return _MAD * float(np.median(np.concatenate(every))) if every else 0.0


# ---------------------------------------------------------------- how likely the runs are under each change
_WITHIN: Floats = np.geomspace(0.0005, 0.5, 40)
"""Standard deviations from run to run in a session that are considered. No machine repeats a run closer than the first
(docs/explanation/comparing-runs.md), and runs that are all equal, as a fake's are, count as apart so far."""

_BETWEEN, _WORTH = 0.003, 4.0
"""Standard deviation from session to session that is assumed, and how many sessions that opinion is worth: the usual
prior of a variance, scaled inverse chi-squared. Measured: docs/explanation/comparing-runs.md."""

_BETWEENS: Floats = np.geomspace(0.001, 0.1, 12)
"""Those that are considered."""

_RATIOS: Floats = np.array([1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8])
"""Possible ratios of the candidate's scatter to the reference's."""

_RATIO_WEIGHTS: Floats = np.array([1, 2, 4, 8, 4, 2, 1])
"""Prior weights of the ratios, up to a factor."""

_POINTS, _NO_WEIGHT = 401, 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The likelihood of each possible change of the throughput from reference to candidate, given their runs.

    It is a mixture of normal distributions of the log change. Each part of the mixture assumes one combination of
    standard deviations: from run to run, from session to session, and their ratio between the two layouts.
    """

    log_weights: Floats
    """Log weights of each pair given the runs, whatever the change; not normalised."""
    centres: Floats
    """Changes with the greatest likelihood of each pair."""
    deviations: Floats
    """Widths of each pair's likelihood."""
    within: Floats
    """Deviation from run to run of each."""

    def log_likelihoods(self, changes: Sequence[float]) -> list[float]:
        """Return the log likelihood of the runs for each given change of the log rate, up to one common constant."""
        z = (np.array(changes)[:, None] - self.centres) / self.deviations
        logs = self.log_weights - np.log(self.deviations) - z**2 / 2
        highest = logs.max(axis=1)
        return [float(value) for value in highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1))]

    def reaching(self, log_likelihood: float) -> Belief:
        """Return the mixture without the parts whose log likelihood stays below the given value at every change."""
        kept = self.log_weights - np.log(self.deviations) > log_likelihood
        return Belief(**{f.name: getattr(self, f.name)[kept] for f in fields(self)})

    def noise(self) -> float:
        """Return the likely relative standard deviation from run to run of the candidate."""
        return math.exp(float(self._weights() @ np.log(self.within)))

    def middle(self) -> float:
        """Return the mean of the log change of the rate, given the runs."""
        return float(self._weights() @ self.centres)

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return quantiles of the log change of the rate, given the runs.

        Args:
            shares: Probabilities, 0..1. Each answer is the change below which the true change lies with that
                probability, if all changes were equally likely before the runs.
        """
        weights = self._weights()
        kept = weights > _NO_WEIGHT
        weights, centres, deviations = weights[kept], self.centres[kept], self.deviations[kept]
        middle = float(weights @ centres)
        extent = math.sqrt(float(weights @ (deviations**2 + (centres - middle) ** 2)))
        grid = middle + extent * np.linspace(-8, 8, _POINTS)
        z = (grid[:, None] - centres) / deviations
        below = np.cumsum(np.exp(-(z**2) / 2) @ (weights / deviations))
        return [float(value) for value in np.interp(shares, below / below[-1], grid)]

    def _weights(self) -> Floats:
        weights: Floats = np.exp(self.log_weights - self.log_weights.max())
        weights /= weights.sum()
        return weights


def believe(reference: Sequence[Sitting], candidate: Sequence[Sitting]) -> Belief:
    """Return what runs of two layouts in separate sessions say about the change of the throughput between the layouts.

    Args:
        reference: Sessions of the layout that is compared with.
        candidate: Sessions of the layout that is judged.
    """
    within, between, ratio, log_prior = _considered()
    mean, variance, log_fit = _level(reference, within, between)
    candidates_mean, candidates_variance, candidates_log_fit = _level(candidate, ratio * within, between)
    log_scatter = _log_scatter(reference, within) + _log_scatter(candidate, ratio * within)
    return Belief(
        log_weights=log_prior + log_scatter + log_fit + candidates_log_fit,
        centres=candidates_mean - mean,
        deviations=np.sqrt(candidates_variance + variance),
        within=ratio * within,
    )


def believe_pairs(differences: Sitting) -> Belief:
    """Return what pairs of runs say about the change of throughput, if both layouts ran in turn in one session.

    Effects of the session on both layouts cancel out in the differences. Here the deviation itself counts as uniform,
    not its logarithm. Without the scatter of other sessions, three pairs that lie close by chance would be an alarm too
    often: 1.3 of 100 equal layouts at a noise of 5 %, where this leaves 0.7.

    Args:
        differences: Differences of the log throughput of each pair, candidate less reference.
    """
    apart = math.sqrt(2) * _WITHIN
    return Belief(
        log_weights=_log_scatter((differences,), apart) + np.log(apart),
        centres=np.full_like(apart, differences.mean),
        deviations=apart / math.sqrt(differences.num_runs),
        within=_WITHIN,
    )


def _level(sittings: Sequence[Sitting], within: Floats, between: Floats) -> tuple[Floats, Floats, Floats]:
    """The rate of one layout by the means of its sessions, for each pair of deviations.

    Its mean, weighted by how well each session is known; the variance of that; and the logarithm of how likely the
    sessions lie as far apart as they do.
    """
    means = np.array([sitting.mean for sitting in sittings])[:, None]
    num_runs = np.array([sitting.num_runs for sitting in sittings])[:, None]
    precisions = 1 / (between**2 + within**2 / num_runs)
    total = precisions.sum(axis=0)
    mean = (precisions * means).sum(axis=0) / total
    misfit = (precisions * (means - mean) ** 2).sum(axis=0)
    return mean, 1 / total, (np.log(precisions).sum(axis=0) - np.log(total) - misfit) / 2


def _log_scatter(sittings: Sequence[Sitting], within: Floats) -> Floats:
    """Return how likely runs lie as far from the means of their sessions as they do."""
    freedom = sum(sitting.num_runs - 1 for sitting in sittings)
    squares = sum(sitting.squares for sitting in sittings)
    fit: Floats = -freedom * np.log(within) - squares / (2 * within**2)
    return fit


@lru_cache(maxsize=1)
def _considered() -> tuple[Floats, Floats, Floats, Floats]:
    """Every combination of deviations and ratio, with the logarithm of how likely it is before the runs."""
    within, between, ratio = (grid.ravel() for grid in np.meshgrid(_WITHIN, _BETWEENS, _RATIOS))
    log_ratio: Floats = np.log(np.resize(_RATIO_WEIGHTS, len(within)))
    log_between = -_WORTH * np.log(between) - _WORTH * _BETWEEN**2 / (2 * between**2)
    return within, between, ratio, log_ratio + log_between


# ---------------------------------------------------------------- bets on what the runs will show
_ON_THE_POINT = 0.8
"""Share of a stake on just the loss that must be found, or on none at all. What is left is spread over other changes:
runs that lie far from both points tell them apart badly."""

_FURTHER = tuple(1.25**step for step in range(1, 17))
"""Those further away, as multiples of that loss in logarithms: of 5 % up to a fifth of the rate, and five times it. So
close to each other that no loss lies far from all of them, however quiet the machine: one that none is near to would
look as much like an odd session of equal layouts."""


_NEGLIGIBLE = 25.0
"""Natural logarithms below what a bet is held against at which nothing matters: 1 in 70 thousand million."""


def _paid(belief: Belief, test: SequentialTest) -> tuple[float, float]:
    """Return what two bets have paid by the runs that the belief knows, as logarithms of multiples of their stakes.

    That on a loss, against equal layouts; and that on no loss, against just the loss that must be found.
    """
    point = math.log1p(-test.loss)
    equal, lost = belief.log_likelihoods([0.0, point])
    losses = [math.log1p(-(test.tolerance + test.loss) / 2), *(k * point for k in _FURTHER)]
    gains = [-k * point for k in _FURTHER]
    others = belief.reaching(min(equal, lost) - _NEGLIGIBLE).log_likelihoods([*losses, *gains])
    on_losses, on_gains = others[: len(losses)], others[len(losses) :]
    return _mixed(lost, on_losses) - equal, _mixed(equal, on_gains) - lost


def decide(belief: Belief, test: SequentialTest) -> Decision:
    """Return whether the candidate is slower than the tolerance allows, is not slower, or is not decided yet.

    Two bets are tested (see the module): that the candidate lost ``test.loss``, and that it lost nothing. The bet on a
    loss multiplies its stake by 1 / ``false_alarms`` in at most that share of equal layouts, however long it runs; the
    bet on no loss multiplies its stake by 1 / (1 - ``power``) in at most that share of layouts with the loss.

    Args:
        belief: Likelihood of each change of throughput, given the runs.
        test: Tolerance and error probabilities.
    """
    (on_loss, on_none), change = _paid(belief, test), math.expm1(belief.middle())
    if change < -test.tolerance and on_loss >= -math.log(test.false_alarms):
        return Decision.SLOWER
    if change >= -test.tolerance and on_none >= -math.log1p(-test.power):
        return Decision.NOT_SLOWER
    return Decision.UNDECIDED


def _mixed(point: float, others: Sequence[float]) -> float:
    """The stake on the point and what is spread over the others, after the runs."""
    shared = (1 - _ON_THE_POINT) / len(others)
    paid = [math.log(_ON_THE_POINT) + point, *(math.log(shared) + other for other in others)]
    highest = max(paid)
    return highest + math.log(sum(math.exp(value - highest) for value in paid))


# ---------------------------------------------------------------- the comparison
_INTERVAL = (0.025, 0.975)


def compare(
    reference: Sequence[RunGroup], candidate: Sequence[RunGroup], test: SequentialTest, *, same_sitting: bool = False
) -> Comparison:
    """Compare the runs of a candidate with those of a reference.

    The test stays valid if it is repeated after every run.

    Args:
        reference: Runs of the reference, a group for each session (a night, a gate).
        candidate: Runs of the candidate, grouped in the same way.
        test: Tolerance, error probabilities and numbers of runs of the test.
        same_sitting: True if both ran in turn in one session: the i-th runs of both make a pair, and a run without a
            partner is not counted yet.

    Raises:
        InvalidInput: The reference or the candidate has no runs.
    """
    belief = weigh(reference, candidate, same_sitting=same_sitting)
    change, (low, high) = math.expm1(belief.middle()), (math.expm1(end) for end in belief.quantiles(_INTERVAL))
    num_reference, num_candidate = (sum(len(one.rates) for one in groups) for groups in (reference, candidate))
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
    )


def weigh(reference: Sequence[RunGroup], candidate: Sequence[RunGroup], *, same_sitting: bool = False) -> Belief:
    """Return the likelihood of each change of throughput, given the runs. The arguments are those of ``compare``.

    Raises:
        InvalidInput: The reference or the candidate has no runs.
    """
    for name, groups in (("reference", reference), ("candidate", candidate)):
        if not groups:
            raise InvalidInput(name, [], "must have one run or more")
    if not same_sitting:
        both = sittings([np.log(group.rates) for group in (*reference, *candidate)])
        return believe(both[: len(reference)], both[len(reference) :])
    sides = [np.log([rate for group in groups for rate in group.rates]) for groups in (reference, candidate)]
    num_pairs = min(map(len, sides))
    differences: Floats = sides[1][:num_pairs] - sides[0][:num_pairs]
    return believe_pairs(sittings([differences])[0])


# ---------------------------------------------------------------- how many more runs it takes
_TRIED = (1, 2, 3, 5, 8, 13, 21, 34)
"""Numbers of further runs that are tried, for an answer in milliseconds."""

_SURPRISES = (-2.0, -1.0, 1.0, 2.0)
"""Distances of the mean of further runs from that of the runs so far, in its deviations, that count as possible."""

_FEW, _CALMER = 10, 0.25
"""Number of runs below which one disturbed run dominates the scatter, and the share to which the scatter may then
shrink."""

_BASELINE_SHARE = 4
"""One in so many of the most runs that a candidate may take is what a baseline takes in its first session."""

_Z95 = 1.645
"""Normal quantile of 0.95: what a baseline leaves to bad luck."""


def next_runs(
    reference: Sequence[RunGroup], candidate: Sequence[RunGroup], test: SequentialTest, *, same_sitting: bool = False
) -> int:
    """Return how many more runs would probably decide the test, if they are like the latest runs.

    The number counts runs of the candidate or, with ``same_sitting``, pairs of runs of both. Ask again after every run.
    The answer is 0 if the test is decided, if the maximum number of runs is reached, or if runs of this session cannot
    decide it, because the unknown part is the difference between sessions or the rate of the reference. The arguments
    are those of ``compare``.
    """
    counts = [sum(len(group.rates) for group in groups) for groups in (reference, candidate)]
    num_runs = min(counts) if same_sitting else counts[1]
    if num_runs < test.min_runs:
        return test.min_runs - num_runs
    compared = partial(compare, reference, candidate, test, same_sitting=same_sitting)
    if num_runs >= test.max_runs or compared().decision is not Decision.UNDECIDED:
        return 0
    return 1 if same_sitting else _more(reference, candidate, test)


def next_baseline_runs(runs: RunGroup | None, test: SequentialTest) -> int:
    """Return how many more runs a baseline needs in its first session so that ``test.loss`` can be detected later.

    It needs as many as a candidate with the same number of runs needs, with a little bad luck. Few runs may hide some
    of their scatter: the deviation of three is less than half the truth once in five times, that of ten less than three
    quarters. The total is at most a quarter of ``max_runs``, since later sessions add theirs.

    Args:
        runs: Runs so far; None: none yet.
        test: The test that later runs will be compared with.
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
    """A longer session that scatters so many times as much."""
    return replace(sitting, num_runs=num_runs, squares=(calm * _deviation(sitting)) ** 2 * (num_runs - 1))


def _deviation(sitting: Sitting) -> float:
    return math.sqrt(sitting.squares / max(sitting.num_runs - 1, 1))


# ---------------------------------------------------------------- a baseline that grows
_FIRST_GROUPS, _LAST_GROUPS = 5, 15
"""Numbers of runs kept of a long baseline: the first after the adoption, so that many small losses add up to one that
is found, and the latest, which know how runs differ now."""


def longer_baseline(baseline: Sequence[RunGroup], runs: RunGroup) -> tuple[RunGroup, ...]:
    """Return the baseline with the runs of one more session. Only the first 5 and the last 15 sessions are kept."""
    groups = (*baseline, runs)
    if len(groups) <= _FIRST_GROUPS + _LAST_GROUPS:
        return groups
    return (*groups[:_FIRST_GROUPS], *groups[-_LAST_GROUPS:])
