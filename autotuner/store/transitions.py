"""How a sweep or a trial changes, and what its events say; no storage in here, so every store changes them alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotuner.core import codec
from autotuner.core.cluster import Cluster
from autotuner.core.convergence_gate import GateResult
from autotuner.core.errors import Conflict
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Prospects, Sweep, SweepRequest
from autotuner.core.trial import (
    EngineJob,
    EngineJobPhase,
    Outcome,
    ScaledTrial,
    Stopped,
    Trial,
    TrialFailure,
    TrialState,
    Waiting,
)
from autotuner.store.identity import trial_id


# ---------------------------------------------------------------------- sweeps
def same_request(sweep: Sweep, asked: SweepRequest, request: SweepRequest) -> Sweep:
    """``sweep``, stored under an idempotency key that now comes with ``request``; ``Conflict`` if they differ.

    Args:
        sweep: As it stands.
        asked: What came with the key the first time; the sweep's budget may have changed since.
        request: What comes with it now.
    """
    if _as_asked(asked) != _as_asked(request):
        raise Conflict(
            f"this idempotency key made sweep {sweep.id} of another request; send a new key with a new request"
        )
    return sweep


def _as_asked(request: SweepRequest) -> SweepRequest:
    """Without the rates that were measured to answer it: asking again measures again, and a little differently."""
    asked = replace(request, job=replace(request.job, cluster=_unmeasured(request.job.cluster)))
    few = asked.trial_cluster
    return asked if few is None else replace(asked, trial_cluster=_unmeasured(few))


def _unmeasured(cluster: Cluster) -> Cluster:
    accelerator = cluster.accelerator
    if not accelerator.peak_is_measured:
        return cluster
    return replace(cluster, accelerator=replace(accelerator, fp32_flop_per_s=1.0, bf16_flop_per_s=1.0))


# ---------------------------------------------------------------------- trials


def new_trial(
    sweep_id: str,
    number: int,
    layout: Layout,
    prediction: Prediction,
    scaled: ScaledTrial | None = None,
    repeats: int | None = None,
) -> Trial:
    """Queued, not tried yet."""
    return Trial(
        id=trial_id(sweep_id, number),
        sweep_id=sweep_id,
        number=number,
        state=TrialState.QUEUED,
        layout=layout,
        prediction=prediction,
        scaled=scaled,
        repeats=repeats,
    )


def chosen(trial: Trial, prospects: Prospects | None) -> Trial:
    """With what the search expected to gain when it chose the trial's layout; as it was where it did not."""
    return trial if prospects is None else replace(trial, expected_gain=prospects.expected_gain)


def number_taken(trial: Trial) -> Conflict:
    """The error for adding a trial twice."""
    return Conflict(f"sweep {trial.sweep_id} has a trial {trial.number} already")


def start_trial(trial: Trial, *, now: float) -> Trial:
    """Running, one attempt more unless a job of it still goes on; ``Conflict`` unless it was queued."""
    state = trial.state.to(TrialState.RUNNING)
    return replace(trial, state=state, attempts=trial.attempts + _num_begun(trial), started_at=now)


def _num_begun(trial: Trial) -> int:
    """How many attempts begin or end with one of the service: none where a job goes on, which is found again."""
    return 0 if trial.job_goes_on else 1


def check_running(trial_id: str, state: TrialState) -> None:
    """Only a trial that was started takes steps and jobs; ``Conflict`` otherwise."""
    if state not in (TrialState.RUNNING, TrialState.WAITING):
        raise Conflict(f"trial {trial_id} is {state.value}; steps and jobs belong to a running trial")


def step_taken(trial_id: str, step: StepReport) -> Conflict:
    """The error for reporting a step twice."""
    return Conflict(f"trial {trial_id} has reported step {step.step} already")


