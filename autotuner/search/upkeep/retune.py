"""Runs of retunes: how they end by what was measured, what incumbent and baseline become by that, and their trend."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Self
from zoneinfo import ZoneInfo

from autotuner.core.announcement import Announcement, AnnouncementKind
from autotuner.core.comparison import (
    Challenge,
    ChallengeFindings,
    Comparison,
    Decision,
    EnvironmentChange,
    RunGroup,
    environment_changes,
)
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from autotuner.core.measuring import LINKS
from autotuner.core.run import Finish, RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.units import format_seconds
from autotuner.core.upkeep import Retune, RetuneOutcome, RetuneRequest, RetuneRun, Verdict
from autotuner.costmodel.predict import predict_one
from autotuner.search.explain.explanation import moved_in_words
from autotuner.search.text.sentences import change_in_words, expected_seconds, percent
from autotuner.search.text.trials import PHASE_WORDS
from autotuner.search.upkeep.baselines import (
    beside,
    changed,
    changes_in_words,
    fallen,
    gained,
    longer_baseline,
    lost,
    measured_facts,
    reached,
)

_WORTH_SAYING = 0.01
"""Share of the step below which a part has not moved."""


def why_better(before: Layout, after: Layout, job: Job, trials: Sequence[Trial]) -> tuple[str, ...]:
    """Sentences without full stops: what changes, and which parts of the step shrink and grow.

    Args:
        before: The incumbent.
        after: The better layout.
        job: What both were measured for.
        trials: Of the sweep that measured both.
    """
    first, second = predict_one(before, job), predict_one(after, job)
    then = expected_seconds(second.step_time.total_s, second.relative_error)
    steps = f"step {format_seconds(first.step_time.total_s)} → {then}"
    predicted = f"predicted: it {moved_in_words(first.step_time, second.step_time)}, {steps}"
    measured = _measured(_breakdown(before, trials), _breakdown(after, trials))
    return (change_in_words(before, after), predicted, *measured)


def _breakdown(layout: Layout, trials: Sequence[Trial]) -> Breakdown | None:
    """The last one that a run of the layout left."""
    found = [trial.measurement.breakdown for trial in trials if trial.layout == layout and trial.measurement]
    return next((each for each in reversed(found) if each is not None), None)


def _measured(before: Breakdown | None, after: Breakdown | None) -> Iterator[str]:
    if before is None or after is None:
        return
    shifts = {
        field.name: (getattr(after, field.name) - getattr(before, field.name)) / before.step_s
        for field in fields(Breakdown)
        if field.name in PHASE_WORDS
    }
    moved = sorted((name for name in shifts if abs(shifts[name]) >= _WORTH_SAYING), key=lambda name: shifts[name])
    parts = [f"{PHASE_WORDS[name]} {'−' if shifts[name] < 0 else '+'}{percent(abs(shifts[name]))}" for name in moved]
    if parts:
        yield f"measured, in shares of the incumbent's step: {', '.join(parts)}"


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
    is_simulated = any(trial.measurement is not None and trial.measurement.is_simulated for trial in trials)
    seen = _Seen(request=request, challenge=challenge, findings=findings, runs=findings.runs)
    outcome = replace(outcome, changes=seen.changes, explanation=_SIMULATED if is_simulated else ())
    against = findings.against_baseline
    if against is not None and against.decision is Decision.SLOWER:
        outcome = replace(outcome, verdict=Verdict.REGRESSION, detail=_lost(seen, against))
        also = (*_faster_now(findings), *outcome.explanation)
        return replace(outcome, since=challenge.baseline[-1].at, explanation=also)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a retune is held to."""

    incumbent: Layout | None
    """The layout in use; None: still none."""
    baseline: tuple[RunGroup, ...]
    """What it reached, a group for each run."""

    @classmethod
    def after(cls, retune: Retune, outcome: RetuneOutcome) -> Self:
        """The retune's, once a run of it has ended so.

        A regression changes nothing, so that the next run is held to the same; and nothing is adopted by it, since the
        machine is not what it was. Where another layout was adopted while the run went on, that one stays.
        """
        now = cls(incumbent=retune.incumbent, baseline=retune.baseline)
        found = outcome.findings
        if found is None or found.runs is None or outcome.verdict in (Verdict.REGRESSION, Verdict.COULD_NOT_RUN):
            return now
        if retune.incumbent not in (None, found.measured):
            return now
        if outcome.verdict is Verdict.BETTER_FOUND and retune.request.adopts and found.challenger_runs is not None:
            return cls(incumbent=found.challenger, baseline=(found.challenger_runs,))
        if found.against_baseline is None:  # it was held to nothing: the first run, or the first of a new phase
            return cls(incumbent=found.measured, baseline=(found.runs,))
        if is_open(found.against_baseline):
            return now  # a disturbed run would blur what the next is held to
        if is_faster(retune.request, found.against_baseline):  # so that it may not fall back to what it was unseen
            return cls(incumbent=found.measured, baseline=(found.runs,))
        return cls(incumbent=found.measured, baseline=longer_baseline(retune.baseline, found.runs))


