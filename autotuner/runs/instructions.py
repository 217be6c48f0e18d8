"""Instructions of a sweep: the next action, and when to give up the sweep or one of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.convergence_gate import GateResult
from autotuner.core.layout import Layout
from autotuner.core.objective import WORTHWHILE_GAIN
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, RunTrial, SweepRequest
from autotuner.core.trial import EngineJobPhase, FailureKind, Outcome, Stopped, Trial, TrialFailure
from autotuner.core.units import format_seconds
from autotuner.search.sampler.pareto import adds_to_front, trial_values

_MAX_FAULTS_IN_A_ROW = 8
"""Number of failures in a row after which the machine is assumed to be at fault, and not the layouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The wall-clock time and the accelerator-hours that a sweep has used."""

    elapsed_s: float
    accelerator_hours: float

    def and_then(self, more: Spending) -> Spending:
        """Return the sum of this spending and ``more``."""
        hours = self.accelerator_hours + more.accelerator_hours
        return Spending(elapsed_s=self.elapsed_s + more.elapsed_s, accelerator_hours=hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """An instruction of the sweep's machine to its worker: end the sweep with this state, for this reason."""

    state: RunState
    reason: StopReason
    detail: str


def finish(reason: StopReason, detail: str, trials: Sequence[Trial]) -> Finish:
    """Return the instruction to end a sweep for a reason. A sweep without a measured trial ends as failed."""
    if any(trial.ran_measurement for trial in trials):
        return Finish(state=RunState.COMPLETE, reason=reason, detail=f"{detail}{_noise(trials)}")
    deaths = [trial.failure.kind for trial in trials if trial.failure]
    memory = f", {deaths.count(FailureKind.OOM)} ran out of memory" if FailureKind.OOM in deaths else ""
    return Finish(state=RunState.FAILED, reason=reason, detail=f"{detail}; no trial was measured{memory}")


def spent(budget: Budget, spending: Spending, *, share: float = 1.0) -> tuple[StopReason, str] | None:
    """Return which budget is used up, wall-clock time or accelerator-hours, and an explanation; None if neither is.

    With a ``share`` below 1, a budget counts as used up once that fraction of it is used.
    """
    elapsed_s, hours = spending.elapsed_s, spending.accelerator_hours
    if budget.wall_clock_s is not None and elapsed_s >= share * budget.wall_clock_s:
        return StopReason.TIME_BUDGET, f"{format_seconds(elapsed_s)} of {format_seconds(budget.wall_clock_s)} passed"
    if budget.accelerator_hours is not None and hours >= share * budget.accelerator_hours:
        used = f"{hours:.3g} of {budget.accelerator_hours:.3g} accelerator-hours used"
        return StopReason.ACCELERATOR_HOURS_BUDGET, used
    return None


def nothing_runs(ended: Sequence[Trial]) -> tuple[StopReason, str] | None:
    """Return a reason to stop the sweep if all of its last trials failed, not for lack of memory; otherwise None."""
    faults = 0
    for trial in ended:
        is_fault = trial.failure is not None and trial.failure.kind != FailureKind.OOM
        faults = faults + 1 if is_fault else 0
    if faults < _MAX_FAULTS_IN_A_ROW:
        return None
    return StopReason.ALL_TRIALS_FAIL, f"the last {faults} trials failed, and none of them because of memory"


def no_improvement(request: SweepRequest, ended: Sequence[Trial]) -> tuple[StopReason, str] | None:
    """Return a reason to stop the sweep if the patience of its budget is used up, or None.

    Patience is the number of trials in a row that do not beat the best earlier one by 1 %. For an objective with
    several metrics (a Pareto front), a trial does not count as an improvement if one earlier trial is within 1 % of it,
    or better, in every metric.
    """
    objective, patience = request.objective, request.budget.patience
    best, earlier, since = 0.0, list[tuple[float, ...]](), 0
    for trial in ended:
        if objective.front:
            found = trial_values(objective, objective.front, [trial] if trial.is_ranked else [])
            is_better = bool(found) and adds_to_front(found[0].values, earlier)
            earlier += [one.values for one in found]
        else:
            value = objective.value(trial.reached) if trial.reached and trial.is_ranked else 0.0
            is_better = value > best * (1 + WORTHWHILE_GAIN)
            best = max(best, value)
        since = 0 if is_better else since + 1
    if patience is None or not (best or earlier) or since < patience:
        return None
    gain = f"{100 * WORTHWHILE_GAIN:g} %"
    lacked = f"add {gain} to the Pareto front" if objective.front else f"beat the best by {gain}"
    return StopReason.NO_IMPROVEMENT, f"{since} trials in a row did not {lacked}"


def _noise(trials: Sequence[Trial]) -> str:
    """Return the words that say by how much repeats of one trial differed; empty if no trial ran more than once."""
    floors = [trial.ran_measurement.noise_floor for trial in trials if trial.ran_measurement]
    known = [floor for floor in floors if floor is not None]
    return f"; repeats of one trial differed by up to {100 * max(known):.1f} %" if known else ""


MAX_ATTEMPTS = 3
"""Number of times that a trial may be started. After that, whatever ended it is expected to end it again. Continuing
with a job that still runs does not count."""


def given_up(trial: Trial) -> TrialFailure | None:
    """Return the failure of a queued trial that has been started too often, or None if the trial may start.

    A trial whose engine job still runs may always start, because the worker finds that job again.
    """
    if trial.job_goes_on or trial.attempts < MAX_ATTEMPTS:
        return None
    last = trial.jobs[-1] if trial.jobs else None
    if last is not None and last.phase is EngineJobPhase.LOST:
        return _lost(trial, last.detail)
    message = f"interrupted {trial.attempts} times: the service ended each time while this trial ran"
    return TrialFailure(kind=FailureKind.INTERRUPTED, message=message)


def unless_lost_again(trial: Trial, outcome: Outcome) -> Outcome:
    """Return the outcome of a trial, or a failure if its last allowed attempt ended because of the infrastructure.

    The infrastructure is the machine or the engine, for example a node that died. After earlier attempts, such a trial
    is queued again.
    """
    if isinstance(outcome, Stopped) and outcome.reason == "infrastructure" and trial.attempts >= MAX_ATTEMPTS:
        return _lost(trial, outcome.detail)
    return outcome


def _lost(trial: Trial, detail: str) -> TrialFailure:
    message = lost_in_words(trial.attempts, detail, on_engine=bool(trial.jobs))
    return TrialFailure(kind=FailureKind.INFRASTRUCTURE, message=message)


def lost_in_words(num_attempts: int, detail: str, *, on_engine: bool) -> str:
    """Describe that the infrastructure ended every attempt at a trial or a job, and how the last attempt ended."""
    last = f"; the last time: {detail}" if detail else ""
    what = "its nodes were lost or never became available" if on_engine else "its ranks were killed or found no memory"
    return f"{what} in {num_attempts} attempts{last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """An instruction of the sweep's machine: run a layout again while no other trial runs.

    Its runs can then be compared, because no other trial disturbs them.
    """

    layout: Layout
    repeats: int | None
    """Number of the layout's first measured trial; None if there is none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGate:
    """An instruction of the sweep's machine: run a convergence gate.

    The gate trains the layout of a trial and the layout ``reference``, and compares their losses.
    """

    trial: Trial
    reference: Layout
    known: GateResult | None = None
    """Verdict that another trial's gate gives for this trial, so that no training is needed."""


@dataclass(frozen=True, slots=True)
class Wait:
    """An instruction of the sweep's machine: start nothing new until a running trial or gate has ended."""


Instruction = RunTrial | RunGate | Wait | Finish