def finish_trial(trial: Trial, outcome: Outcome, *, now: float) -> Trial:
    """What the outcome makes of the trial; ``Conflict`` where ``TrialState`` allows no such step."""
    match outcome:
        case Measurement():
            return replace(_end(trial, TrialState.COMPLETE, now), measurement=outcome)
        case TrialFailure():
            return replace(_end(trial, TrialState.FAILED, now), failure=outcome)
        case Stopped(reason="pruned"):
            return replace(_end(trial, TrialState.PRUNED, now), stopped=outcome)
        case Stopped(reason="cancelled" | "budget"):
            return replace(_end(trial, TrialState.CANCELLED, now), stopped=outcome)
        case Stopped(reason="paused"):  # as for a shutdown, but for jobs of engines, which do not go on
            given_back = replace(interrupt(trial), attempts=max(0, trial.attempts - _num_begun(trial)))
            return replace(given_back, jobs=tuple(job.over(now) for job in trial.jobs))
        case Stopped(reason="shutdown"):  # in good order: nothing says that the trial is dangerous
            return replace(interrupt(trial), attempts=trial.attempts - _num_begun(trial))
        case Stopped():
            return interrupt(trial)


def gate_trial(trial: Trial, result: GateResult) -> Trial:
    """The trial with what the loss gate found; ``Conflict`` unless it is complete and was not gated before."""
    if trial.state is not TrialState.COMPLETE:
        raise Conflict(f"trial {trial.id} is {trial.state.value}; a loss gate judges complete trials")
    if trial.gate is not None:
        raise Conflict(f"trial {trial.id} was gated already: {trial.gate.outcome.value}")
    return replace(trial, gate=result)


def estimate_trial(trial: Trial, estimate: TrialEstimate) -> Trial:
    """The trial with what is estimated of its layout; ``Conflict`` unless a small trial of it was measured."""
    if trial.measurement is None or trial.scaled is None:
        raise Conflict(
            f"trial {trial.id} is {trial.state.value}; estimates are made of small trials that were measured"
        )
    return replace(trial, estimate=estimate)


def set_job(trial: Trial, job: EngineJob) -> Trial:
    """The trial with the job in the place of what was known of that name, or behind the others; it must be running.

    While the job is in a queue, the trial waits.
    """
    check_running(trial.id, trial.state)
    if any(known.name == job.name for known in trial.jobs):
        jobs = tuple(job if known.name == job.name else known for known in trial.jobs)
    else:
        jobs = (*trial.jobs, job)
    waiting = _in_queue(job)
    state = TrialState.RUNNING if waiting is None else TrialState.WAITING
    return replace(trial, state=state, jobs=jobs, waiting=waiting)


def _in_queue(job: EngineJob) -> Waiting | None:
    """Return why the job has no accelerators yet; None where it has them, or had."""
    if job.phase is not EngineJobPhase.QUEUED:
        return None
    because = f": {job.detail}" if job.detail else ""
    return Waiting(reason=f"waits in the queue of {job.engine}{because}", since=job.submitted_at)


def wait(trial: Trial, reason: str | None, *, now: float) -> Trial:
    """The started trial as it waits for that reason; without one, as it goes on with its work.

    Its clock starts behind the wait, so that ``started_at`` and ``finished_at`` enclose work alone.
    """
    check_running(trial.id, trial.state)
    if reason is not None:
        since = now if trial.waiting is None else trial.waiting.since
        return replace(trial, state=TrialState.WAITING, waiting=Waiting(reason=reason, since=since))
    if waiting := next((told for job in reversed(trial.jobs) if (told := _in_queue(job))), None):
        return replace(trial, state=TrialState.WAITING, waiting=waiting)
    return replace(trial, state=TrialState.RUNNING, started_at=_work_began_at(trial, now), waiting=None)


def _work_began_at(trial: Trial, now: float) -> float | None:
    """Return ``started_at``, as much later as the trial has waited for devices of this machine."""
    if trial.waiting is None or trial.jobs:
        return trial.started_at
    return now - trial.worked_s(now)


def add_run(trial: Trial, run: FinishedRun) -> Trial:
    """The started trial with one more run that has finished."""
    check_running(trial.id, trial.state)
    others = tuple(known for known in trial.runs if known.number != run.number)
    return replace(trial, runs=(*others, run))


