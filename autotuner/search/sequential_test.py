"""Sequential test (e-process): decides if one layout is slower than another, and asks for runs until it can decide.

The test keeps two e-values, which are likelihood ratios of the runs so far. The first compares the hypothesis that the
candidate has the slowdown to detect with the hypothesis that both layouts are equal; the second compares equality with
exactly that slowdown. For equal layouts, the probability that the first e-value ever exceeds 100 is at most 1 %
(Ville's inequality). So the test may be evaluated after every run and stopped at any time.

The logarithm of a rate is normally distributed around the rate of its session, which is normally distributed around the
rate of its layout. Both deviations are unknown and are summed over. The deviation within a session has a flat prior
(its logarithm is uniform). The deviation between sessions has the prior of ``_BETWEEN``, without which one session
could never be compared with another; several sessions of the reference overrule it. The candidate's runs may scatter
more or less than those of the reference, because a machine is not equally quiet every day, and two of three runs may
have been disturbed.
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
"""Distance from the median of its session, in standard deviations, to which an outlier is moved. Of normal runs, 1 in
16,000 is further away."""

_RUNS_PER_OUTLIER = 5
"""Number of runs for which one outlier is moved closer. If more runs are off, the machine is noisy, and they count as
noise; among three runs that disagree, outliers cannot be identified."""

_MAD = 1.4826
"""Ratio of the standard deviation to the median absolute deviation of normal values: 1 / the normal quantile of
0.75."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringSession:
    """A summary of one layout's runs in one session: their number, their mean log throughput, and their scatter.

    A session is a group of runs that follow each other, such as the runs of one night. The scatter is the sum of the
    squared distances from the mean.
    """

    num_runs: int
    """Number of runs in the session."""
    mean: float
    """Mean logarithm of the runs' rates."""
    squares: float
    """Sum of the squared distances from the mean."""


def sessions_of(groups: Sequence[Floats]) -> tuple[MeasuringSession, ...]:
    """Return a summary (number, mean and scatter) of the runs of each session. Outliers are moved towards the median.

    The median is that of the outlier's session. The distance from which a run counts as an outlier is computed from all
    sessions together.

    Args:
        groups: Logarithms of the throughput of the runs, one array per session.
    """
    scale = _robust_deviation(groups)
    found = []
    for logs in (_pulled_in(group, _FAR * scale) for group in groups):
        mean = float(logs.mean())
        found.append(MeasuringSession(num_runs=len(logs), mean=mean, squares=float(((logs - mean) ** 2).sum())))
    return tuple(found)


def _pulled_in(logs: Floats, distance: float) -> Floats:
    """Return the runs, with the few that are further from the median than ``distance`` moved to that distance."""
    median = float(np.median(logs))
    pulled: Floats = np.clip(logs, median - distance, median + distance)
    num_far = int((pulled != logs).sum())
    return pulled if num_far <= len(logs) // _RUNS_PER_OUTLIER else logs


def _robust_deviation(groups: Sequence[Floats]) -> float:
    """Return the standard deviation between runs, estimated by the median distance from the sessions' medians.

    In an odd number of runs, one is the median itself, and its distance of 0 is not used. With an even number, the
    median is between two runs, nearer to them than the true mean is known.
    """
    every = []
    for logs in groups:
        if (num_runs := len(logs)) > 1:
            distances = np.sort(np.abs(logs - np.median(logs)))
            every.append(distances[1:] if num_runs % 2 else distances * np.sqrt(num_runs / (num_runs - 1)))
    return _MAD * float(np.median(np.concatenate(every))) if every else 0.0


# ---------------------------------------------------------------- how likely the runs are under each change
_WITHIN: Floats = np.geomspace(0.0005, 0.5, 40)
"""Grid of standard deviations between runs of a session. No machine repeats runs more closely than the first value
(docs/explanation/comparing-runs.md). Runs that are exactly equal, as those of a fake are, count with that value."""

