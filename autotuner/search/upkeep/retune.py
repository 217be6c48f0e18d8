"""Runs of retunes: how they end by what was measured, what incumbent and baseline become by that, and their trend."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from autotuner.core.announcement import Announcement, AnnouncementKind
from autotuner.core.comparison import (
    ChallengeFindings,
    Comparison,
    Decision,
    RunGroup,
    environment_changes,
)
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from autotuner.core.run import Finish, RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.upkeep import Retune, RetuneOutcome, RetuneRequest, RetuneRun, StepChange, Verdict
from autotuner.costmodel.predict import predict_one
from autotuner.search.sequential_test import longer_baseline


def _why_better(before: Layout, after: Layout, job: Job, trials: Sequence[Trial]) -> StepChange:
    """Return which parts of the step shrink and grow from the incumbent to a better layout.

    Args:
        before: The incumbent.
        after: The better layout.
        job: What both were measured for.
        trials: Of the sweep that measured both.
    """
    first, second = predict_one(before, job), predict_one(after, job)
    return StepChange(
        predicted_before=first.step_time,
        predicted_after=second.step_time,
        relative_error=second.relative_error,
        measured_before=_breakdown(before, trials),
        measured_after=_breakdown(after, trials),
    )


def _breakdown(layout: Layout, trials: Sequence[Trial]) -> Breakdown | None:
    """The last one that a run of the layout left."""
    found = [trial.measurement.breakdown for trial in trials if trial.layout == layout and trial.measurement]
    return next((each for each in reversed(found) if each is not None), None)


def outcome_of(sweep: Sweep, findings: ChallengeFindings, trials: Sequence[Trial]) -> RetuneOutcome:
    """Return how the run ended that started ``sweep``, which is finished.

    What was decided stands, however the sweep ended.

    Args:
        sweep: With its challenge: incumbent and baseline as they were when the run began.
        findings: What its trials say.
        trials: These.
    """
    outcome = RetuneOutcome(verdict=Verdict.COULD_NOT_RUN, findings=findings)
    challenge, runs, against = sweep.request.challenge, findings.runs, findings.against_baseline
    if runs is None or challenge is None or not _is_known(sweep, findings):
        return outcome
    last = challenge.baseline[-1] if challenge.baseline else None
    outcome = replace(
        outcome,
        changes=environment_changes(last.environment, runs.environment) if last else (),
        since=last.at if last else None,
        is_simulated=any(trial.measurement is not None and trial.measurement.is_simulated for trial in trials),
    )
    if against is not None and against.decision is Decision.SLOWER:
        return replace(outcome, verdict=Verdict.REGRESSION)
    if findings.is_better and findings.challenger is not None and findings.gain is not None:
        assert findings.measured is not None  # what the challenger is better than
        why = _why_better(findings.measured, findings.challenger, sweep.request.job, trials)
        return replace(outcome, verdict=Verdict.BETTER_FOUND, why=why)
    if against is not None and is_open(against) and against.change < 0:
        return outcome
    return replace(outcome, verdict=Verdict.UNCHANGED)


def end_of(outcome: RetuneOutcome, detail: str, explanation: Sequence[str] = ()) -> Finish:
    """Return how a run ends that found this: it has failed if people are to be told of it as a trouble.

    Args:
        outcome: What was found.
        detail: The verdict in words.
        explanation: What announcements say beside it.
    """
    is_trouble = outcome.verdict in (Verdict.REGRESSION, Verdict.COULD_NOT_RUN)
    state = RunState.FAILED if is_trouble else RunState.COMPLETE
    return Finish(state=state, detail=detail, result=outcome, announced=". ".join([detail, *explanation]))


def _is_known(sweep: Sweep, findings: ChallengeFindings) -> bool:
    """Return whether something can be said of the incumbent."""
    is_decided = findings.against_baseline is not None and findings.against_baseline.decision is not Decision.UNDECIDED
    return findings.runs is not None and (sweep.state is RunState.COMPLETE or is_decided or findings.is_better)


def is_faster(request: RetuneRequest, against: Comparison | None) -> bool:
    """Return whether the incumbent is faster than its baseline by more than the tolerance, and outside the noise."""
    if against is None or against.decision is not Decision.NOT_SLOWER:
        return False
    return against.low > request.test.tolerance


def is_open(against: Comparison) -> bool:
    """Return whether it looks otherwise than its baseline, and the test would not say so by what was measured."""
    return against.decision is Decision.UNDECIDED and not against.low <= 0 <= against.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The incumbent and the baseline that a retune is held to."""

    incumbent: Layout | None
    """Layout in use; None: there is none yet."""
    baseline: tuple[RunGroup, ...]
    """Baseline of the incumbent, a group for each run."""

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


def retune_announcement(run: RetuneRun, outcome: RetuneOutcome, text: str, *, at: float) -> Announcement:
    """Return what the feed and the webhooks say of the run; a run has one announcement, which has its id."""
    found = outcome.findings
    facts: dict[str, object] = {
        "retune": run.subject,
        "run": run.id,
        "sweep": run.child_id,
        "trigger": run.request.trigger.value,
        "due_at": run.request.due_at,
        "verdict": outcome.verdict.value,
        **(found.facts() if found else {}),
    }
    if outcome.verdict is Verdict.BETTER_FOUND and found is not None and found.gain is not None:
        facts |= {"challenger": str(found.challenger), "gain": found.gain.change}
    return Announcement(
        id=f"an-{run.id}",
        at=at,
        kind=AnnouncementKind(f"retune.{outcome.verdict.value}"),
        title=f"{run.subject}: {'the baseline is set' if outcome.sets_baseline else _TITLES[outcome.verdict]}",
        text=text,
        path=f"/retunes/{run.subject}",
        subject_id=run.id,
        facts=facts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """Measurements of one run of the layout that was in use."""

    run_id: str
    """Id of the run."""
    at: float
    """Due time in epoch seconds."""
    verdict: Verdict
    layout: str
    """Measured layout, as tables print it."""
    tokens_per_s: float
    """Mean of its measurements."""
    lowest: float
    """The slowest of them."""
    highest: float
    """The fastest of them."""
    mfu: float
    """Mean MFU of them."""
    num_measurements: int
    """Number of measurements."""
    reference: float | None
    """Throughput of its baseline in tokens per second; None if there was no baseline."""
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
