"""Trials in words: jobs of engines, deaths, loss gates, what a challenged sweep found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotuner.core.cluster import LOCAL, SIMULATED
from autotuner.core.comparison import ChallengeFindings, Comparison, Decision, RunGroup
from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Trial, Waiting
from autotuner.core.units import format_duration, format_seconds
from autotuner.search.text.sentences import EMULATED, gate_in_words

FAILURE_WORDS: Mapping[FailureKind, str] = {
    FailureKind.OOM: "out of memory",
    FailureKind.TIMEOUT: "timed out",
    FailureKind.COMMUNICATION: "communication failed",
    FailureKind.NUMERICS: "the loss is no number",
    FailureKind.CRASH: "crashed",
    FailureKind.INTERRUPTED: "the service died around it",
    FailureKind.INFRASTRUCTURE: "its nodes were lost, or its machine had no room",
}
"""What people call each kind of death."""


_LEAST_S = 1.0
"""Nobody asks about less."""


def job_in_words(job: EngineJob, now: float) -> str:
    """Whose job it is and where it stands: ``slurm job 4711 waits: Resources, 35 s``."""
    waited, ran = _if_any(job.queued_s(now)), format_duration(job.running_s(now))
    because = f": {job.detail}" if job.detail else ""
    before = f", after {waited} in the queue" if waited else ""
    match job.phase:
        case EngineJobPhase.QUEUED:
            stands = f"waits{because}" + (f", {waited}" if waited else "")
        case EngineJobPhase.RUNNING:
            stands = "runs" + (f", {ran}" if _if_any(job.running_s(now)) else "") + before
        case EngineJobPhase.ENDED if job.started_at is None:
            stands = f"ended before it ran{because}{before}"
        case EngineJobPhase.ENDED:
            stands = f"ran {ran}{before}{because}"
        case EngineJobPhase.LOST if job.started_at is None:
            stands = f"never ran{because}{before}"
        case EngineJobPhase.LOST:
            stands = f"was lost{because}, {ran} after it began"
    return f"{job.engine} job {job.handle} {stands}"


def waiting_in_words(waiting: Waiting, jobs: Sequence[EngineJob], now: float) -> str:
    """Why a trial has no devices yet and for how long: ``waits for slurm, which does not answer, 35 s``."""
    job = latest(jobs)
    if job is not None and job.phase is EngineJobPhase.QUEUED:
        return job_in_words(job, now)
    waited = _if_any(now - waiting.since)
    return waiting.reason + (f", {waited}" if waited else "")


def _if_any(seconds: float) -> str:
    """The time in words, unless it is too short to be asked about."""
    return format_duration(seconds) if seconds >= _LEAST_S else ""


def latest(jobs: Sequence[EngineJob]) -> EngineJob | None:
    """The job to tell of while a trial runs: one that goes on, else the last."""
    for job in reversed(jobs):
        if not job.phase.is_over:
            return job
    return jobs[-1] if jobs else None


def engine_in_words(engine: str, queue: str) -> str:
    """Who runs the trials of a cluster: ``by slurm, queue batch``; empty on the service's own machine."""
    if engine == LOCAL:
        return ""
    who = SIMULATED if engine == SIMULATED else f"by {engine}"
    return who + (f", queue {queue}" if queue else "")


def unranked_in_words(trial: Trial) -> str:
    """Why a trial that was measured has no rank; empty where it has one, or was not measured."""
    if trial.measurement is None or trial.is_valid:
        return ""
    if trial.layout.is_emulated:
        return EMULATED
    if trial.gate is None and not trial.layout.needs_passed_gate:
        return "its figures at full size are not estimated yet"
    if trial.gate is None:
        return (
            f"{gate_in_words(GateOutcome.NOT_GATED)}: what sends less than its gradients, or clips them early, is "
            "ranked once a gate has passed it, and none has looked at it"
        )
    return f"{gate_in_words(trial.gate.outcome)}: {trial.gate.detail}"


def time_to_loss_in_words(gate: GateResult, step_time_s: float | None) -> str:
    """When candidate and reference come to the reference's last loss; empty where that is not known.

    Args:
        gate: What was found.
        step_time_s: Of the candidate's trial.
    """
    if gate.target_loss is None or gate.reference_steps is None or gate.steps_to_loss is None:
        return ""
    mine = f"{gate.steps_to_loss:.1f} steps"
    if step_time_s is not None:
        mine += f", {format_seconds(gate.steps_to_loss * step_time_s)}"
    theirs = f"{gate.reference_steps} steps"
    if gate.reference_time_to_loss_s is not None:
        theirs += f", {format_seconds(gate.reference_time_to_loss_s)} in its gate"
    return f"to the loss {gate.target_loss:.3f}: {mine}; its reference: {theirs}"


def findings_in_words(found: ChallengeFindings, *, is_simulated: bool = False) -> tuple[str, ...]:
    """One sentence without a full stop for each thing that is known; none before anything ran.

    Args:
        found: What is known.
        is_simulated: Nothing ran, which each sentence then says.
    """
    mark = f"{SIMULATED}: " if is_simulated else ""
    return tuple(f"{mark}{sentence}" for sentence in _sentences(found))


def _sentences(found: ChallengeFindings) -> Iterator[str]:
    if found.measured is not None and found.death:
        yield f"{found.measured} could not be measured: {found.death}"
    if found.measured is not None and found.runs is not None:
        yield f"{found.measured} reached {runs_in_words(found.runs)}{_beside_baseline(found.against_baseline)}"
    if found.challenger is not None:
        yield _challenger(found, str(found.challenger))


def _beside_baseline(comparison: Comparison | None) -> str:
    if comparison is None:
        return ", and has no baseline yet"
    return f", {comparison.detail}: {decision_in_words(comparison)} than its baseline"


def _challenger(found: ChallengeFindings, challenger: str) -> str:
    if found.challenger_runs is None:
        return f"{challenger} was faster when it was found, and did not run again"
    reached = f"{challenger} reached {runs_in_words(found.challenger_runs)}"
    if found.gain is None:
        return reached
    verdict = "better" if found.is_better else "not known to be better"
    return f"{reached} by turns with {found.measured}, {found.gain.detail}: {verdict}"


def runs_in_words(runs: RunGroup) -> str:
    """``41.3 % MFU in 4 runs``."""
    noun = "run" if len(runs.rates) == 1 else "runs"
    return f"{100 * runs.mfu:.1f} % MFU in {len(runs.rates)} {noun}"


def decision_in_words(comparison: Comparison) -> str:
    """``slower``, ``not slower``, or ``not known to be slower``."""
    words = {Decision.SLOWER: "slower", Decision.NOT_SLOWER: "not slower"}
    return words.get(comparison.decision, "not known to be slower")