_BETWEEN, _WORTH = 0.003, 4.0
"""Prior standard deviation between sessions, and the number of sessions that the prior counts for: the usual prior of a
variance, scaled inverse chi-squared. It was measured: docs/explanation/comparing-runs.md."""

_BETWEENS: Floats = np.geomspace(0.001, 0.1, 12)
"""Grid of standard deviations between sessions."""

_RATIOS: Floats = np.array([1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8])
"""Grid of ratios of the candidate's scatter to the reference's."""

_RATIO_WEIGHTS: Floats = np.array([1, 2, 4, 8, 4, 2, 1])
"""Prior weights of these ratios, up to a common factor."""

_POINTS, _NO_WEIGHT = 401, 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The likelihood of each possible change of the throughput between two layouts, given the runs of both.

    The change goes from the reference to the candidate. The likelihood is a mixture of normal distributions of the log
    change. Each part of the mixture assumes one combination of standard deviations: from run to run, from session to
    session, and their ratio between the two layouts.
    """

    log_weights: Floats
    """Log weight of each combination of deviations, given the runs, for any change; not normalised."""
    centres: Floats
    """Change with the highest likelihood, for each combination."""
    deviations: Floats
    """Width of the likelihood of the change, for each combination."""
    within: Floats
    """Standard deviation between runs, for each combination."""

    def log_likelihoods(self, changes: Sequence[float]) -> list[float]:
        """Return the log likelihood of the measured runs under each given change of throughput, up to one constant.

        Args:
            changes: Logarithms of the candidate's throughput divided by the reference's throughput.
        """
        z = (np.array(changes)[:, None] - self.centres) / self.deviations
        logs = self.log_weights - np.log(self.deviations) - z**2 / 2
        highest = logs.max(axis=1)
        return [float(value) for value in highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1))]

    def reaching(self, log_likelihood: float) -> Belief:
        """Return a smaller mixture: without the parts whose log likelihood stays below a limit for every change.

        It makes later computations faster.

        Args:
            log_likelihood: The limit.
        """
        kept = self.log_weights - np.log(self.deviations) > log_likelihood
        return Belief(**{f.name: getattr(self, f.name)[kept] for f in fields(self)})

    def noise(self) -> float:
        """Return the likely standard deviation from run to run of the candidate's throughput, as a fraction of it."""
        return math.exp(float(self._weights() @ np.log(self.within)))

    def middle(self) -> float:
        """Return the mean of the log change of throughput from reference to candidate, given the runs of both."""
        return float(self._weights() @ self.centres)

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return quantiles of the log change of throughput from reference to candidate, given the runs of both.

        Args:
            shares: Probabilities, 0..1. For each probability p, the true change is below the returned value with
                probability p. This assumes that all changes were equally likely before the runs.
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


def believe(reference: Sequence[MeasuringSession], candidate: Sequence[MeasuringSession]) -> Belief:
    """Return how likely each change of throughput between two layouts is, if they ran in separate sessions.

    Args:
        reference: Sessions of the reference layout.
        candidate: Sessions of the candidate, which is compared with the reference.
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


def believe_pairs(differences: MeasuringSession) -> Belief:
    """Return the likelihood of each change of throughput between two layouts that ran in turn in one session.

    One run of each layout makes a pair. Effects of the session on both runs of a pair cancel out in their difference.
    Here the prior of the standard deviation is uniform in the deviation itself and not, as in ``believe``, in its
    logarithm, because there are no other sessions to compare with. With a prior that is uniform in the logarithm, three
    pairs that lie close together by chance would cause too many false alarms: for 1.3 of 100 equal layouts at a noise
    of 5 %, instead of 0.7.

    Args:
        differences: Summary of the differences of log throughput, candidate less reference, one for each pair.
    """
    apart = math.sqrt(2) * _WITHIN
    return Belief(
        log_weights=_log_scatter((differences,), apart) + np.log(apart),
        centres=np.full_like(apart, differences.mean),
        deviations=apart / math.sqrt(differences.num_runs),
        within=_WITHIN,
    )


def _level(sessions: Sequence[MeasuringSession], within: Floats, between: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the log rate of one layout from the means of its sessions, for each pair of deviations.

    The result is the mean, weighted by the precision of each session, the variance of this mean, and the log likelihood
    of the distances between the sessions.
    """
    means = np.array([session.mean for session in sessions])[:, None]
    num_runs = np.array([session.num_runs for session in sessions])[:, None]
    precisions = 1 / (between**2 + within**2 / num_runs)
    total = precisions.sum(axis=0)
    mean = (precisions * means).sum(axis=0) / total
    misfit = (precisions * (means - mean) ** 2).sum(axis=0)
    return mean, 1 / total, (np.log(precisions).sum(axis=0) - np.log(total) - misfit) / 2


