"""SweepStudy: the Optuna study of a sweep, in memory, which proposes the next layout and holds the results.

It is rebuilt from the trials whenever a worker takes the sweep, when a trial is interrupted, and when a convergence
gate takes a trial's rank away. Finished trials are added with their results; the others are enqueued again under their
old numbers.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from autotuner.core.codec import from_plain
from autotuner.core.columns import Integers, LayoutColumns, concatenate
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.measurement import Measurement, ResourceCost, StepReport
from autotuner.core.objective import Metric, Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import FailureKind, PastTrial, Trial, TrialState
from autotuner.costmodel.predict import PredictionColumns
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.costmodel.scenarios import predict_under, predicted_under
from autotuner.runs.challenge import incumbent_problems
from autotuner.runs.convergence_gate import rejected_rows
from autotuner.search.sampler.full_size import SmallScale
from autotuner.search.sampler.observations import OUT_OF_MEMORY, PEAK_BYTES, STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.propose import MemoryBelief, Proposal
from autotuner.search.sampler.proxies import rows_of
from autotuner.search.space.legal import legal_layouts
from autotuner.search.space.moves import neighbours
from autotuner.search.space.trainers import trial_rules

if TYPE_CHECKING:
    from optuna.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """The layouts that a sweep may try (its candidates), each with its predicted speed and memory."""

    layouts: LayoutColumns
    """The legal layouts of the space, and the incumbent if it lies outside the space."""
    predictions: PredictionColumns
    """Predictions of these layouts."""
    small: SmallScale | None
    """The proxy trials that run instead of these layouts if trials have fewer ranks than the job; else None."""

    @classmethod
    def of(cls, request: SweepRequest) -> Candidates:
        """Return the layouts that a sweep with this request may try, with their predictions."""
        layouts = _layouts(request)
        small = SmallScale(request, request.small_cluster, layouts) if request.small_cluster else None
        layouts = small.trials.layouts if small else layouts
        predictions = predict_under(layouts, request.trial_job, request.fault_trace)
        return cls(layouts=layouts, predictions=predictions, small=small)

    def __len__(self) -> int:
        return len(self.layouts)

    @property
    def num_fitting(self) -> int:
        """Return the number of layouts of the sweep that are predicted to fit in memory."""
        return int(np.count_nonzero(self.predictions.fits))

    @property
    def least_bytes(self) -> float:
        """Return the smallest predicted peak memory of the sweep's layouts, in bytes; infinite without layouts."""
        return float(self.predictions.memory.total_bytes.min(initial=math.inf))

    def sampler(self, request: SweepRequest, past: Sequence[PastTrial] = ()) -> LayoutSampler:
        """Return the sampler of the sweep, which proposes one layout to try after the other.

        It learns from the trials of this sweep and from ``past``, trials of earlier sweeps.
        """
        return LayoutSampler(
            self.layouts,
            self.predictions,
            job=request.trial_job,
            objective=request.objective,
            seed=request.seed,
            scale_down=self.small.run_of if self.small else None,
            same_trial=self.small.trials.which if self.small else None,
            past=past,
        )


def rows_beside_incumbent(request: SweepRequest, layouts: LayoutColumns) -> Integers:
    """Return the row numbers of the layouts that differ in exactly one option from the layout that is in use today.

    The result is empty if the request names no such layout (``challenge.incumbent``).
    """
    if request.challenge is None or request.challenge.incumbent is None:
        return np.empty(0, dtype=np.int64)
    steps = neighbours(request.challenge.incumbent, request.trial_job)
    return np.concatenate([np.empty(0, dtype=np.int64), *(rows_of(layouts, step) for step in steps)])


def _layouts(request: SweepRequest) -> LayoutColumns:
    challenge = request.challenge
    if challenge is None or challenge.incumbent is None:
        return legal_layouts(request.legal_job, request.space, trial_rules(request.trainer))
    own = LayoutColumns.from_layouts([] if incumbent_problems(request) else [challenge.incumbent])
    if not challenge.searches:
        return own
    searched = legal_layouts(request.legal_job, request.space, trial_rules(request.trainer))
    return searched if rows_of(searched, challenge.incumbent).size else concatenate((searched, own))


