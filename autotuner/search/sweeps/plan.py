"""One sweep as a state machine without I/O: finished trials go in, instructions come out.

The Optuna study lives in memory only. It is rebuilt from the trials whenever a worker picks the sweep up, and when a
loss gate takes a trial's rank away: finished trials are added as they ended, an interrupted one is enqueued again under
its old number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.trial import TrialState as OptunaState

from autotuner.costmodel.predict import predict, predict_one
from autotuner.domain.layouts.layout import LAYOUT_FIELDS, Layout
from autotuner.domain.runs.engine_job import EngineJob
from autotuner.domain.runs.estimate import TrialEstimate
from autotuner.domain.runs.loss_gate import GateOutcome
from autotuner.domain.runs.prediction import Prediction
from autotuner.domain.runs.scaled import ScaledTrial
from autotuner.domain.runs.sweep import StopReason, SweepRequest
from autotuner.domain.runs.trial import FailureKind, Measurement, StepReport, Stopped, Trial, TrialState
from autotuner.domain.wire import from_dict
from autotuner.search.expressible import trial_rules
from autotuner.search.sampler.layout_sampler import OUT_OF_MEMORY, PEAK_BYTES, STEP_TIME_S, LayoutSampler, params_of
from autotuner.search.space import legal_layouts
from autotuner.search.sweeps.gate_cost import GateCost
from autotuner.search.sweeps.pruner import LosingPruner
from autotuner.search.sweeps.small_scale import SmallScale
from autotuner.search.sweeps.stopping import Finish, finish, no_improvement, nothing_runs, percent, spent
from autotuner.units import format_bytes

__all__ = ["Finish", "Instruction", "RunGate", "RunTrial", "SweepPlan", "Wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrial:
    """Try this layout.

    Attributes:
        stored: The interrupted trial to try again, or None for a new one.
        scaled: What runs in its place, where trials have fewer ranks than their job.
    """

    number: int
    layout: Layout
    prediction: Prediction
    stored: Trial | None
    scaled: ScaledTrial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGate:
    """Train what ran as a complete trial beside ``reference``, and compare their losses."""

    trial: Trial
    reference: Layout


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing new may begin until something that runs has ended."""


Instruction = RunTrial | RunGate | Wait | Finish