def _log_scatter(sessions: Sequence[MeasuringSession], within: Floats) -> Floats:
    """Return the log likelihood of the distances of runs from the means of their sessions."""
    freedom = sum(session.num_runs - 1 for session in sessions)
    squares = sum(session.squares for session in sessions)
    fit: Floats = -freedom * np.log(within) - squares / (2 * within**2)
    return fit


@lru_cache(maxsize=1)
def _considered() -> tuple[Floats, Floats, Floats, Floats]:
    """Return every combination of deviations and ratio, with the logarithm of its prior probability."""
    within, between, ratio = (grid.ravel() for grid in np.meshgrid(_WITHIN, _BETWEENS, _RATIOS))
    log_ratio: Floats = np.log(np.resize(_RATIO_WEIGHTS, len(within)))
    log_between = -_WORTH * np.log(between) - _WORTH * _BETWEEN**2 / (2 * between**2)
    return within, between, ratio, log_ratio + log_between


# ---------------------------------------------------------------- e-values
_ON_THE_POINT = 0.8
"""Weight of exactly the slowdown to detect, or of exactly no slowdown, in an alternative hypothesis. The rest is spread
over other changes, because runs that are far from both points cannot distinguish them well."""

_FURTHER = tuple(1.25**step for step in range(1, 17))
"""Larger slowdowns in the first alternative, as multiples of the slowdown to detect in logarithms: for 5 %, up to a
fifth of the rate and five times it. They are close together, so that every slowdown is near one of them; otherwise, on
a quiet machine, it would look like an odd session of equal layouts."""


_NEGLIGIBLE = 25.0
"""Difference of natural logarithms below which a likelihood is negligible: a ratio of 1 in 70 thousand million."""


def _paid(belief: Belief, test: SequentialTest) -> tuple[float, float]:
    """Return the logarithms of the two e-values, computed from the runs that the belief contains.

    The first is for a slowdown against equal layouts; the second is for no slowdown against exactly the slowdown to
    detect.
    """
    point = math.log1p(-test.loss)
    equal, lost = belief.log_likelihoods([0.0, point])
    losses = [math.log1p(-(test.tolerance + test.loss) / 2), *(k * point for k in _FURTHER)]
    gains = [-k * point for k in _FURTHER]
    others = belief.reaching(min(equal, lost) - _NEGLIGIBLE).log_likelihoods([*losses, *gains])
    on_losses, on_gains = others[: len(losses)], others[len(losses) :]
    return _mixed(lost, on_losses) - equal, _mixed(equal, on_gains) - lost


