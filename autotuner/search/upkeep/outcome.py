"""How a run of a retune ended, and what becomes of its incumbent and baseline: a pure function of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.challenge import ChallengeFindings
from autotuner.domain.runs.comparison import Comparison, Decision, RunGroup
from autotuner.domain.runs.sweep import Sweep, SweepState
from autotuner.domain.runs.trial import Trial
from autotuner.domain.upkeep.environment import EnvironmentChange, environment_changes
from autotuner.domain.upkeep.retune import Retune, RetuneOutcome, Verdict
from autotuner.search.upkeep.better import why_better
from autotuner.search.upkeep.words import beside, changes_in_words, gained, lost, reached

__all__ = ["Conclusion", "conclusion", "longer_baseline"]

_FIRST_GROUPS, _LAST_GROUPS = 5, 15
"""Of a long baseline the first runs after the adoption are kept, so that many small losses add up to one that is found,
and the latest, which know how runs differ now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What is stored when a run has ended.

    Attributes:
        incumbent: The retune's from now on; None: still none.
        baseline: The retune's from now on.
    """

    outcome: RetuneOutcome
    incumbent: Layout | None
    baseline: tuple[RunGroup, ...]


def conclusion(retune: Retune, sweep: Sweep, findings: ChallengeFindings, trials: Sequence[Trial]) -> Conclusion:
    """How the run ended that started ``sweep``, which is finished.

    What was decided stands, however the sweep ended. A regression changes neither incumbent nor baseline, so the next
    run is held to the same; and nothing is adopted in a run whose machine is not what it was.
    """
    unchanged = Conclusion(
        outcome=RetuneOutcome(verdict=Verdict.COULD_NOT_RUN, detail="", findings=findings),
        incumbent=retune.incumbent,
        baseline=retune.baseline,
    )
    if why := _why_not(sweep, findings):
        return replace(unchanged, outcome=replace(unchanged.outcome, detail=why))
    assert findings.runs is not None  # else it could not run
    against = findings.against_baseline
    outcome = replace(unchanged.outcome, changes=_changes(retune, findings.runs))
    if against is not None and against.decision is Decision.SLOWER:
        return replace(unchanged, outcome=_regression(retune, findings, against, outcome))
    held = Conclusion(outcome=outcome, incumbent=findings.measured, baseline=_baseline(retune, findings))
    if findings.is_better and findings.gain is not None and findings.challenger is not None:
        return _better(retune, held, findings.challenger, findings.gain, sweep, trials)
    return replace(held, outcome=replace(outcome, verdict=Verdict.UNCHANGED, detail=_unchanged(retune, findings)))


def longer_baseline(baseline: Sequence[RunGroup], runs: RunGroup) -> tuple[RunGroup, ...]:
    """The baseline with one run more."""
    groups = (*baseline, runs)
    if len(groups) <= _FIRST_GROUPS + _LAST_GROUPS:
        return groups
    return (*groups[:_FIRST_GROUPS], *groups[-_LAST_GROUPS:])


# ---------------------------------------------------------------- it could not run
def _why_not(sweep: Sweep, findings: ChallengeFindings) -> str:
    """Why nothing can be said of the incumbent; empty where something can."""
    is_decided = findings.against_baseline is not None and findings.against_baseline.decision is not Decision.UNDECIDED
    if findings.runs is not None and (sweep.state is SweepState.COMPLETE or is_decided or findings.is_better):
        return ""
    if sweep.state is SweepState.CANCELLED:
        return f"its sweep was cancelled before the incumbent was compared: {sweep.stop_detail}"
    if sweep.state is SweepState.FAILED:
        return f"its sweep failed: {sweep.stop_detail}"
    return findings.death or f"nothing was measured: {sweep.stop_detail}"


# ---------------------------------------------------------------- it is slower
def _regression(
    retune: Retune, findings: ChallengeFindings, against: Comparison, outcome: RetuneOutcome
) -> RetuneOutcome:
    last_good = retune.baseline[-1]
    since = datetime.fromtimestamp(last_good.at, ZoneInfo(retune.request.time_zone))
    detail = (
        f"the incumbent lost {lost(against)} since {since:%Y-%m-%d %H:%M %Z}: {reached(findings.runs)}, "
        f"{beside(against, len(retune.baseline))}; {changes_in_words(outcome.changes, last_good.environment)}"
    )
    also: tuple[str, ...] = ()
    if findings.is_better and findings.challenger is not None and findings.gain is not None:
        also = (f"as things are now, {findings.challenger} is {gained(findings.gain)} faster; it was not adopted",)
    return replace(outcome, verdict=Verdict.REGRESSION, detail=detail, since=last_good.at, explanation=also)


def _changes(retune: Retune, runs: RunGroup) -> tuple[EnvironmentChange, ...]:
    """What differs from the last run that was as it should; nothing where either recorded nothing."""
    then = retune.baseline[-1].environment if retune.baseline else {}
    return environment_changes(then, runs.environment) if then and runs.environment else ()


# ---------------------------------------------------------------- it is as it was
def _baseline(retune: Retune, findings: ChallengeFindings) -> tuple[RunGroup, ...]:
    """One run longer; begun anew where the incumbent is faster than it was, so that it may not fall back unseen."""
    assert findings.runs is not None
    if _is_faster(retune, findings.against_baseline):
        return (findings.runs,)
    return longer_baseline(retune.baseline, findings.runs)


def _is_faster(retune: Retune, against: Comparison | None) -> bool:
    """Than its baseline, by more than the tolerance and outside the noise."""
    return against is not None and against.low > retune.request.test.tolerance


def _unchanged(retune: Retune, findings: ChallengeFindings) -> str:
    against, num_earlier = findings.against_baseline, len(retune.baseline)
    if against is None:
        whose = "the incumbent" if retune.incumbent is not None else f"{findings.measured}, the best that it found,"
        return f"the first run: {whose} reaches {reached(findings.runs)}, which is the baseline from now on"
    if _is_faster(retune, against):
        return (
            f"the incumbent is {gained(against)} faster than it was: {reached(findings.runs)}, "
            f"{beside(against, num_earlier)}; the baseline begins anew with this run"
        )
    if against.decision is Decision.UNDECIDED:
        hidden = f"{100 * retune.request.test.loss:.0f} %"
        return (
            f"no loss was found, and one of {hidden} not ruled out: {gained(against)}, {beside(against, num_earlier)}"
        )
    return f"the incumbent runs as it did: {gained(against)}, {reached(findings.runs)}, {beside(against, num_earlier)}"


# ---------------------------------------------------------------- another is better
def _better(
    retune: Retune, held: Conclusion, challenger: Layout, gain: Comparison, sweep: Sweep, trials: Sequence[Trial]
) -> Conclusion:
    findings = held.outcome.findings
    assert findings is not None
    assert held.incumbent is not None
    adopted = retune.request.adopts
    then = "it is the incumbent from now on" if adopted else "adopt it, or the incumbent stays"
    outcome = replace(
        held.outcome,
        verdict=Verdict.BETTER_FOUND,
        detail=f"{challenger} is {gained(gain)} faster than the incumbent {held.incumbent}, "
        f"{gain.num_candidate} runs beside {gain.num_reference} by turns; {then}",
        explanation=why_better(held.incumbent, challenger, sweep.request.job, trials),
    )
    if not adopted or findings.challenger_runs is None:
        return replace(held, outcome=outcome)
    return Conclusion(outcome=outcome, incumbent=challenger, baseline=(findings.challenger_runs,))
