"""How a run of a retune ended, as a pure function of what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from autotuner.core.comparison import (
    Challenge,
    ChallengeFindings,
    Comparison,
    Decision,
    EnvironmentChange,
    RunGroup,
    environment_changes,
)
from autotuner.core.layout import Layout
from autotuner.core.measuring import LINKS
from autotuner.core.run import Finish, RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.upkeep import RetuneOutcome, RetuneRequest, Verdict
from autotuner.search.upkeep.retunes.better import why_better
from autotuner.search.upkeep.words import beside, changed, changes_in_words, fallen, gained, lost, reached

_SIMULATED = ("nothing ran: these are times of the cost model, with seeded noise",)


def outcome_of(
    request: RetuneRequest, sweep: Sweep, findings: ChallengeFindings, trials: Sequence[Trial]
) -> RetuneOutcome:
    """How the run ended that started ``sweep``, which is finished; what was decided stands, however the sweep ended.

    Args:
        request: What the retune asks for.
        sweep: With its challenge: incumbent and baseline as they were when the run began.
        findings: What its trials say.
        trials: These.
    """
    outcome = RetuneOutcome(verdict=Verdict.COULD_NOT_RUN, detail=_why_not(sweep, findings), findings=findings)
    challenge = sweep.request.challenge
    if outcome.detail or findings.runs is None or challenge is None:
        return outcome
    seen = _Seen(request=request, challenge=challenge, findings=findings, runs=findings.runs)
    outcome = replace(outcome, changes=seen.changes, explanation=_SIMULATED if _is_simulated(trials) else ())
    against = findings.against_baseline
    if against is not None and against.decision is Decision.SLOWER:
        last_good = challenge.baseline[-1].at
        also = (*_faster_now(findings), *outcome.explanation)
        return replace(
            outcome, verdict=Verdict.REGRESSION, detail=_lost(seen, against), since=last_good, explanation=also
        )
    if findings.is_better and findings.challenger is not None and findings.gain is not None:
        assert findings.measured is not None  # what the challenger is better than
        why = why_better(findings.measured, findings.challenger, sweep.request.job, trials)
        detail = _better(seen, findings.measured, findings.challenger, findings.gain)
        also = (*why, *_links_since(seen), *outcome.explanation)
        return replace(outcome, verdict=Verdict.BETTER_FOUND, detail=detail, explanation=also)
    if against is not None and is_open(against) and against.change < 0:
        return replace(outcome, detail=_open(seen, against))
    return replace(outcome, verdict=Verdict.UNCHANGED, detail=_unchanged(seen))


def end_of(outcome: RetuneOutcome) -> Finish:
    """Return how a run ends that found this: it has failed if people are to be told of it as a trouble."""
    is_trouble = outcome.verdict in (Verdict.REGRESSION, Verdict.COULD_NOT_RUN)
    state = RunState.FAILED if is_trouble else RunState.COMPLETE
    return Finish(state=state, detail=outcome.detail, result=outcome)


def _is_simulated(trials: Sequence[Trial]) -> bool:
    return any(trial.measurement is not None and trial.measurement.is_simulated for trial in trials)


def is_faster(request: RetuneRequest, against: Comparison | None) -> bool:
    """Whether the incumbent is faster than its baseline by more than the tolerance, and outside the noise."""
    if against is None or against.decision is not Decision.NOT_SLOWER:
        return False
    return against.low > request.test.tolerance


def is_open(against: Comparison) -> bool:
    """Whether it looks otherwise than its baseline, and the test would not say so by what was measured."""
    return against.decision is Decision.UNDECIDED and not against.low <= 0 <= against.high


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A run that measured something."""

    request: RetuneRequest
    challenge: Challenge
    findings: ChallengeFindings
    runs: RunGroup

    @property
    def then(self) -> Mapping[str, str]:
        """The environment of the last run that was as it should."""
        return self.challenge.baseline[-1].environment if self.challenge.baseline else {}

    @property
    def changes(self) -> tuple[EnvironmentChange, ...]:
        """What differs from that; nothing where either recorded nothing."""
        return environment_changes(self.then, self.runs.environment) if self.then and self.runs.environment else ()

    def beside(self, against: Comparison) -> str:
        """What was compared with what."""
        return beside(against, len(self.challenge.baseline))