def decide(belief: Belief, test: SequentialTest) -> Decision:
    """Return whether the candidate is slower than the tolerance allows, is not slower, or needs more runs.

    The decision uses two e-values (measures of evidence; see the module). The first is evidence for a slowdown by
    ``test.loss``. If both layouts are equally fast, it exceeds 1 / ``false_alarms`` with a probability of at most
    ``false_alarms``, however long the test runs. The second is evidence against a slowdown. If the candidate is slower
    by ``test.loss``, it exceeds 1 / (1 - ``power``) with a probability of at most 1 - ``power``.

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
    """Return the log likelihood of an alternative: the weight on the point, and the rest spread over the others."""
    shared = (1 - _ON_THE_POINT) / len(others)
    paid = [math.log(_ON_THE_POINT) + point, *(math.log(shared) + other for other in others)]
    highest = max(paid)
    return highest + math.log(sum(math.exp(value - highest) for value in paid))


# ---------------------------------------------------------------- the comparison
_INTERVAL = (0.025, 0.975)


def compare(
    reference: Sequence[RunGroup], candidate: Sequence[RunGroup], test: SequentialTest, *, same_session: bool = False
) -> Comparison:
    """Compare the throughput of a candidate with that of a reference, and decide whether the candidate is slower.

    The test stays valid if it is repeated after every run.

    Args:
        reference: Runs of the reference, with one group for each session (for example a night).
        candidate: Runs of the candidate, grouped in the same way.
        test: Tolerance, error probabilities and numbers of runs of the test.
        same_session: True if both layouts ran in turn in one session. Then the i-th runs of both make a pair, and a run
            without a partner is not counted yet.

    Raises:
        InvalidInput: The reference or the candidate has no runs.
    """
    belief = weigh(reference, candidate, same_session=same_session)
    change, (low, high) = math.expm1(belief.middle()), (math.expm1(end) for end in belief.quantiles(_INTERVAL))
    num_reference, num_candidate = (sum(len(one.rates) for one in groups) for groups in (reference, candidate))
    counted = min(num_reference, num_candidate) if same_session else num_candidate
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


def weigh(reference: Sequence[RunGroup], candidate: Sequence[RunGroup], *, same_session: bool = False) -> Belief:
    """Return how likely each change of throughput from a reference layout to a candidate is, given their runs.

    The arguments are those of ``compare``.

    Raises:
        InvalidInput: The reference or the candidate has no runs.
    """
    for name, groups in (("reference", reference), ("candidate", candidate)):
        if not groups:
            raise InvalidInput(name, [], "must have at least one run")
    if not same_session:
        both = sessions_of([np.log(group.rates) for group in (*reference, *candidate)])
        return believe(both[: len(reference)], both[len(reference) :])
    sides = [np.log([rate for group in groups for rate in group.rates]) for groups in (reference, candidate)]
    num_pairs = min(map(len, sides))
    differences: Floats = sides[1][:num_pairs] - sides[0][:num_pairs]
    return believe_pairs(sessions_of([differences])[0])


# ---------------------------------------------------------------- how many more runs it takes
_TRIED = (1, 2, 3, 5, 8, 13, 21, 34)
"""Numbers of further runs that are evaluated, so that an answer takes milliseconds."""

_SURPRISES = (-2.0, -1.0, 1.0, 2.0)
"""Possible differences between the mean of further runs and that of the runs so far, in standard deviations."""

_FEW, _CALMER = 10, 0.25
"""Number of runs below which one disturbed run dominates the scatter, and the share to which the scatter may then
fall."""

_BASELINE_SHARE = 4
"""Divisor of the largest number of runs of a candidate. The result is the number of runs of a baseline's first
session."""

_Z95 = 1.645
"""Normal quantile of 0.95, for the risk that remains in the number of runs of a baseline."""


def next_runs(
    reference: Sequence[RunGroup], candidate: Sequence[RunGroup], test: SequentialTest, *, same_session: bool = False
) -> int:
    """Return how many more runs would probably decide the test, if new runs are like the latest ones.

    The number counts runs of the candidate. With ``same_session``, it counts pairs of runs of both layouts. Call the
    function again after every run. The result is 0 if the test is decided or the maximum number of runs is reached. It
    is also 0 if more runs in this session cannot decide the test, because the difference between sessions or the
    throughput of the reference is not known well enough. The arguments are those of ``compare``.
    """
    counts = [sum(len(group.rates) for group in groups) for groups in (reference, candidate)]
    num_runs = min(counts) if same_session else counts[1]
    if num_runs < test.min_runs:
        return test.min_runs - num_runs
    compared = partial(compare, reference, candidate, test, same_session=same_session)
    if num_runs >= test.max_runs or compared().decision is not Decision.UNDECIDED:
        return 0
    return 1 if same_session else _more(reference, candidate, test)


def next_baseline_runs(runs: RunGroup | None, test: SequentialTest) -> int:
    """Return how many more runs a baseline needs in its first session, so that later tests can detect ``test.loss``.

    A baseline has the runs with which later runs are compared. It needs as many runs as a candidate whose noise is
    somewhat larger than the measured noise, because few runs may show too little noise: in one of five cases, the
    standard deviation of three runs is less than half of the true one, and that of ten runs is less than three quarters
    of it. The total is at most a quarter of ``max_runs``, because later sessions add more runs.

    Args:
        runs: Runs so far; None: none yet.
        test: The test by which later runs will be compared with the baseline.
    """
    if runs is None or len(runs.rates) < test.min_runs:
        return test.min_runs - (len(runs.rates) if runs else 0)
    session = sessions_of([np.log(runs.rates)])[0]
    hidden = 1 + 1 / math.sqrt(session.num_runs - 1) if session.num_runs > 1 else 1.0
    most = max(test.max_runs // _BASELINE_SHARE, session.num_runs)
    enough = (n for n in range(session.num_runs, most) if _finds_loss(_of_length(session, n, hidden), test))
    return next(enough, most) - session.num_runs


def _more(reference: Sequence[RunGroup], candidate: Sequence[RunGroup], test: SequentialTest) -> int:
    """Return about as many further runs as would decide the test if they were like the runs so far.

    Return all that are left if only different runs could decide it.
    """
    both = sessions_of([np.log(group.rates) for group in (*reference, *candidate)])
    before, (*others, last) = both[: len(reference)], both[len(reference) :]
    left = test.max_runs - sum(session.num_runs for session in (*others, last))

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


def _finds_loss(baseline: MeasuringSession, test: SequentialTest) -> bool:
    unlucky = _Z95 * _deviation(baseline) * math.sqrt(2 / baseline.num_runs)
    candidate = replace(baseline, mean=baseline.mean + math.log1p(-test.loss) + unlucky)
    return decide(believe([baseline], [candidate]), test) is Decision.SLOWER


def _of_length(session: MeasuringSession, num_runs: int, calm: float = 1.0) -> MeasuringSession:
    """Return a longer session with the same mean, whose scatter is multiplied by ``calm``."""
    return replace(session, num_runs=num_runs, squares=(calm * _deviation(session)) ** 2 * (num_runs - 1))


def _deviation(session: MeasuringSession) -> float:
    return math.sqrt(session.squares / max(session.num_runs - 1, 1))


# ---------------------------------------------------------------- a baseline that grows
_FIRST_GROUPS, _LAST_GROUPS = 5, 15
"""Numbers of sessions that are kept of a long baseline: the first ones after the adoption, so that many small slowdowns
add up to one that is detected, and the latest ones, which show the present noise."""


def longer_baseline(baseline: Sequence[RunGroup], runs: RunGroup) -> tuple[RunGroup, ...]:
    """Return a baseline with the runs of one more session added.

    A baseline has the runs with which later runs of a layout are compared. Only its first 5 and last 15 sessions are
    kept.

    Args:
        baseline: Runs of each session so far.
        runs: Runs of the new session.
    """
    groups = (*baseline, runs)
    if len(groups) <= _FIRST_GROUPS + _LAST_GROUPS:
        return groups
    return (*groups[:_FIRST_GROUPS], *groups[-_LAST_GROUPS:])
