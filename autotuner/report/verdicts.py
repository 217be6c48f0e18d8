"""Verdicts in words: how runs compare with their baseline, and the outcomes of retunings and performance gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from autotuner.core.cluster import SIMULATED
from autotuner.core.comparison import (
    Challenge,
    ChallengeFindings,
    Comparison,
    Decision,
    EnvironmentChange,
    RunGroup,
)
from autotuner.core.field_change import difference
from autotuner.core.job import Job
from autotuner.core.measurement import Breakdown
from autotuner.core.measuring import LINKS
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.upkeep import (
    GateRunRequest,
    RegressionGateOutcome,
    RegressionGateResult,
    RetuneOutcome,
    RetuneRequest,
    StepChange,
    Verdict,
)
from autotuner.report.parts import moved_in_words
from autotuner.report.report import predicted
from autotuner.report.trial_facts import PHASE_WORDS
from autotuner.report.words import changes_in_words, counted, likely, moment, percent, quantity
from autotuner.search.upkeep.gate_prediction import PredictedChange, PredictedGate
from autotuner.search.upkeep.retune import is_faster, is_open

_WORTH_SAYING = 0.01
"""Share of the step below which the change of a part is not mentioned."""

_MOST_CHANGES = 4
"""Maximum number of differences between environments in a sentence; the record has all of them."""


# ------------------------------------------------------------------ comparisons
def comparison_in_words(found: Comparison) -> str:
    """Describe how much faster or slower the runs of a layout are than those of its reference, without a full stop.

    Example: ``5.1 % slower (95 % interval 4.2 to 6.0 %), from 4 runs compared with 10 that scatter by 0.6 %``.
    """
    runs = f"{counted(found.num_candidate, 'run')} compared with {found.num_reference}"
    scatter = f"{runs} that scatter by {_share(found.noise)}"
    undecided = ", which is too uncertain for a decision" if found.decision is Decision.UNDECIDED else ""
    near, far = sorted((found.low, found.high), key=abs)  # if both have the same sign, the nearer to zero comes first
    both_sides = f"{_change(found.low)} to {_change(found.high)}"
    interval = both_sides if found.low < 0 < found.high else f"{100 * abs(near):.1f} to {_share(far)}"
    return f"{_change(found.change)} (95 % interval {interval}), from {scatter}{undecided}"


def _change(change: float) -> str:
    return f"{_share(change)} {'slower' if change < 0 else 'faster'}"


def _share(share: float) -> str:
    return f"{100 * abs(share):.1f} %"


def findings_in_words(found: ChallengeFindings, *, is_simulated: bool = False) -> tuple[str, ...]:
    """Describe how the best layout of a sweep compares with the layout in use, or with its earlier results.

    The statements have no full stops.

    Args:
        found: The results so far.
        is_simulated: True if the runs were simulated; each statement then says so.
    """
    mark = f"{SIMULATED}: " if is_simulated else ""
    return tuple(f"{mark}{said}" for said in _findings(found))


def _findings(found: ChallengeFindings) -> Iterator[str]:
    if found.measured is not None and found.death:
        yield f"{found.measured} could not be measured: {found.death}"
    if found.measured is not None and found.runs is not None:
        yield f"{found.measured} reached {runs_in_words(found.runs)}{_beside_baseline(found.against_baseline)}"
    if found.challenger is not None:
        yield _challenger(found, str(found.challenger))


def _beside_baseline(comparison: Comparison | None) -> str:
    if comparison is None:
        return ", and there is no baseline yet"
    return f", {comparison_in_words(comparison)}: {_decision(comparison)} than its baseline"


def _challenger(found: ChallengeFindings, challenger: str) -> str:
    if found.challenger_runs is None:
        return f"{challenger} was faster in the search, and was not measured again"
    reached = f"{challenger} reached {runs_in_words(found.challenger_runs)}"
    if found.gain is None:
        return reached
    verdict = "better" if found.is_better else "not known to be better"
    return f"{reached}, measured in alternation with {found.measured}, {comparison_in_words(found.gain)}: {verdict}"


def runs_in_words(runs: RunGroup) -> str:
    """Describe the result of a group of runs: ``41.3 % MFU in 4 runs``."""
    return f"{100 * runs.mfu:.1f} % MFU in {counted(len(runs.rates), 'run')}"


def _decision(comparison: Comparison) -> str:
    words = {Decision.SLOWER: "slower", Decision.NOT_SLOWER: "not slower"}
    return words.get(comparison.decision, "not known to be slower")


def _with_half_width(change: str, comparison: Comparison) -> str:
    """Return a change in percent with half the width of its 95 % interval: ``7.3 % ± 1.1``."""
    return f"{change} % ± {50 * (comparison.high - comparison.low):.1f}"


def _gained(comparison: Comparison) -> str:
    return _with_half_width(f"{100 * comparison.change:.1f}", comparison)


def _changed(comparison: Comparison) -> str:
    """Return a change that may be zero, with half the width of its interval: ``+0.3 % ± 0.8``."""
    percents = round(100 * comparison.change, 1) + 0.0  # which is no -0.0
    return _with_half_width(f"{percents:+.1f}".replace("-", "−"), comparison)


def _reached(runs: RunGroup) -> str:
    """Return the mean rate and MFU of a group of runs: ``12.3 ktoken/s (31.4 % MFU)``."""
    return f"{_rate(runs)} ({100 * runs.mfu:.1f} % MFU)"


def _rate(runs: RunGroup, over: float = 1.0) -> str:
    return format_rate(sum(runs.rates) / len(runs.rates) / over, "token/s")


def _environment(changes: Sequence[EnvironmentChange], then: Mapping[str, str]) -> str:
    """Return how the environment differs: ``what differs: torch was 2.12 and is 2.13``."""
    if not then:
        return "the environment of the earlier runs was not recorded"
    if not changes:
        return "everything that trials record of their environment is unchanged"
    more = len(changes) - _MOST_CHANGES
    named = "; ".join(map(str, changes[:_MOST_CHANGES]))
    return f"what differs: {named}" + (f"; and {more} more" if more > 0 else "")


# ------------------------------------------------------------------ gates
def gate_verdict(
    asked: GateRunRequest, result: RegressionGateResult, sweep: Sweep | None = None, trials: Sequence[Trial] = ()
) -> str:
    """Describe how a performance regression gate ended, with its numbers and without a full stop.

    Args:
        asked: The request of the gate.
        result: Its outcome and findings.
        sweep: The sweep that measured for it; None: the runs of an earlier gate were used.
        trials: Trials of that sweep.
    """
    found = result.findings or ChallengeFindings()
    stopped = "" if sweep is None else sweep.stop_detail
    if result.outcome is RegressionGateOutcome.CANCELLED:
        return f"cancelled before it was decided: {stopped}"
    if result.outcome is RegressionGateOutcome.COULD_NOT_RUN:
        failed = sweep is not None and sweep.state is RunState.FAILED
        return f"its sweep failed: {stopped}" if failed else found.death or f"nothing was measured: {stopped}"
    if found.runs is None:
        deaths = [trial.failure.message for trial in trials if trial.failure]
        return f"{asked.gate.layout}: {found.death or deaths[-1]}"
    reused = f"; this uses the runs of {result.reused_from}" if result.reused_from else ""
    return f"{_beside_stored(asked, result, found, found.runs)}{reused}"


def _beside_stored(
    asked: GateRunRequest, result: RegressionGateResult, found: ChallengeFindings, runs: RunGroup
) -> str:
    name, against = asked.gate.baseline, found.against_baseline
    if asked.baseline is None or against is None:
        then = (
            f"its {len(runs.rates)} runs are the baseline from now on"
            if asked.gate.sets_baseline
            else "set it with a gate of the main branch (--set-baseline)"
        )
        return f"no baseline {name} is stored for this job: {found.measured} reaches {_reached(runs)}; {then}"
    said = f"compared with {name} it is {comparison_in_words(against)}; it reaches {_reached(runs)}"
    if result.outcome is RegressionGateOutcome.PASSED:
        return said
    return f"{said}; {_environment(result.changes, asked.baseline.runs[-1].environment)}"


def predicted_verdict(gate: PredictedGate, job: Job) -> str:
    """Describe the outcome of a performance regression gate that only predicts, with its numbers.

    The text has no full stop.

    Args:
        gate: The predictions and the outcome.
        job: The job that both layouts train.
    """
    peak, change, candidate = gate.peak, gate.change, gate.candidate
    if peak is None:
        return f"{candidate} cannot run: {'; '.join(reason.message for reason in gate.reasons)}"
    has, needs = format_bytes(job.cluster.accelerator.memory_bytes), format_bytes(peak.peak_bytes)
    needed = f"of {job.cluster.world_size} ranks, the rank that needs most memory needs {needs} of {has}"
    if not peak.fits:
        return f"{candidate} runs out of memory: {needed}"
    fits = f"{needed}, so it fits with a probability of {likely(peak.fit_probability)}"
    if change is None:
        return f"{candidate}: {fits}"
    prediction = f"{candidate} is predicted to be {_predicted_change(change)}"
    match gate.outcome:
        case RegressionGateOutcome.PASSED:
            return f"{prediction}; {fits}"
        case RegressionGateOutcome.FAILED:
            return f"{prediction}, more than the {100 * gate.tolerance:g} % that is tolerated"
    return f"{prediction}, which is within the error of the prediction; measure it"


def _predicted_change(change: PredictedChange) -> str:
    if abs(change.change) < 5e-4 and change.high - change.low < 1e-3:
        return "equally fast"
    word = "slower" if change.change < 0 else "faster"
    return f"{abs(100 * change.change):.1f} % {word} ({100 * change.low:+.1f} to {100 * change.high:+.1f} %)"


# ------------------------------------------------------------------ retunes
def retune_verdict(request: RetuneRequest, sweep: Sweep, outcome: RetuneOutcome) -> str:
    """Describe how a run of a retune ended, with its numbers and without a full stop.

    A retune is a sweep that starts again on a schedule.

    Args:
        request: The request of the retune.
        sweep: The sweep that measured for the run.
        outcome: The verdict and the findings of the run.
    """
    found, challenge = outcome.findings or ChallengeFindings(), sweep.request.challenge
    against = found.against_baseline
    if found.runs is None or challenge is None:
        return _not_measured(sweep, found)
    match outcome.verdict:
        case Verdict.REGRESSION if against is not None:
            return _lost(request, challenge, outcome, found.runs, against)
        case Verdict.BETTER_FOUND if found.gain is not None:
            then = (
                "it is the incumbent (layout in use) from now on"
                if request.adopts
                else "adopt it, or the incumbent (layout in use) stays"
            )
            return (
                f"{found.challenger} is {_gained(found.gain)} faster than the incumbent {found.measured}, "
                f"{found.gain.num_candidate} measurements in alternation with {found.gain.num_reference}; {then}"
            )
        case Verdict.COULD_NOT_RUN if against is not None and sweep.state is RunState.COMPLETE and is_open(against):
            return (
                "the incumbent (layout in use) may have become slower, but the measurements are too uncertain for a "
                f"decision: {_changed(against)}, {_beside(challenge, against)}; {_since_last(challenge, outcome)}"
            )
        case Verdict.COULD_NOT_RUN:
            return _not_measured(sweep, found)
    return _unchanged(request, challenge, found, found.runs)


def _not_measured(sweep: Sweep, found: ChallengeFindings) -> str:
    if sweep.state is RunState.CANCELLED:
        return f"its sweep was cancelled before the incumbent was compared: {sweep.stop_detail}"
    if sweep.state is RunState.FAILED:
        return f"its sweep failed: {sweep.stop_detail}"
    if found.death:
        return f"the incumbent {found.measured} could not be measured: {found.death}"
    return f"nothing was measured: {sweep.stop_detail}"


def _lost(
    request: RetuneRequest, challenge: Challenge, outcome: RetuneOutcome, runs: RunGroup, against: Comparison
) -> str:
    """Return how much the incumbent lost, as a rate and not as MFU.

    On CPU cores, the peak is measured too, so that a slower machine lowers both the rate and the peak.
    """
    lost = _with_half_width(f"{-100 * against.change:.1f}", against)
    since = moment(challenge.baseline[-1].at, request.time_zone)
    fallen = f"{_rate(runs)} instead of {_rate(runs, 1 + against.change)}"
    environment = _since_last(challenge, outcome)
    return f"the incumbent lost {lost} since {since}: {fallen}, {_beside(challenge, against)}; {environment}"


def _since_last(challenge: Challenge, outcome: RetuneOutcome) -> str:
    return _environment(outcome.changes, challenge.baseline[-1].environment if challenge.baseline else {})


def _beside(challenge: Challenge, comparison: Comparison) -> str:
    """Return the numbers of compared measurements and their noise.

    For example ``6 measurements compared with 24 of 8 runs before, which scatter by 0.4 %``.
    """
    num_earlier = len(challenge.baseline)
    earlier = "the run before" if num_earlier == 1 else f"{num_earlier} runs before"
    noise = f"which scatter by {100 * comparison.noise:.1f} %"
    return (
        f"{counted(comparison.num_candidate, 'measurement')} compared with {comparison.num_reference} of "
        f"{earlier}, {noise}"
    )


def _unchanged(request: RetuneRequest, challenge: Challenge, found: ChallengeFindings, runs: RunGroup) -> str:
    against, reached = found.against_baseline, _reached(runs)
    if against is None:
        whose = "the incumbent" if challenge.incumbent else f"{found.measured}, the best layout that the search found,"
        return f"nothing to compare with yet: {whose} reaches {reached}, which is its baseline from now on"
    beside = _beside(challenge, against)
    if is_faster(request, against):
        faster = f"the incumbent is {_gained(against)} faster than it was: {reached}, {beside}"
        return f"{faster}; this run starts a new baseline"
    if against.decision is Decision.UNDECIDED:
        undecided = f"no slowdown was found, but a slowdown of {100 * request.test.loss:.0f} % is not ruled out"
        return f"{undecided}: {_changed(against)}, {beside}"
    return f"the incumbent (layout in use) is as fast as before: {_changed(against)}, {reached}, {beside}"


def explanation(outcome: RetuneOutcome, time_zone: str) -> Iterator[str]:
    """Describe what the better layout that a retune run found changes and gains, in statements without full stops.

    A retune is a search for a better layout that starts again on a schedule.

    Args:
        outcome: The verdict and the findings of the run.
        time_zone: Time zone in which times are written.
    """
    found = outcome.findings or ChallengeFindings()
    if outcome.verdict is Verdict.REGRESSION and found.is_better and found.gain is not None:
        yield f"in the present environment, {found.challenger} is {_gained(found.gain)} faster; it was not adopted"
    if outcome.why is not None and found.measured is not None and found.challenger is not None:
        yield changes_in_words(difference(found.measured, found.challenger))
        yield from _step_change(outcome.why)
        links = [change for change in outcome.changes if change.name == LINKS]
        if links and outcome.since is not None:
            yield f"since {moment(outcome.since, time_zone)} links have changed: {links[0]}"
    if outcome.is_simulated:
        yield "no trial ran: these are times of the cost model, with random noise (fixed seed)"


def _step_change(change: StepChange) -> Iterator[str]:
    before, after = change.predicted_before, change.predicted_after
    then = quantity(predicted(after.total_s, "s", change.relative_error))
    yield f"predicted: it {moved_in_words(before, after)}, step {format_seconds(before.total_s)} → {then}"
    if change.measured_before is None or change.measured_after is None:
        return
    shifts = {
        one.name: (getattr(change.measured_after, one.name) - getattr(change.measured_before, one.name))
        / change.measured_before.step_s
        for one in fields(Breakdown)
        if one.name in PHASE_WORDS
    }
    moved = sorted((name for name in shifts if abs(shifts[name]) >= _WORTH_SAYING), key=lambda name: shifts[name])
    parts = [f"{PHASE_WORDS[name]} {'−' if shifts[name] < 0 else '+'}{percent(abs(shifts[name]))}" for name in moved]
    if parts:
        yield f"measured, in shares of the incumbent's step: {', '.join(parts)}"
