"""Results of retune runs: their outcome by the measurements, the next incumbent and baseline, and the trend."""

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
    """Return the changes of a step's parts from the incumbent to a better layout.

    Args:
        before: The incumbent.
        after: The better layout.
        job: Job that both layouts were measured for.
        trials: Trials of the sweep that measured both layouts.
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
    """Return the last breakdown of a step that a run of the layout recorded."""
    found = [trial.measurement.breakdown for trial in trials if trial.layout == layout and trial.measurement]
    return next((each for each in reversed(found) if each is not None), None)


def outcome_of(sweep: Sweep, findings: ChallengeFindings, trials: Sequence[Trial]) -> RetuneOutcome:
    """Return the outcome of a run of a scheduled retuning, once the sweep of the run is finished.

    A scheduled retuning measures the layout in use again and searches for a better one. If the runs already decided the
    comparison with the baseline, this decision counts even if the sweep did not complete.

    Args:
        sweep: The sweep of the run. Its request holds the layout in use and the baseline (earlier runs of this layout),
            as they were when the run began.
        findings: Results of the measured runs of the sweep.
        trials: All trials of the sweep.
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
        assert findings.measured is not None  # the layout that the challenger beats
        why = _why_better(findings.measured, findings.challenger, sweep.request.job, trials)
        return replace(outcome, verdict=Verdict.BETTER_FOUND, why=why)
    if against is not None and is_open(against) and against.change < 0:
        return outcome
    return replace(outcome, verdict=Verdict.UNCHANGED)


def end_of(outcome: RetuneOutcome, detail: str, explanation: Sequence[str] = ()) -> Finish:
    """Return the state in which a run of a scheduled retuning ends, with the message about it.

    A scheduled retuning measures the layout in use again. The run counts as failed if it found a regression, or if it
    could not run.

    Args:
        outcome: The outcome of the run.
        detail: The verdict in words.
        explanation: Further sentences for the message about the run.
    """
    is_incident = outcome.verdict in (Verdict.REGRESSION, Verdict.COULD_NOT_RUN)
    state = RunState.FAILED if is_incident else RunState.COMPLETE
    return Finish(state=state, detail=detail, result=outcome, announced=". ".join([detail, *explanation]))


def _is_known(sweep: Sweep, findings: ChallengeFindings) -> bool:
    """Return True if the sweep measured enough to judge the incumbent."""
    is_decided = findings.against_baseline is not None and findings.against_baseline.decision is not Decision.UNDECIDED
    return findings.runs is not None and (sweep.state is RunState.COMPLETE or is_decided or findings.is_better)


def is_faster(request: RetuneRequest, against: Comparison | None) -> bool:
    """Return True if the layout in use is now faster than in its baseline, by more than the tolerance and the noise.

    The baseline has earlier runs of the same layout.

    Args:
        request: Request of the scheduled retuning (regular measurements of the layout in use), with the tolerance.
        against: Comparison of the layout in use with its baseline; None: there was none.
    """
    if against is None or against.decision is not Decision.NOT_SLOWER:
        return False
    return against.low > request.test.tolerance


def is_open(against: Comparison) -> bool:
    """Return True if the layout in use seems to be slower or faster than its baseline, but more runs must decide it.

    The baseline has earlier runs of the same layout.

    Args:
        against: Comparison of the layout in use with its baseline.
    """
    return against.decision is Decision.UNDECIDED and not against.low <= 0 <= against.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The layout in use, and its earlier runs (the baseline) with which a scheduled retuning compares new runs.

    A scheduled retuning measures the layout in use again at regular times.
    """

    incumbent: Layout | None
    """Layout in use; None: there is none yet."""
    baseline: tuple[RunGroup, ...]
    """Baseline of the incumbent, with one group for each run."""

    @classmethod
    def after(cls, retune: Retune, outcome: RetuneOutcome) -> Self:
        """Return the layout in use and the baseline after a run of a scheduled retuning has ended.

        If the run found a regression, both stay as they were, so that the next run is compared with the same baseline.
        A better layout is not adopted in this case, because the machine itself may be slower than before. If a user
        adopted another layout during the run, this layout stays.

        Args:
            retune: The scheduled retuning before the outcome of the run is recorded.
            outcome: The outcome of the run.
        """
        now = cls(incumbent=retune.incumbent, baseline=retune.baseline)
        found = outcome.findings
        if found is None or found.runs is None or outcome.verdict in (Verdict.REGRESSION, Verdict.COULD_NOT_RUN):
            return now
        if retune.incumbent not in (None, found.measured):
            return now
        if outcome.verdict is Verdict.BETTER_FOUND and retune.request.adopts and found.challenger_runs is not None:
            return cls(incumbent=found.challenger, baseline=(found.challenger_runs,))
        if found.against_baseline is None:  # there was no baseline: the first run, or the first run of a new phase
            return cls(incumbent=found.measured, baseline=(found.runs,))
        if is_open(found.against_baseline):
            return now  # a disturbed run would make the next baseline imprecise
        if is_faster(retune.request, found.against_baseline):  # so that a fall back to the old speed is detected
            return cls(incumbent=found.measured, baseline=(found.runs,))
        return cls(incumbent=found.measured, baseline=longer_baseline(retune.baseline, found.runs))


_TITLES = {
    Verdict.UNCHANGED: "unchanged",
    Verdict.BETTER_FOUND: "a better layout was found",
    Verdict.REGRESSION: "the layout in use has become slower",
    Verdict.COULD_NOT_RUN: "could not run",
}


def retune_announcement(run: RetuneRun, outcome: RetuneOutcome, text: str, *, at: float) -> Announcement:
    """Return the message about a finished run of a scheduled retuning, for the web feed and the webhooks.

    A scheduled retuning measures the layout in use again. There is one message per run. Its id is derived from the id
    of the run.

    Args:
        run: The run.
        outcome: The outcome of the run.
        text: The outcome in words.
        at: Time of the message in epoch seconds.
    """
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
    """One point of the trend chart: the measurements of the layout in use by one run of a scheduled retuning.

    A scheduled retuning measures the layout in use again at regular times.
    """

    run_id: str
    """Id of the run."""
    at: float
    """Due time of the run, in epoch seconds."""
    verdict: Verdict
    layout: str
    """Measured layout, as tables print it."""
    tokens_per_s: float
    """Mean rate of the run's measurements."""
    lowest: float
    """Rate of the slowest measurement."""
    highest: float
    """Rate of the fastest measurement."""
    mfu: float
    """Mean MFU of the measurements."""
    num_measurements: int
    """Number of measurements."""
    reference: float | None
    """Throughput of the baseline in tokens per second; None if there was no baseline."""
    band_low: float | None
    """Lower end of the band around ``reference`` in which 95 of 100 runs lie if nothing but noise differs."""
    band_high: float | None
    """Upper end of the band."""
    noise: float | None
    """Relative standard deviation between measurements; None if nothing was compared."""


def trend(runs: Iterable[RetuneRun]) -> tuple[TrendPoint, ...]:
    """Return a point of the trend chart for each run that measured the layout in use, the oldest first."""
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