class SweepPlan:
    """Decides what a sweep does next, however many of its trials run at once.

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
        layouts = legal_layouts(self._job, request.space, trial_rules(request.trainer))
        self._small = SmallScale(request, request.small_cluster, layouts) if request.small_cluster else None
        layouts = self._small.trials.layouts if self._small else layouts
        self._num_layouts = len(layouts)
        predictions = predict(layouts, self._job)
        self._least_bytes = float(predictions.memory.total_bytes.min(initial=math.inf))
        self._sampler = LayoutSampler(
            layouts,
            predictions,
            job=self._job,
            objective=request.objective,
            seed=request.seed,
            scale_down=self._small.stand_in if self._small else None,
            same_trial=self._small.trials.which if self._small else None,
        )
        self._asked: dict[int, optuna.Trial] = {}  # ordered and not yet ended, by number
        self._interrupted: dict[int, optuna.Trial] = {}  # to be ordered again, by number
        self._gates: dict[int, GateCost] = {}  # of those that run, by their trial's number
        self._study = self._rebuilt()

    # ------------------------------------------------------------------ instructions
    def next(self, now: float) -> Instruction:
        """What to begin now beside what runs already."""
        is_spent = self._spent(now) is not None
        if not is_spent and (gate := self._due_gate()):
            return gate
        if not self._interrupted and (end := self._reason_to_stop(now)):
            return Wait() if self._asked or self._gates else end
        asked = self._interrupted.pop(min(self._interrupted, default=-1), None)
        asked = asked or self._study.ask(self._sampler.distributions)
        self._asked[asked.number] = asked
        layout = _layout_of(asked)
        stored = self._trials.get(asked.number)
        prediction = stored.prediction if stored else predict_one(layout, self._job)
        scaled = self._small.scaled(layout) if self._small else None
        return RunTrial(number=asked.number, layout=layout, prediction=prediction, stored=stored, scaled=scaled)

    @property
    def reference_flop_per_s(self) -> float | None:
        """Peak of one rank that every MFU of the sweep is a share of; None until the first trial has measured it.

        No data sheet says what a core multiplies: where that was not measured with the cluster, the first trial does.
        """
        accelerator = self._request.job.cluster.accelerator
        if accelerator.peak_is_measured or accelerator.kind != "cpu":
            return accelerator.reference_flop_per_s
        told = ((t.measurement, t.ran) for _, t in sorted(self._trials.items()) if t.measurement)
        return next((measured.peak_flop_per_s / ran.world_size for measured, ran in told), None)

    def tells_noise(self, number: int) -> bool:
        """Whether this trial is the one that should tell what equal runs differ by: the first that may be measured."""
        return number == min(self._asked, default=None) and not any(t.measurement for t in self._trials.values())

    @property
    def has_jobs_left(self) -> bool:
        """Whether engines may still run jobs of trials that were interrupted."""
        left = (t for t in self._trials.values() if not t.state.finished and t.number not in self._asked)
        return any(not job.phase.is_over for trial in left for job in trial.jobs)

    # ------------------------------------------------------------------ events
    def started(self, trial: Trial) -> None:
        """The trial that ``next`` ordered runs; from now on it costs."""
        self._trials[trial.number] = trial

    def placed(self, trial: Trial) -> None:
        """A running trial's job stands elsewhere now, which says what it costs."""
        self._trials[trial.number] = trial

    def reported(self, number: int, step: StepReport) -> Stopped | None:
        """Whether the running trial should end after this step because it already loses."""
        asked = self._asked[number]
        if step.is_warmup or _layout_of(asked).is_emulated:
            return None
        value = self._value_of(_layout_of(asked), step)
        asked.report(value, step.step)
        if not asked.should_prune():
            return None
        return Stopped(reason="pruned", detail=self._losing(value))

    def overspent(self, now: float) -> Stopped | None:
        """Whether the time or the accelerator-hours ran out while something runs."""
        over = self._spent(now)
        return None if over is None else Stopped(reason="budget", detail=over[1])

    def finished(self, trial: Trial) -> None:
        """Learn how a trial that ``next`` ordered ended."""
        self._trials[trial.number] = trial
        asked = self._asked.pop(trial.number)
        for key, attribute in self._attributes(trial).items():
            asked.set_user_attr(key, attribute)
        self._study.tell(trial.number, self._value(trial), state=_optuna_state(trial))

    def estimates(self, *ended: Trial) -> Mapping[str, TrialEstimate]:
        """What is estimated at full size of every trial that was measured, by its id; nothing where all run whole.

        Args:
            ended: Trials that ended just now.
        """
        trials = {**self._trials, **{trial.number: trial for trial in ended}}
        if self._small is None or not any(trial.measurement for trial in trials.values()):
            return {}
        self._trials = trials  # the first to be measured may tell what MFU is a share of
        reference = self.reference_flop_per_s
        assert reference is not None, "a measured trial tells it, if nothing else does"
        return self._small.estimates(trials.values(), reference)

    def estimated(self, trials: Sequence[Trial]) -> None:
        """Learn which estimates were stored."""
        had_none = [trial.number for trial in trials if self._trials[trial.number].estimate is None]
        self._trials.update({trial.number: trial for trial in trials})
        if not set(had_none) <= self._asked.keys():
            self._study = self._rebuilt()

    @property
    def lacks_estimates(self) -> bool:
        """Whether a small trial was measured and nothing was stored of what that tells at full size."""
        return any(trial.measurement and trial.reached is None for trial in self._trials.values())

    def given_back(self, trial: Trial) -> None:
        """A trial that ``next`` ordered was interrupted; it is queued, and ordered again as if it had not begun."""
        self._trials[trial.number] = trial
        self._asked.pop(trial.number)
        self._study = self._rebuilt()

    def gate_started(self, trial: Trial, now: float) -> None:
        """The loss gate that ``next`` ordered runs; from now on it costs."""
        self._gates[trial.number] = GateCost(began_at=now)

    def gate_placed(self, trial: Trial, job: EngineJob) -> None:
        """A job of a running loss gate stands elsewhere now, which says what it costs."""
        self._gates[trial.number] = self._gates[trial.number].placed(job)

    def gate_jobs(self, trial: Trial) -> tuple[EngineJob, ...]:
        """What engines were given for the trial's running loss gate."""
        return tuple(self._gates[trial.number].jobs.values())

    def gate_hours(self, trial: Trial, now: float) -> float:
        """Accelerator-hours of the trial's running loss gate."""
        return self._gates[trial.number].seconds(now) * trial.ran.world_size / 3600

    def gate_ended(self, trial: Trial) -> None:
        """Learn what a loss gate found; one that was stopped left the trial as it was."""
        self._gates.pop(trial.number)
        self._trials[trial.number] = trial
        if trial.gate is not None and trial.gate.outcome is GateOutcome.FAILED:
            self._study = self._rebuilt()

    @property
    def study(self) -> optuna.Study:
        """For plots and tests; its trials are copies of ours."""
        return self._study

    # ------------------------------------------------------------------ rebuilding
    def _rebuilt(self) -> optuna.Study:
        study = optuna.create_study(
            direction="maximize", sampler=self._sampler, pruner=LosingPruner(self._request.budget.prune_below)
        )
        layouts = {number: trial.layout for number, trial in self._trials.items()}
        layouts |= {number: _layout_of(asked) for number, asked in self._asked.items()}
        for number, layout in sorted(layouts.items()):
            if self._is_finished(number):
                study.add_trial(self._frozen(self._trials[number]))
            else:
                study.enqueue_trial(params_of(layout))
        unfinished = [number for number in sorted(layouts) if not self._is_finished(number)]
        open_trials = {number: study.ask(self._sampler.distributions) for number in unfinished}  # in their order
        self._interrupted = {number: one for number, one in open_trials.items() if number not in self._asked}
        self._asked = {number: open_trials[number] for number in self._asked}
        return study

    def _is_finished(self, number: int) -> bool:
        """Whether it is stored as a trial that has ended."""
        trial = self._trials.get(number)
        return trial is not None and trial.state.finished

    def _frozen(self, trial: Trial) -> optuna.trial.FrozenTrial:
        measured = [] if trial.layout.is_emulated else [step for step in trial.steps if not step.is_warmup]
        return optuna.trial.create_trial(
            state=_optuna_state(trial),
            value=self._value(trial),
            params=params_of(trial.layout),
            distributions=self._sampler.distributions,
            user_attrs=self._attributes(trial),
            intermediate_values={step.step: self._value_of(trial.layout, step) for step in measured},
        )

    def _value(self, trial: Trial) -> float | None:
        """What the study is told of a trial; from its step time, so that all are told by one measure."""
        if trial.reached is None or not trial.is_ranked:
            return None
        return self._request.objective.per_step(self._job) / trial.reached.step_time_s

    def _value_of(self, layout: Layout, step: StepReport) -> float:
        """The same of one step; of a small trial, of what it would be at full size as predictions go."""
        growth = self._small.growth(layout) if self._small else 1.0
        return self._request.objective.per_step(self._job) / (growth * step.step_time_s)

    def _attributes(self, trial: Trial) -> dict[str, bool | float]:
        """What the sampler learns beside the value."""
        if trial.failure:
            return {OUT_OF_MEMORY: trial.failure.kind == FailureKind.OOM}
        if trial.measurement:
            return {STEP_TIME_S: trial.measurement.step_time_s, **self._memory(trial.measurement)}
        measured = [step.step_time_s for step in trial.steps if not step.is_warmup]
        return {STEP_TIME_S: statistics.median(measured)} if measured else {}

    def _memory(self, measured: Measurement) -> dict[str, float]:
        """Bytes to hold predictions to: a trainer may tell none, and on cores those of its interpreter, too."""
        is_of_process = self._request.trainer is not None and self._job.cluster.accelerator.kind == "cpu"
        return {PEAK_BYTES: max(measured.peak_bytes)} if measured.peak_bytes and not is_of_process else {}

    # ------------------------------------------------------------------ loss gates
    def _due_gate(self) -> RunGate | None:
        """The gate that the first of the ranking needs: it changes the mathematics, and nobody looked yet."""
        ranked = self._request.objective.ranked(self._trials.values())
        if not ranked or not self._request.loss_gate.enabled:
            return None
        first = ranked[0]
        if first.gate is not None or first.number in self._gates or not first.layout.changes_mathematics:
            return None
        reference = first.ran.mathematics_reference(self._job.cluster.accelerator.precisions)
        return RunGate(trial=first, reference=reference)

    # ------------------------------------------------------------------ reasons to stop
    def _reason_to_stop(self, now: float) -> Finish | None:
        ended = [t for _, t in sorted(self._trials.items()) if t.state.finished and t.state != TrialState.CANCELLED]
        reason = (
            nothing_runs(ended)
            or self._trials_ran(len(ended))
            or self._spent(now)
            or no_improvement(self._request, ended)
            or self._nothing_to_gain(len(ended))
        )
        return None if reason is None else finish(*reason, list(self._trials.values()))

    def _trials_ran(self, num_ended: int) -> tuple[StopReason, str] | None:
        num_trials = self._request.budget.num_trials
        if num_ended + len(self._asked) < num_trials:
            return None
        return StopReason.TRIAL_BUDGET, f"{num_ended} of {num_trials} trials ran"

    def _nothing_to_gain(self, num_ended: int) -> tuple[StopReason, str] | None:
        """What the sampler, which remembers its proposal until the next trial is asked for, says about going on."""
        left_out, min_gain = self._small.left_out if self._small else "", self._request.budget.min_gain
        tried = f"{num_ended} of {self._num_layouts} legal layouts were tried{left_out}"
        rest = "" if num_ended >= self._num_layouts else f"; {self._does_not_fit(num_ended)}"
        proposal = self._sampler.propose(self._study.get_trials(deepcopy=False))
        if proposal is None:
            return StopReason.SPACE_EXHAUSTED, f"{tried}{rest}"
        if proposal.expected_gain >= min_gain:
            return None
        gain = f"{percent(proposal.expected_gain)} of it, less than the {percent(min_gain)} asked for"
        noun = self._request.objective.noun
        return StopReason.NOTHING_TO_GAIN, f"{tried}; another is expected to raise the best {noun} by {gain}"

    def _does_not_fit(self, num_ended: int) -> str:
        """Why nothing more is proposed, with what is missing where nothing at all was tried."""
        missing_bytes = self._least_bytes - self._job.cluster.accelerator.memory_bytes
        if num_ended or missing_bytes <= 0:
            return "no other is likely to fit in memory"
        return f"none is likely to fit in memory, and the nearest lacks {format_bytes(missing_bytes)}"

    def _spent(self, now: float) -> tuple[StopReason, str] | None:
        hours = sum(trial.accelerator_hours(now) for trial in self._trials.values())
        hours += sum(self.gate_hours(self._trials[number], now) for number in self._gates)
        return spent(self._request, elapsed_s=now - self._started_at, accelerator_hours=hours)

    def _losing(self, value: float) -> str:
        objective, fraction = self._request.objective, self._request.budget.prune_below
        best = max(filter(None, map(self._value, self._trials.values())))
        at_full_size = " at full size by prediction" if self._small else ""
        below = f"below {100 * fraction:g} % of the best so far, {objective.in_words(best)}"
        return f"{objective.in_words(value)}{at_full_size}, {below}"


_OPTUNA_STATE = {
    TrialState.COMPLETE: OptunaState.COMPLETE,
    TrialState.PRUNED: OptunaState.PRUNED,
    TrialState.FAILED: OptunaState.FAIL,
    TrialState.CANCELLED: OptunaState.FAIL,
}


def _layout_of(asked: optuna.Trial) -> Layout:
    return from_dict(Layout, {name: asked.params[name] for name in LAYOUT_FIELDS})


def _optuna_state(trial: Trial) -> OptunaState:
    """One that was measured and has no rank counts as no result: it is no best, and nothing is pruned beside it."""
    if trial.layout.is_emulated or (trial.measurement and not trial.is_ranked):
        return OptunaState.FAIL
    return _OPTUNA_STATE[trial.state]
