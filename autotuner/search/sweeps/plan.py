"""One sweep as a state machine without I/O: finished trials go in, instructions come out.

The Optuna study lives in memory only. It is rebuilt from the stored trials whenever a worker picks the sweep up:
finished ones are added as they ended, an interrupted one is enqueued again under its old number.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.trial import TrialState as OptunaState

from autotuner.costmodel.predict import predict, predict_one
from autotuner.domain.choice import Precision
from autotuner.domain.layout import LAYOUT_FIELDS, Layout
from autotuner.domain.legality import RULES, TRIAL_RULES
from autotuner.domain.prediction import Prediction
from autotuner.domain.sweep import StopReason, SweepRequest, SweepState
from autotuner.domain.trial import FailureKind, StepReport, Trial, TrialState
from autotuner.domain.wire import from_dict
from autotuner.search.sampler.layout_sampler import OUT_OF_MEMORY, PEAK_BYTES, STEP_TIME_S, LayoutSampler, params_of
from autotuner.search.space import legal_layouts
from autotuner.search.sweeps.pruner import LosingPruner
from autotuner.units import format_seconds

__all__ = ["Finish", "Instruction", "RunTrial", "SweepPlan"]

_MAX_ATTEMPTS = 3
"""Starts of one trial before it is taken to be what kills the service."""

_MAX_FAULTS_IN_A_ROW = 8
"""Deaths in a row after which the fault is taken to lie in the machine, not in the layouts."""

_WORTHWHILE = 1.01
"""A trial beats the best when it is 1 % better (the default of what remains to gain, see Budget.patience)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrial:
    """Try this layout; ``stored`` is the interrupted trial to try again, or None for a new one."""

    number: int
    layout: Layout
    prediction: Prediction
    stored: Trial | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End the sweep."""

    state: SweepState
    reason: StopReason
    detail: str


Instruction = RunTrial | Finish


class SweepPlan:
    """Decides what a sweep does next.

    Args:
        request: What was asked for.
        trials: Every trial stored so far, by number.
        started_at: Epoch seconds of the sweep's first start.
    """

    def __init__(self, request: SweepRequest, trials: Sequence[Trial], *, started_at: float) -> None:
        self._request = request
        self._started_at = started_at
        self._trials = {trial.number: trial for trial in trials}
        self._job = request.trial_job
        layouts = legal_layouts(self._job, request.space, (*RULES, *TRIAL_RULES))
        self._num_layouts = len(layouts)
        self._sampler = LayoutSampler(
            layouts,
            predict(layouts, self._job),
            job=self._job,
            seed=request.seed,
        )
        self._study = optuna.create_study(
            direction="maximize", sampler=self._sampler, pruner=LosingPruner(request.budget.prune_below)
        )
        for trial in sorted(trials, key=lambda t: t.number):
            self._remember(trial)
        self._current: optuna.Trial | None = None

    # ------------------------------------------------------------------ instructions
    def next(self, now: float) -> Instruction:
        """What to do now; call it again after ``finished``."""
        waiting = [t for t in self._trials.values() if not t.state.finished]
        if not waiting and (finish := self._reason_to_stop(now)):
            return finish
        self._current = self._study.ask(self._sampler.distributions)
        layout = from_dict(Layout, {name: self._current.params[name] for name in LAYOUT_FIELDS})
        stored = self._trials.get(self._current.number)
        prediction = stored.prediction if stored else predict_one(layout, self._job)
        return RunTrial(number=self._current.number, layout=layout, prediction=prediction, stored=stored)

    @property
    def has_measured(self) -> bool:
        """Whether any trial has been measured so far."""
        return any(trial.measurement for trial in self._trials.values())

    def may_run(self, trial: Trial) -> bool:
        """False for a trial that was interrupted so often that it is probably the cause."""
        return trial.attempts < _MAX_ATTEMPTS

    def started(self, trial: Trial) -> None:
        """The trial that ``next`` ordered runs; from now on it costs."""
        self._trials[trial.number] = trial

    def overspent(self, now: float) -> bool:
        """Whether the time or the accelerator-hours ran out while a trial runs."""
        return self._spent(now) is not None

    def reported(self, step: StepReport) -> bool:
        """Whether the running trial should end after this step because it already loses."""
        if self._current is None or step.is_warmup or self._current.params["precision"] == _EMULATED:
            return False
        self._current.report(step.mfu, step.step)
        return self._current.should_prune()

    def finished(self, trial: Trial) -> None:
        """Learn how the trial that ``next`` ordered ended."""
        self._trials[trial.number] = trial
        assert self._current is not None, "finished() answers an instruction of next()"
        for key, attribute in _attributes(trial).items():
            self._current.set_user_attr(key, attribute)
        self._study.tell(trial.number, _value(trial), state=_optuna_state(trial))
        self._current = None

    @property
    def study(self) -> optuna.Study:
        """For plots and tests; its trials are copies of ours."""
        return self._study

    # ------------------------------------------------------------------ rebuilding
    def _remember(self, trial: Trial) -> None:
        params = params_of(trial.layout)
        if not trial.state.finished:
            self._study.enqueue_trial(params)
            return
        measured = [step for step in trial.steps if not step.is_warmup]
        self._study.add_trial(
            optuna.trial.create_trial(
                state=_optuna_state(trial),
                value=_value(trial),
                params=params,
                distributions=self._sampler.distributions,
                user_attrs=_attributes(trial),
                intermediate_values={} if trial.layout.is_emulated else {step.step: step.mfu for step in measured},
            )
        )

    # ------------------------------------------------------------------ reasons to stop
    def _reason_to_stop(self, now: float) -> Finish | None:
        budget, ended = self._request.budget, [t for t in self._trials.values() if t.state != TrialState.CANCELLED]
        if (faults := _last_faults(ended)) >= _MAX_FAULTS_IN_A_ROW:
            return self._end(StopReason.ALL_TRIALS_FAIL, f"the last {faults} trials died, none for lack of memory")
        if len(ended) >= budget.num_trials:
            return self._end(StopReason.TRIAL_BUDGET, f"{len(ended)} of {budget.num_trials} trials ran")
        if spent := self._spent(now):
            return spent
        if budget.patience is not None and (since := self._trials_since_best(ended)) >= budget.patience:
            return self._end(StopReason.NO_IMPROVEMENT, f"{since} trials in a row did not beat the best by 1 %")
        return self._nothing_to_gain(len(ended))

    def _nothing_to_gain(self, num_ended: int) -> Finish | None:
        """What the sampler, which remembers its proposal until the next trial is asked for, says about going on."""
        tried, min_gain = f"{num_ended} of {self._num_layouts} legal layouts were tried", self._request.budget.min_gain
        rest = "" if num_ended >= self._num_layouts else "; no other is likely to fit in memory"
        proposal = self._sampler.propose(self._study.get_trials(deepcopy=False))
        if proposal is None:
            return self._end(StopReason.SPACE_EXHAUSTED, f"{tried}{rest}")
        if proposal.expected_gain < min_gain:
            gain = f"{_percent(proposal.expected_gain)} of it, less than the {_percent(min_gain)} asked for"
            detail = f"{tried}; another is expected to raise the best MFU by {gain}"
            return self._end(StopReason.NOTHING_TO_GAIN, detail)
        return None

    def _spent(self, now: float) -> Finish | None:
        """The budgets that pass while a trial runs: wall-clock time and accelerator-hours."""
        budget = self._request.budget
        hours = sum(trial.accelerator_hours(now) for trial in self._trials.values())
        if budget.wall_clock_s is not None and now - self._started_at >= budget.wall_clock_s:
            passed = format_seconds(now - self._started_at)
            return self._end(StopReason.TIME_BUDGET, f"{passed} of {format_seconds(budget.wall_clock_s)} passed")
        if budget.accelerator_hours is not None and hours >= budget.accelerator_hours:
            detail = f"{hours:.3g} of {budget.accelerator_hours:.3g} accelerator-hours used"
            return self._end(StopReason.ACCELERATOR_HOURS_BUDGET, detail)
        return None

    def _end(self, reason: StopReason, detail: str) -> Finish:
        """A sweep that measured nothing has failed, whatever ended it."""
        if self.has_measured:
            return Finish(state=SweepState.COMPLETE, reason=reason, detail=f"{detail}{self._noise()}")
        deaths = [trial.failure.kind for trial in self._trials.values() if trial.failure]
        memory = f", {deaths.count(FailureKind.OOM)} ran out of memory" if FailureKind.OOM in deaths else ""
        return Finish(state=SweepState.FAILED, reason=reason, detail=f"{detail}; nothing was measured{memory}")

    def _noise(self) -> str:
        """What differences of step times mean little, where a trial ran more than once."""
        floors = [trial.measurement.noise_floor for trial in self._trials.values() if trial.measurement]
        known = [floor for floor in floors if floor is not None]
        return f"; equal runs differed by up to {_percent(max(known))}" if known else ""

    def _trials_since_best(self, ended: Sequence[Trial]) -> int:
        best_mfu, since = 0.0, 0
        for trial in sorted(ended, key=lambda t: t.number):
            mfu = _value(trial) or 0.0
            since = 0 if mfu > best_mfu * _WORTHWHILE else since + 1
            best_mfu = max(best_mfu, mfu)
        return since if best_mfu > 0 else 0


_OPTUNA_STATE = {
    TrialState.COMPLETE: OptunaState.COMPLETE,
    TrialState.PRUNED: OptunaState.PRUNED,
    TrialState.FAILED: OptunaState.FAIL,
    TrialState.CANCELLED: OptunaState.FAIL,
}


_EMULATED = Precision.FP8_EMULATED.label


def _optuna_state(trial: Trial) -> OptunaState:
    """One that is emulated counts as no result: it is no best, and nothing is pruned for being slower."""
    return OptunaState.FAIL if trial.layout.is_emulated else _OPTUNA_STATE[trial.state]


def _last_faults(ended: Sequence[Trial]) -> int:
    """Trials since the last that ran or ran out of memory; those died of something that layouts do not cause."""
    faults = 0
    for trial in sorted(ended, key=lambda t: t.number):
        is_fault = trial.failure is not None and trial.failure.kind != FailureKind.OOM
        faults = faults + 1 if is_fault else 0
    return faults


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _value(trial: Trial) -> float | None:
    return trial.measurement.mfu if trial.measurement and not trial.layout.is_emulated else None


def _attributes(trial: Trial) -> dict[str, bool | float]:
    if trial.failure:
        return {OUT_OF_MEMORY: trial.failure.kind == FailureKind.OOM}
    if trial.measurement:
        return {STEP_TIME_S: trial.measurement.step_time_s, PEAK_BYTES: max(trial.measurement.peak_bytes)}
    measured = [step.step_time_s for step in trial.steps if not step.is_warmup]
    return {STEP_TIME_S: statistics.median(measured)} if measured else {}