# ---------------------------------------------------------------- it could not run
def _why_not(sweep: Sweep, findings: ChallengeFindings) -> str:
    """Why nothing can be said of the incumbent; empty where something can."""
    is_decided = findings.against_baseline is not None and findings.against_baseline.decision is not Decision.UNDECIDED
    if findings.runs is not None and (sweep.state is RunState.COMPLETE or is_decided or findings.is_better):
        return ""
    if sweep.state is RunState.CANCELLED:
        return f"its sweep was cancelled before the incumbent was compared: {sweep.stop_detail}"
    if sweep.state is RunState.FAILED:
        return f"its sweep failed: {sweep.stop_detail}"
    if findings.death:
        return f"the incumbent {findings.measured} could not be measured: {findings.death}"
    return f"nothing was measured: {sweep.stop_detail}"


# ---------------------------------------------------------------- what could run
def _lost(seen: _Seen, against: Comparison) -> str:
    since = datetime.fromtimestamp(seen.challenge.baseline[-1].at, ZoneInfo(seen.request.time_zone))
    return (
        f"the incumbent lost {lost(against)} since {since:%Y-%m-%d %H:%M %Z}: {fallen(seen.runs, against)}, "
        f"{seen.beside(against)}; {changes_in_words(seen.changes, seen.then)}"
    )


def _faster_now(findings: ChallengeFindings) -> tuple[str, ...]:
    """What else was found in a run whose machine is not what it was."""
    if not findings.is_better or findings.gain is None:
        return ()
    return (f"as things are now, {findings.challenger} is {gained(findings.gain)} faster; it was not adopted",)


def _better(seen: _Seen, incumbent: Layout, challenger: Layout, gain: Comparison) -> str:
    then = "it is the incumbent from now on" if seen.request.adopts else "adopt it, or the incumbent stays"
    return (
        f"{challenger} is {gained(gain)} faster than the incumbent {incumbent}, {gain.num_candidate} measurements "
        f"beside {gain.num_reference} by turns; {then}"
    )


def _links_since(seen: _Seen) -> tuple[str, ...]:
    """What became of links since the last run, where that may be why another layout is better now."""
    changed_links = [change for change in seen.changes if change.name == LINKS]
    if not changed_links:
        return ()
    since = datetime.fromtimestamp(seen.challenge.baseline[-1].at, ZoneInfo(seen.request.time_zone))
    return (f"since {since:%Y-%m-%d %H:%M %Z} links have changed: {changed_links[0]}",)


def _open(seen: _Seen, against: Comparison) -> str:
    return (
        "it looks as if the incumbent had become slower, and what was measured does not decide it: "
        f"{changed(against)}, {seen.beside(against)}; {changes_in_words(seen.changes, seen.then)}"
    )


def _unchanged(seen: _Seen) -> str:
    against = seen.findings.against_baseline
    if against is None:
        is_known = seen.challenge.incumbent is not None
        whose = "the incumbent" if is_known else f"{seen.findings.measured}, the best that was found,"
        return f"nothing to compare with yet: {whose} reaches {reached(seen.runs)}, which is its baseline from now on"
    if is_faster(seen.request, against):
        return (
            f"the incumbent is {gained(against)} faster than it was: {reached(seen.runs)}, {seen.beside(against)}; "
            "its baseline begins anew with this run"
        )
    if against.decision is Decision.UNDECIDED:
        found = f"no loss was found, and one of {100 * seen.request.test.loss:.0f} % not ruled out"
        return f"{found}: {changed(against)}, {seen.beside(against)}"
    return f"the incumbent runs as it did: {changed(against)}, {reached(seen.runs)}, {seen.beside(against)}"