def take_over(trial: Trial) -> Trial:
    """A started trial whose worker died, queued again; what died while it only waited did not die of the trial."""
    num_begun = _num_begun(trial) if trial.state is TrialState.WAITING else 0
    return replace(interrupt(trial), attempts=max(0, trial.attempts - num_begun))


def interrupt(trial: Trial) -> Trial:
    """Queued again as if this attempt had not begun, except that it is counted, and that its finished runs are kept."""
    steps = trial.steps if trial.runs else ()  # steps are of the first run
    return replace(trial, state=trial.state.to(TrialState.QUEUED), started_at=None, steps=steps, waiting=None)


def _end(trial: Trial, state: TrialState, now: float) -> Trial:
    jobs = tuple(job.over(now) for job in trial.jobs)
    return replace(
        trial,
        state=trial.state.to(state),
        started_at=_work_began_at(trial, now),
        finished_at=now,
        jobs=jobs,
        waiting=None,
        runs=(),
    )


# ---------------------------------------------------------------------- events
def demand_facts(sweep: Sweep) -> dict[str, object]:
    """What an event says of a sweep of which other things are asked now: its budget, and trials to be run again."""
    return {**sweep_facts(sweep.state), **codec.to_plain(sweep.demand)}


def sweep_facts(state: RunState, reason: StopReason | None = None, detail: str = "") -> dict[str, object]:
    """What an event says of a sweep. Who runs it, a process of some machine, is no part of that."""
    return {"state": state.value, "stop_reason": None if reason is None else reason.value, "stop_detail": detail}


def trial_facts(trial: Trial) -> dict[str, object]:
    """What an event says of a trial; the figures of a small trial are none of its layout."""
    measured = trial.measurement if trial.scaled is None else None
    return {
        "trial_id": trial.id,
        "number": trial.number,
        "state": trial.state.value,
        "attempts": trial.attempts,
        "mfu": measured.mfu if measured else None,
        "step_time_s": measured.step_time_s if measured else None,
        "is_simulated": trial.measurement.is_simulated if trial.measurement else False,
        "failure_kind": trial.failure.kind.value if trial.failure else None,
        "stop_reason": trial.stopped.reason if trial.stopped else None,
        "stop_detail": trial.stopped.detail if trial.stopped else "",
    }


def waiting_facts(trial: Trial) -> dict[str, object]:
    """What an event says of a trial that waits or goes on: what it waits for, and since when."""
    return {**trial_facts(trial), "waiting": codec.to_plain(trial.waiting)}


def estimates_facts(trials: Sequence[Trial]) -> dict[str, object]:
    """What an event says of new estimates: whose they are, and the step time of each at full size."""
    return {"step_time_s": {trial.id: trial.estimate.step_time_s for trial in trials if trial.estimate}}


def gate_facts(trial: Trial, result: GateResult) -> dict[str, object]:
    """What an event says of a loss gate: whose it is, and what it found."""
    return {**trial_facts(trial), "outcome": result.outcome.value, "detail": result.detail}


def job_facts(trial: Trial, job: EngineJob) -> dict[str, object]:
    """What an event says of an engine's job: whose it is, and how it stands."""
    return {"trial_id": trial.id, "number": trial.number, **codec.to_plain(job)}


def note_facts(trial_id: str, number: int, note: str) -> dict[str, object]:
    """What an event says of a note: whose it is, and the sentence."""
    return {"trial_id": trial_id, "number": number, "note": note}


def link_facts(trial_id: str, number: int, event: LinkEvent) -> dict[str, object]:
    """What an event says of what a pipeline found out: whose it is, and all of that."""
    return {"trial_id": trial_id, "number": number, **codec.to_plain(event)}


def step_facts(trial_id: str, number: int, step: StepReport) -> dict[str, object]:
    """What the event of a step keeps: whose it is, and which; its readers are told the rest from the report itself."""
    return {"trial_id": trial_id, "number": number, "step": step.step}