_TITLES = {
    Verdict.UNCHANGED: "unchanged",
    Verdict.BETTER_FOUND: "a better layout was found",
    Verdict.REGRESSION: "the layout in use has become slower",
    Verdict.COULD_NOT_RUN: "could not run",
}


def told(run: RetuneRun, outcome: RetuneOutcome, *, at: float) -> Announcement:
    """What the feed and the webhooks say of the run; a run has one announcement, which has its id."""
    found = outcome.findings
    facts: dict[str, object] = {
        "retune": run.subject,
        "run": run.id,
        "sweep": run.child_id,
        "trigger": run.request.trigger.value,
        "due_at": run.request.due_at,
        "verdict": outcome.verdict.value,
        **dict(measured_facts(found) if found else ()),
    }
    if outcome.verdict is Verdict.BETTER_FOUND and found is not None and found.gain is not None:
        facts |= {"challenger": str(found.challenger), "gain": found.gain.change}
    return Announcement(
        id=f"an-{run.id}",
        at=at,
        kind=AnnouncementKind(f"retune.{outcome.verdict.value}"),
        title=f"{run.subject}: {'the baseline is set' if outcome.sets_baseline else _TITLES[outcome.verdict]}",
        text=". ".join([outcome.detail, *outcome.explanation]),
        path=f"/retunes/{run.subject}",
        subject_id=run.id,
        facts=facts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """What one run measured of the layout that was in use."""

    run_id: str
    """The run's."""
    at: float
    """When it was due, epoch seconds."""
    verdict: Verdict
    layout: str
    """What was measured, as tables print it."""
    tokens_per_s: float
    """Mean of its measurements."""
    lowest: float
    """The slowest of them."""
    highest: float
    """The fastest of them."""
    mfu: float
    """Mean MFU of them."""
    num_measurements: int
    """How many there were."""
    reference: float | None
    """What its baseline reached, tokens per second; None where it had none to be compared with."""
    band_low: float | None
    """Lower end of the band around the reference in which it would lie by noise alone, in 95 of 100 runs."""
    band_high: float | None
    """Upper end of the band."""
    noise: float | None
    """Relative standard deviation from measurement to measurement; None where nothing was compared."""


def trend(runs: Iterable[RetuneRun]) -> tuple[TrendPoint, ...]:
    """A point for each run that measured the layout in use, the oldest first."""
    return tuple(sorted(_points(runs), key=lambda point: point.at))


def _points(runs: Iterable[RetuneRun]) -> Iterator[TrendPoint]:
    for run in runs:
        found = run.result.findings if run.result else None
        if run.result is None or found is None or found.runs is None:
            continue
        against, rate = found.against_baseline, statistics.fmean(found.runs.rates)
        reference = None if against is None else rate / (1 + against.change)
        half = None if against is None else (against.high - against.low) / 2
        yield TrendPoint(
            run_id=run.id,
            at=run.request.due_at,
            verdict=run.result.verdict,
            layout=str(found.measured),
            tokens_per_s=rate,
            lowest=min(found.runs.rates),
            highest=max(found.runs.rates),
            mfu=found.runs.mfu,
            num_measurements=len(found.runs.rates),
            reference=reference,
            band_low=None if reference is None or half is None else reference * (1 - half),
            band_high=None if reference is None or half is None else reference * (1 + half),
            noise=None if against is None else against.noise,
        )