HEALTHY_VALUE = "healthy_value"
"""User attribute of an Optuna trial: the value of its steps without faults, if its own value includes steps with
faults. With a Pareto front, it has one value for each metric."""


class LosingPruner(BasePruner):
    """A pruner that ends a trial if its best reported value stays below a fraction of the best finished trial's value.

    The pruner uses the best report and not the latest, so that one disturbed step does not end a good trial. It works
    only for studies that maximise. Reports describe steps on links without faults, and are compared with such steps of
    finished trials.

    Args:
        fraction: Fraction of the best value; 0.0 never prunes.
        min_reports: Number of reports before the pruner may end a trial.
    """

    def __init__(self, fraction: float, *, min_reports: int = 2) -> None:
        self._fraction = fraction
        self._min_reports = min_reports

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return True if ``trial`` should end now, because its best report is far below the best finished trial."""
        finished = study.get_trials(deepcopy=False, states=(OptunaState.COMPLETE,))
        values: list[float] = [t.user_attrs.get(HEALTHY_VALUE, t.value) for t in finished if t.value is not None]
        reports = trial.intermediate_values.values()
        if not values or len(reports) < self._min_reports:
            return False
        return max(reports) < self._fraction * max(values)

    def falls_behind(
        self, reports: Sequence[Sequence[float]], finished: Iterable[Sequence[float]], metrics: Sequence[Metric]
    ) -> bool:
        """Return True if a trial of a study with several metrics (a Pareto front) should end now.

        The trial should end if a finished trial would still be at least as good in every metric after the best report
        of this trial became better by the factor ``1 / fraction``.

        Args:
            reports: For each step of the trial, its values by metric.
            finished: For each trial that was measured, its values by metric.
            metrics: The metrics of the Pareto front.
        """
        if len(reports) < self._min_reports or not self._fraction:
            return False
        best = max(reports, key=tuple)  # the fastest: all values but rates are equal
        reachable = [value / self._fraction if m.is_rate else value for value, m in zip(best, metrics, strict=True)]
        return any(all(map(operator.ge, other, reachable)) for other in finished)


class ValueFactors:
    """Computes the part of an objective's value that does not depend on the step time: its value per step.

    The value of a layout is its value per step divided by its step time. For tokens per second, for example, the value
    per step is the number of tokens of a step.
    """

    def __init__(self, request: SweepRequest) -> None:
        self._objective = request.objective
        self._job = request.trial_job
        self._trace = request.fault_trace
        self._modelled: dict[Layout, ResourceCost] = {}

    def reached(self, reached: Measurement | TrialEstimate) -> float:
        """Return the value per step of a measured layout: the objective's value times the step time.

        It is computed from the resources in the measurement.
        """
        return self._objective.value_per_step(self._job, reached.resource_cost)

    def predicted(self, layout: Layout) -> float:
        """Return the value per step of an unmeasured layout: the objective's value times the step time.

        It is computed from the resources that the layout is predicted to use.
        """
        return self._objective.value_per_step(self._job, self.modelled(layout))

    def front(self, resource_cost: ResourceCost | None, step_time_s: float) -> tuple[float, ...]:
        """Return a layout's value in each metric of the Pareto front, computed from its resource cost and step time.

        ``resource_cost`` holds the resources that the layout uses besides time.
        """
        return tuple(self._value(metric, resource_cost, step_time_s) for metric in self._objective.front)

    def modelled(self, layout: Layout) -> ResourceCost | None:
        """Return the predicted resource cost of a layout: the resources that it uses besides time.

        It is None if the objective does not depend on the resource cost.
        """
        if not self._objective.reads_resource_cost:
            return None
        if layout not in self._modelled:
            prediction = predicted_under(layout, self._job, self._trace)
            self._modelled[layout] = resource_cost_of(layout, self._job, prediction)
        return self._modelled[layout]

    def _value(self, metric: Metric, resource_cost: ResourceCost | None, step_time_s: float) -> float:
        if metric.is_rate:
            return Objective(metric=metric).value_per_step(self._job, resource_cost) / step_time_s
        assert resource_cost is not None  # requests for clusters without this value were refused
        return metric.share(resource_cost)


class SweepStudy:
    """The Optuna study of a sweep, with the trials that the sweep ordered and their outcomes, by trial number.

    Args:
        request: The request of the sweep.
        candidates: The layouts that may be tried.
        trials: All trials that are stored so far, by number.
        past: Trials of earlier sweeps from which the search learns.
    """

    def __init__(
        self,
        request: SweepRequest,
        candidates: Candidates,
        trials: Mapping[int, Trial],
        past: Sequence[PastTrial] = (),
    ) -> None:
        self._request = request
        self._small = candidates.small
        self._factors = ValueFactors(request)
        self._sampler = candidates.sampler(request, past)
        self._asked: dict[int, optuna.Trial] = {}  # trials that were ordered and have not ended, by number
        self._ordered: dict[int, Layout] = {}  # their layouts, since Optuna copies its parameters at each access
        self._interrupted: dict[int, optuna.Trial] = {}  # trials to order again, by number
        self._reported: dict[int, list[tuple[float, ...]]] = {}  # with a Pareto front: values by running trial
        self._layouts = candidates.layouts
        self._beside_incumbent = rows_beside_incumbent(request, candidates.layouts)
        self._study = self._rebuilt(trials)

    @property
    def study(self) -> optuna.Study:
        """Return the Optuna study, for plots and tests. Its trials are copies of the sweep's trials."""
        return self._study

    @property
    def running(self) -> Collection[int]:
        """Return the numbers of the trials that were ordered and have not ended yet."""
        return self._asked.keys()

    @property
    def has_interrupted(self) -> bool:
        """Return True if an interrupted trial has to run again before the sweep tries a new layout."""
        return bool(self._interrupted)

    @property
    def _pruner(self) -> LosingPruner:
        return LosingPruner(self._request.budget.prune_below)

    # ------------------------------------------------------------------ ordering
    def again(self) -> tuple[int, Layout]:
        """Order the interrupted trial with the lowest number again, and return its number and its layout."""
        return self._order(self._interrupted.pop(min(self._interrupted)))

    def ask(self, layout: Layout | None = None) -> tuple[int, Layout]:
        """Order a new trial (add it to the running trials of the study), and return its number and its layout.

        If ``layout`` is None, the sampler chooses the most promising layout.
        """
        if layout is not None:
            self._study.enqueue_trial(params_of(layout))
        return self._order(self._study.ask(self._sampler.distributions))

    def propose(self) -> Proposal | None:
        """Return the layout that ``ask`` would order next, with its expected gain; None if no layout is left.

        The sampler caches this proposal.
        """
        return self._sampler.propose(self._study.get_trials(deepcopy=False))

    def memory(self) -> MemoryBelief:
        """Return what the sampler expects of the peak memory of the layouts that were not tried yet."""
        return self._sampler.memory(self._study.get_trials(deepcopy=False))

    def proposed(self, proposal: Proposal) -> Layout:
        """Return the layout that the sampler proposes to try next."""
        return self._layouts.row(proposal.row)

    def beside_incumbent(self) -> Proposal | None:
        """Return the most promising layout that differs in one option from the layout in use (the incumbent).

        It is None if no such layout promises as much gain as the budget requires.
        """
        if not self._beside_incumbent.size:
            return None
        trials = self._study.get_trials(deepcopy=False)
        proposal = self._sampler.propose_among(self._beside_incumbent, trials)
        if proposal is None or proposal.expected_gain < self._request.budget.min_gain:
            return None
        return proposal

    def _order(self, asked: optuna.Trial) -> tuple[int, Layout]:
        self._asked[asked.number] = asked
        params = asked.params  # Optuna copies them at each access
        self._ordered[asked.number] = from_plain(Layout, {name: params[name] for name in OPTIONS})
        return asked.number, self._ordered[asked.number]

    # ------------------------------------------------------------------ learning
    def layout(self, number: int) -> Layout:
        """Return the layout of the running trial with that number."""
        return self._ordered[number]

    def loses(self, number: int, step: StepReport) -> bool:
        """Return True if a running trial should end after this step because it is much worse than finished trials."""
        if not self._request.objective.front:
            self._asked[number].report(self.value_of(self.layout(number), step), step.step)
            return self._asked[number].should_prune()
        # Optuna prunes no trial of a study with several objectives.
        reports = self._reported.setdefault(number, [])
        reports.append(self.values_of(self.layout(number), step))
        finished = self._study.get_trials(deepcopy=False, states=(OptunaState.COMPLETE,))
        others = [one.user_attrs[HEALTHY_VALUE] for one in finished if HEALTHY_VALUE in one.user_attrs]
        return self._pruner.falls_behind(reports, others, self._request.objective.front)

    def tell(self, trial: Trial) -> None:
        """Record the outcome of a running trial in the Optuna study, from which the sampler learns."""
        asked = self._asked.pop(trial.number)
        del self._ordered[trial.number]
        for key, attribute in self._attributes(trial).items():
            asked.set_user_attr(key, attribute)
        self._reported.pop(trial.number, None)
        self._study.tell(trial.number, self._values(trial), state=_optuna_state(trial))

    def drop(self, number: int) -> None:
        """Forget a trial that was ordered but has not ended, because it was interrupted.

        Call ``rebuild`` before ``ask`` or ``propose`` is called again.
        """
        del self._asked[number], self._ordered[number]
        self._reported.pop(number, None)

    # ------------------------------------------------------------------ rebuilding
    def rebuild(self, trials: Mapping[int, Trial]) -> None:
        """Build the Optuna study again from these trials, for example after estimates changed.

        Running trials continue.
        """
        self._study = self._rebuilt(trials)

    def change_budget(self, budget: Budget, trials: Mapping[int, Trial]) -> None:
        """Build the Optuna study again with another budget, because the sampler and the pruner depend on its limits.

        The limits decide when a trial ends early and when no gain is left.
        """
        self._request = replace(self._request, budget=budget)
        self.rebuild(trials)

    def _rebuilt(self, trials: Mapping[int, Trial]) -> optuna.Study:
        study = self._empty()
        self._sampler.rule_out(rejected_rows(self._layouts, trials.values()))
        layouts = {number: trial.layout for number, trial in trials.items()}
        layouts |= self._ordered
        finished = {number for number, trial in trials.items() if trial.state.finished}
        for number, layout in sorted(layouts.items()):
            if number in finished:
                study.add_trial(self._frozen(trials[number]))
            else:
                study.enqueue_trial(params_of(layout))
        open_trials = {n: study.ask(self._sampler.distributions) for n in sorted(layouts.keys() - finished)}
        self._interrupted = {number: one for number, one in open_trials.items() if number not in self._asked}
        self._asked = {number: open_trials[number] for number in self._asked}
        return study

    def _empty(self) -> optuna.Study:
        directions = [StudyDirection.MAXIMIZE] * (len(self._request.objective.front) or 1)
        return optuna.create_study(directions=directions, sampler=self._sampler, pruner=self._pruner)

    def _frozen(self, trial: Trial) -> optuna.trial.FrozenTrial:
        is_compared = not trial.layout.is_emulated and not self._request.objective.front
        measured = [step for step in trial.steps if step.is_measured] if is_compared else []
        return optuna.trial.create_trial(
            state=_optuna_state(trial),
            values=self._values(trial),
            params=params_of(trial.layout),
            distributions=self._sampler.distributions,
            user_attrs=self._attributes(trial),
            intermediate_values={step.step: self.value_of(trial.layout, step) for step in measured},
        )

    # ------------------------------------------------------------------ values
    def _values(self, trial: Trial) -> Sequence[float] | None:
        """Return the values of a trial for the study: its value, or one for each metric of the Pareto front.

        All of them are computed from the step time, so that they are comparable. None if the trial has no valid result.
        """
        if trial.reached is None or not trial.is_valid:
            return None
        step_time_s = self._request.objective.counted(trial.reached).step_time_s
        if self._request.objective.front:
            return self._factors.front(trial.reached.resource_cost, step_time_s)
        return [self._factors.reached(trial.reached) / step_time_s]

    def healthy_value(self, trial: Trial) -> float | None:
        """Return the objective's value for a trial's steps on links without faults; None if the trial cannot be ranked.

        The steps of running trials are compared with this value.
        """
        if trial.reached is None or not trial.is_valid:
            return None
        return self._factors.reached(trial.reached) / trial.reached.step_time_s

    def value_of(self, layout: Layout, step: StepReport) -> float:
        """Return the objective's value for one step of a running trial, such as its MFU or tokens per second.

        If the trial is a proxy trial (on fewer ranks than the job), the value is scaled to full size with the help of
        the cost model.
        """
        return self._factors.predicted(layout) / self._full_size_s(layout, step)

    def values_of(self, layout: Layout, step: StepReport) -> tuple[float, ...]:
        """Return the value of one step of a running trial in each metric of the sweep's Pareto front.

        If the trial is a proxy trial, the values are scaled to full size as in ``value_of``.
        """
        return self._factors.front(self._factors.modelled(layout), self._full_size_s(layout, step))

    def _full_size_s(self, layout: Layout, step: StepReport) -> float:
        return (self._small.growth(layout) if self._small else 1.0) * step.step_time_s

    def _attributes(self, trial: Trial) -> dict[str, bool | float | tuple[float, ...]]:
        """Return the attributes of a trial that the sampler learns from or the pruner compares with."""
        if trial.failure:
            return {OUT_OF_MEMORY: trial.failure.kind == FailureKind.OOM}
        if trial.ran_measurement:
            counted, healthy = self._request.objective.counted(trial.ran_measurement), self._healthy(trial)
            healthy_value = {} if healthy is None else {HEALTHY_VALUE: healthy}
            return {STEP_TIME_S: counted.step_time_s, **healthy_value, **self._memory(trial.ran_measurement)}
        measured = [step.step_time_s for step in trial.steps if step.is_measured]
        return {STEP_TIME_S: self._slowdown(trial) * statistics.median(measured)} if measured else {}

    def _healthy(self, trial: Trial) -> float | tuple[float, ...] | None:
        """Return the value, or one for each metric of the front, that steps of a running trial are compared with."""
        if not self._request.objective.front or trial.reached is None or not trial.is_valid:
            return self.healthy_value(trial)
        return self._factors.front(trial.reached.resource_cost, trial.reached.step_time_s)

    def _slowdown(self, trial: Trial) -> float:
        """Return the predicted ratio between the step time that counts and the step time without faults."""
        return self._request.objective.predicted_step_s(trial.prediction) / trial.prediction.step_time.total_s

    def _memory(self, measured: Measurement) -> dict[str, float]:
        """Return the peak memory to compare with predictions; empty if it is unknown.

        A trainer may not report it, and on CPU cores it would include the memory of the interpreter.
        """
        is_of_process = self._request.trainer is not None and self._request.job.cluster.accelerator.kind == "cpu"
        return {PEAK_BYTES: max(measured.peak_bytes)} if measured.peak_bytes and not is_of_process else {}


_OPTUNA_STATE = {
    TrialState.COMPLETE: OptunaState.COMPLETE,
    TrialState.PRUNED: OptunaState.PRUNED,
    TrialState.FAILED: OptunaState.FAIL,
    TrialState.CANCELLED: OptunaState.FAIL,
}


def _optuna_state(trial: Trial) -> OptunaState:
    """Return the Optuna state of a trial.

    A measured trial that may not rank counts as failed, so that it is neither the best nor used to prune others.
    """
    if trial.layout.is_emulated or (trial.ran_measurement and not trial.is_valid):
        return OptunaState.FAIL
    return _OPTUNA_STATE[trial.state]
