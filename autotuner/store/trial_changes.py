"""The allowed changes of a trial's state. This module has no storage."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.convergence_gate import GateResult
from autotuner.core.errors import Conflict
from autotuner.core.measurement import FinishedRun, Measurement
from autotuner.core.prediction import TrialEstimate
from autotuner.core.trial import (
    EngineJob,
    EngineJobPhase,
    Outcome,
    Stopped,
    Trial,
    TrialFailure,
    TrialState,
    Waiting,
    with_job,
)


def start(trial: Trial, *, now: float) -> Trial:
    """Return the queued trial as running. It has one attempt more, unless an engine still runs a job of the trial.

    Raises ``Conflict`` if the trial is not queued.
    """
    state = trial.state.to(TrialState.RUNNING)
    return replace(trial, state=state, attempts=trial.attempts + _num_begun(trial), started_at=now)


def _num_begun(trial: Trial) -> int:
    """Return how many attempts begin or end with a worker's: 0 if the trial's job continues on an engine, else 1."""
    return 0 if trial.job_goes_on else 1


def check_running(trial_id: str, state: TrialState) -> None:
    """Raise ``Conflict`` unless the trial has started and has not ended. Only such a trial can get steps and jobs."""
    if state not in (TrialState.RUNNING, TrialState.WAITING):
        raise Conflict(f"trial {trial_id} is {state.value}, but steps and jobs can be stored only for a running trial")


def finish(trial: Trial, outcome: Outcome, *, now: float) -> Trial:
    """Return the trial with the outcome of its attempt. It has ended, or is queued again after an interruption.

    Raises ``Conflict`` if the trial cannot change to the new state.
    """
    match outcome:
        case Measurement():
            return _end(trial, TrialState.COMPLETE, now).with_measurement(outcome)
        case TrialFailure():
            return replace(_end(trial, TrialState.FAILED, now), failure=outcome)
        case Stopped(reason="pruned"):
            return replace(_end(trial, TrialState.PRUNED, now), stopped=outcome)
        case Stopped(reason="cancelled" | "budget"):
            return replace(_end(trial, TrialState.CANCELLED, now), stopped=outcome)
        case Stopped(reason="paused"):  # as for a shutdown, except that jobs of engines do not continue
            given_back = replace(interrupt(trial), attempts=max(0, trial.attempts - _num_begun(trial)))
            return replace(given_back, jobs=tuple(job.over(now) for job in trial.jobs))
        case Stopped(reason="shutdown"):  # a normal end: the trial did not cause it
            return replace(interrupt(trial), attempts=trial.attempts - _num_begun(trial))
        case Stopped():
            return interrupt(trial)


def add_gate(trial: Trial, result: GateResult) -> Trial:
    """Return the trial with the result of its convergence gate.

    Raise ``Conflict`` unless the trial is complete and has no gate result yet.
    """
    if trial.state is not TrialState.COMPLETE:
        raise Conflict(f"trial {trial.id} is {trial.state.value}, but a convergence gate is only for complete trials")
    if trial.gate is not None:
        outcome = trial.gate.outcome.value
        raise Conflict(f"the convergence gate of trial {trial.id} ended already ({outcome}); its result cannot change")
    return replace(trial, gate=result)


def set_estimate(trial: Trial, estimate: TrialEstimate) -> Trial:
    """Return the proxy trial with the result that its layout is expected to reach at full size.

    Raise ``Conflict`` unless the trial is a measured proxy trial, that is a trial on fewer ranks than its job has.
    """
    if trial.ran_measurement is None or trial.proxy is None:
        raise Conflict(
            f"trial {trial.id} is {trial.state.value}, but estimates are only for proxy trials (short or small "
            "trials that stand for a larger one) that were measured"
        )
    return replace(trial, estimate=estimate)


def set_job(trial: Trial, job: EngineJob) -> Trial:
    """Return the running trial with the current state of one of its engine jobs, in place of the job's earlier state.

    If the trial has no job of that name, the job is added. While the job is in an engine's queue, the trial waits.
    """
    check_running(trial.id, trial.state)
    waiting = _in_queue(job)
    state = TrialState.RUNNING if waiting is None else TrialState.WAITING
    return replace(trial, state=state, jobs=with_job(trial.jobs, job), waiting=waiting)


def _in_queue(job: EngineJob) -> Waiting | None:
    """Return why the job has no accelerators yet; None if it has or had them."""
    if job.phase is not EngineJobPhase.QUEUED:
        return None
    because = f": {job.detail}" if job.detail else ""
    return Waiting(reason=f"waits in the queue of {job.engine}{because}", since=job.submitted_at)


def wait(trial: Trial, reason: str | None, *, now: float) -> Trial:
    """Return the started trial as waiting, with the reason; if ``reason`` is None, return it as running again.

    When the wait is over, ``started_at`` moves later by the time of the wait for devices of this machine. Then the time
    from ``started_at`` to ``finished_at`` contains only work.
    """
    check_running(trial.id, trial.state)
    if reason is not None:
        since = now if trial.waiting is None else trial.waiting.since
        return replace(trial, state=TrialState.WAITING, waiting=Waiting(reason=reason, since=since))
    if waiting := next((queued for job in reversed(trial.jobs) if (queued := _in_queue(job))), None):
        return replace(trial, state=TrialState.WAITING, waiting=waiting)
    return replace(trial, state=TrialState.RUNNING, started_at=_work_began_at(trial, now), waiting=None)


def _work_began_at(trial: Trial, now: float) -> float | None:
    """Return the start time of the trial, moved later by the time for which it waited for devices of this machine."""
    if trial.waiting is None or trial.jobs:
        return trial.started_at
    return now - trial.worked_s(now)


def add_run(trial: Trial, run: FinishedRun) -> Trial:
    """Return the started trial with one more finished run, for a trial that measures its layout in several runs.

    The run replaces an earlier run with the same number.
    """
    check_running(trial.id, trial.state)
    others = tuple(known for known in trial.runs if known.number != run.number)
    return replace(trial, runs=(*others, run))


def take_over(trial: Trial) -> Trial:
    """Return a started trial, whose worker died, as queued again.

    If the trial only waited, the attempt does not count.
    """
    num_begun = _num_begun(trial) if trial.state is TrialState.WAITING else 0
    return replace(interrupt(trial), attempts=max(0, trial.attempts - num_begun))


def interrupt(trial: Trial) -> Trial:
    """Return a trial, whose attempt was interrupted, as queued again.

    The attempt counts towards the allowed number of attempts. Finished runs of the trial are kept.
    """
    steps = trial.steps if trial.runs else ()  # steps belong to the first run
    return replace(trial, state=trial.state.to(TrialState.QUEUED), started_at=None, steps=steps, waiting=None)


def again(trial: Trial) -> Trial:
    """Return a cancelled trial as queued again, with its number of attempts set to 0.

    A trial is cancelled when its sweep ends before the trial. If people reopen the sweep, the trial runs after all.
    """
    queued = replace(trial, state=trial.state.to(TrialState.QUEUED), steps=(), stopped=None)
    return replace(queued, started_at=None, finished_at=None, attempts=0)


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
