"""Optimizer studies without I/O: which candidates to try, when a candidate loses, and when the study ends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial

from autotuner.core.errors import InvalidInput
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.study import (
    LossCurve,
    OptimizerCandidate,
    OptimizerSpace,
    OptimizerStudyRequest,
    OptimizerTrial,
    PruneReason,
    Range,
    StudyProgress,
    StudyRun,
    TargetReached,
)
from autotuner.core.trial import TrialFailure, TrialState
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, TrialSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A pair of global batch size and number of data-parallel ranks that an optimizer study tries."""

    global_batch_size: int
    data_parallel_degree: int

    def __str__(self) -> str:
        return f"{self.global_batch_size} on {self.data_parallel_degree}"

    def with_optimizer(self, optimizer: OptimizerSettings) -> OptimizerCandidate:
        """Return the candidate that trains with this batch size, these data-parallel ranks and the given optimizer."""
        batch, degree = self.global_batch_size, self.data_parallel_degree
        return OptimizerCandidate(optimizer=optimizer, global_batch_size=batch, data_parallel_degree=degree)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """The pairs of batch size and data-parallel degree that a study may try for each optimizer.

    It also has the reasons why other pairs are left out.
    """

    scales: Mapping[OptimizerName, tuple[Scale, ...]]
    """Legal scales (batch size and data-parallel degree) by optimizer. An optimizer without a legal scale is
    missing."""
    refusals: tuple[str, ...]
    """Reasons why other combinations are left out, as sentences without a full stop."""


def starts_of(request: OptimizerStudyRequest) -> Starts:
    """Return the legal combinations of optimizer, batch size and data-parallel degree of a study's space.

    Raises:
        InvalidInput: No combination is legal.
    """
    scales: dict[OptimizerName, tuple[Scale, ...]] = {}
    refusals: dict[str, None] = {}  # in order, each once
    for name in request.space.optimizers:
        legal = []
        for scale in _scales(request):
            refusal = _refusal(request, name, scale)
            if refusal is None:
                legal.append(scale)
            else:
                refusals[refusal] = None
        if legal:
            scales[name] = tuple(legal)
    if not scales:
        asked = [str(scale) for scale in _scales(request)]
        raise InvalidInput("space", asked, f"has no combination that can be tried: {next(iter(refusals))}")
    return Starts(scales=scales, refusals=tuple(refusals))


def with_trials(study: StudyRun, trials: Sequence[OptimizerTrial]) -> StudyRun:
    """Return the study run with its trials, and with the reasons why some combinations of its space are not tried."""
    return replace(study, progress=StudyProgress(trials=tuple(trials), refusals=starts_of(study.request).refusals))


def _scales(request: OptimizerStudyRequest) -> list[Scale]:
    return [
        Scale(global_batch_size=batch, data_parallel_degree=degree)
        for degree in request.data_parallel_degrees
        for batch in request.global_batch_sizes
    ]


def _refusal(request: OptimizerStudyRequest, name: OptimizerName, scale: Scale) -> str | None:
    layout = request.layout_of(scale.data_parallel_degree)
    optimizer = OptimizerSettings(name=name, learning_rate=1.0)
    if layout.data_parallel_degree != scale.data_parallel_degree:
        return f"{scale.data_parallel_degree} data-parallel ranks are not a multiple of the layout's replicas"
    if refusal := optimizer.refuses(layout):
        return f"{name}: {refusal}"
    broken = reasons(layout, request.job_of(scale.with_optimizer(optimizer)), (*RULES, *TRIAL_RULES))
    return f"{scale} data-parallel ranks: {broken[0].message}" if broken else None


_NUM_OTHERS = 5
"""Fewest curves that a candidate is compared with, as in Optuna's ``MedianPruner``."""


_NUM_STEPS = 3
"""Number of steps before which a candidate's speed is unknown: the first step allocates memory, and a second gives no
median."""


class Pruning:
    """Two rules that end trials of an optimizer study early, because they will not find a better candidate.

    First, a trial ends if another trial reached the target loss in less time and with fewer accelerator-hours than this
    trial has used already. Such a trial can no longer be on the Pareto front of time and accelerator-hours. Second, a
    trial ends if its loss is above the median of the best losses of the ended trials, both at equal time and at equal
    accelerator-hours (the median stopping rule of Google Vizier, doi 10.1145/3097983.3098043). Both rules look at time
    and at accelerator-hours, because either may be the scarce resource.
    """

    def __init__(self, request: OptimizerStudyRequest, others: Sequence[OptimizerTrial]) -> None:
        self._window = request.window_sequences
        self._reached = [trial for trial in others if trial.reached is not None]
        self._best = [_BestLosses(trial, self._window) for trial in others if trial.curve.num_steps > 1]

    def verdict(self, trial: OptimizerTrial) -> PruneReason | None:
        """Return the reason why a running trial should end early; None if it should go on."""
        curve = trial.curve
        if curve.num_steps < _NUM_STEPS:
            return None
        time_s = curve.num_steps * curve.step_time_s
        hours = time_s * trial.world_size / 3600
        for other in self._reached:
            took = other.reached
            if took and took.time_s <= time_s and took.accelerator_hours <= hours:
                return PruneReason(time_s=took.time_s, beaten_by=other.number)
        is_warm = curve.num_samples >= self._window and curve.num_steps > trial.candidate.optimizer.warmup_steps
        return self._above_median(trial, time_s, hours) if is_warm else None

    def _above_median(self, trial: OptimizerTrial, time_s: float, hours: float) -> PruneReason | None:
        width = -(-self._window // trial.candidate.global_batch_size)
        loss = statistics.fmean(trial.curve.losses[-width:])
        by_time = [best for one in self._best if (best := one.at(time_s)) is not None]
        by_hours = [best for one in self._best if (best := one.at(hours * 3600 / one.world_size)) is not None]
        if min(len(by_time), len(by_hours)) < _NUM_OTHERS:
            return None
        median, highest = sorted((statistics.median(by_time), statistics.median(by_hours)))
        if loss <= highest:
            return None
        return PruneReason(time_s=time_s, loss=loss, median=median)


class _BestLosses:
    """The lowest loss of a trial up to each of its steps."""

    def __init__(self, trial: OptimizerTrial, window_sequences: int) -> None:
        self.world_size = trial.world_size
        self._step_time_s = trial.curve.step_time_s
        self._has_reached = trial.reached is not None
        self._losses = trial.curve.smoothed(window_sequences)

    def at(self, time_s: float) -> float | None:
        """Return the lowest loss up to a time.

        Return None if the trial ended earlier without reaching the target.
        """
        index = int(time_s / self._step_time_s) - 1
        if index >= len(self._losses) and not self._has_reached:
            return None
        return min(self._losses[: max(1, index + 1)])


_NUM_STARTUP = 10
"""Number of random candidates before TPE chooses: Optuna's own default."""

_DIVERGED = 10.0
"""Relative distance from the target that a non-finite loss counts as. It is larger than that of any finite loss."""

_FACTOR_OF_MISSES = 2.0
"""Penalty factor for candidates that miss the target within their samples: they count as at least twice as slow as any
candidate that reached it."""

Params = dict[str, float | int | str]


def propose(request: OptimizerStudyRequest, starts: Starts, trials: Sequence[OptimizerTrial]) -> OptimizerCandidate:
    """Return the next candidate of an optimizer study.

    There is one first candidate for each optimizer, with values in the middle of the optimizer's ranges. Optuna's TPE
    sampler proposes all later candidates.

    Args:
        request: The request of the study.
        starts: Combinations of optimizer, batch size and data-parallel degree that may be tried.
        trials: All trials that have ended.
    """
    number = len(trials)
    names = list(starts.scales)
    if number < len(names):
        return _middle(request.space, names[number], starts)
    sampler = optuna.samplers.TPESampler(seed=request.seed + number, n_startup_trials=_NUM_STARTUP)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    study.add_trials([frozen for trial in trials if (frozen := _frozen(request, starts, trial)) is not None])
    asked = study.ask()
    name = OptimizerName(str(asked.suggest_categorical("optimizer", [str(one) for one in names])))
    params: Params = {"optimizer": name}
    for key, distribution in _distributions(request.space, name, starts).items():
        params[key] = asked._suggest(key, distribution)  # Optuna's public functions for this have different arguments
    return _candidate(params, name, starts)


def _middle(space: OptimizerSpace, name: OptimizerName, starts: Starts) -> OptimizerCandidate:
    """Return the first candidate of an optimizer: no warm-up, and numbers in the middle of the space."""
    rate, decay = space.learning_rates(name), space.weight_decay
    settings = OptimizerSettings(
        name=name,
        learning_rate=math.sqrt(rate.low * rate.high),
        beta1=1 - math.sqrt((1 - space.beta1.low) * (1 - space.beta1.high)),
        beta2=1 - math.sqrt((1 - space.beta2.low) * (1 - space.beta2.high)),
        weight_decay=(decay.low + decay.high) / 2,
        warmup_steps=space.warmup_steps[0],
    )
    return starts.scales[name][-1].with_optimizer(settings)


def _distributions(space: OptimizerSpace, name: OptimizerName, starts: Starts) -> dict[str, BaseDistribution]:
    """Return the distributions of the numbers that are drawn for an optimizer.

    Learning rate and scale (batch size and degree) are drawn for each optimizer; all optimizers share the other
    numbers.
    """
    rate, decay = space.learning_rates(name), space.weight_decay
    return {
        f"learning_rate.{name}": FloatDistribution(rate.low, rate.high, log=True),
        "left_of_beta1": _left(space.beta1),
        "left_of_beta2": _left(space.beta2),
        "weight_decay": FloatDistribution(decay.low, decay.high),
        "warmup_steps": CategoricalDistribution(space.warmup_steps),
        f"scale.{name}": CategoricalDistribution([str(scale) for scale in starts.scales[name]]),
    }


def _left(beta: Range) -> FloatDistribution:
    return FloatDistribution(1 - beta.high, 1 - beta.low, log=True)


def _candidate(params: Params, name: OptimizerName, starts: Starts) -> OptimizerCandidate:
    scale = next(one for one in starts.scales[name] if str(one) == params[f"scale.{name}"])
    settings = OptimizerSettings(
        name=name,
        learning_rate=float(params[f"learning_rate.{name}"]),
        beta1=1 - float(params["left_of_beta1"]),
        beta2=1 - float(params["left_of_beta2"]),
        weight_decay=float(params["weight_decay"]),
        warmup_steps=int(params["warmup_steps"]),
    )
    return scale.with_optimizer(settings)


def _frozen(request: OptimizerStudyRequest, starts: Starts, trial: OptimizerTrial) -> FrozenTrial | None:
    """Return a trial in Optuna's form; None if its result says nothing about the candidate."""
    values = _values(request, trial)
    name = trial.candidate.optimizer.name
    if values is None or name not in starts.scales:
        return None
    names = CategoricalDistribution([str(one) for one in starts.scales])
    chosen = {"optimizer": names, **_distributions(request.space, name, starts)}
    return optuna.trial.create_trial(values=list(values), params=_params(trial.candidate), distributions=chosen)


def _params(candidate: OptimizerCandidate) -> Params:
    chosen = candidate.optimizer
    return {
        "optimizer": chosen.name.value,
        f"learning_rate.{chosen.name}": chosen.learning_rate,
        "left_of_beta1": 1 - chosen.beta1,
        "left_of_beta2": 1 - chosen.beta2,
        "weight_decay": chosen.weight_decay,
        "warmup_steps": chosen.warmup_steps,
        f"scale.{chosen.name}": f"{candidate.global_batch_size} on {candidate.data_parallel_degree}",
    }


def _values(request: OptimizerStudyRequest, trial: OptimizerTrial) -> tuple[float, float] | None:
    """Return the seconds and accelerator-hours to the target.

    A candidate that missed the target gets more of both, by its distance from the target.
    """
    if trial.reached is not None:
        return trial.reached.time_s, trial.reached.accelerator_hours
    if not trial.curve.losses or not trial.state.finished or trial.state is TrialState.CANCELLED:
        return None
    loss = trial.curve.smoothed(request.window_sequences)[-1]
    gap = _DIVERGED if trial.state is TrialState.FAILED else max(0.0, loss / request.target_loss - 1)
    steps = request.budget.max_samples / trial.candidate.global_batch_size
    seconds = (_FACTOR_OF_MISSES + gap) * steps * trial.curve.step_time_s
    return seconds, seconds * trial.world_size / 3600


class StudyLimit(StrEnum):
    """The part of its budget that an optimizer study used up, so that it ended: accelerator-hours, or candidates."""

    ACCELERATOR_HOURS = "accelerator_hours"
    CANDIDATES = "candidates"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEnd:
    """The end of an optimizer study: the budget that it used up, and how many candidates reached the target."""

    limit: StudyLimit
    accelerator_hours: float
    """Accelerator-hours that the candidates of the study used."""
    num_tried: int
    num_reached: int
    """Number of candidates that reached the target. A study without any has failed."""


class StudyPlan:
    """Decides the next step of an optimizer study: which trial to run, when to end it, and when the study is done.

    It starts from all trials that are stored so far, so that an interrupted study can continue.
    """

    def __init__(self, study_id: str, request: OptimizerStudyRequest, trials: Sequence[OptimizerTrial]) -> None:
        self._id = study_id
        self._request = request
        self._trials = {trial.number: trial for trial in trials}
        self._starts = starts_of(request)
        self._pruning: Pruning | None = None

    def next(self) -> OptimizerTrial | StudyEnd:
        """Return the next trial to run, or the end of the study if its budget is used up.

        Trials that were interrupted run before new ones.
        """
        ended = [trial for trial in self._trials.values() if trial.state.finished]
        interrupted = [trial for trial in self._trials.values() if not trial.state.finished]
        budget, hours = self._request.budget, sum(trial.accelerator_hours for trial in ended)
        if budget.accelerator_hours is not None and hours >= budget.accelerator_hours:
            return self._end(StudyLimit.ACCELERATOR_HOURS, ended)
        if not interrupted and len(ended) >= budget.num_trials:
            return self._end(StudyLimit.CANDIDATES, ended)
        self._pruning = Pruning(self._request, ended) if self._request.prunes else None
        return interrupted[0] if interrupted else self._new(propose(self._request, self._starts, ended))

    def tell(self, trial: OptimizerTrial) -> None:
        """Record the new state of a trial, so that later decisions use it."""
        self._trials[trial.number] = trial

    def spec(self, trial: OptimizerTrial) -> TrialSpec:
        """Return the specification with which the launcher starts a trial.

        The trial has as many steps as the study's ``max_samples`` allows.
        """
        request, candidate = self._request, trial.candidate
        job = request.job_of(candidate)
        accelerator = job.cluster.accelerator
        on_cpu = accelerator.kind == "cpu"
        return TrialSpec(
            trial_id=trial.id,
            model=job.model,
            workload=job.workload,
            layout=request.layout_of(candidate.data_parallel_degree),
            device="cpu" if on_cpu else "cuda",
            settings=request.trial.just_steps(math.ceil(request.budget.max_samples / candidate.global_batch_size)),
            seed=request.seed,
            reference_flop_per_s=accelerator.reference_flop_per_s,  # no MFU is reported, so that no peak is measured
            memory_bytes=None if on_cpu else accelerator.memory_bytes,
            cluster=job.cluster,
            jobs=trial.jobs,
            optimizer=candidate.optimizer,
        )

    def reached(self, trial: OptimizerTrial) -> TargetReached | None:
        """Return the time and resources that a trial needed to reach the target loss; None if it has not reached it."""
        curve = trial.curve
        num_steps = curve.steps_to(self._request.target_loss, self._request.window_sequences)
        if num_steps is None:
            return None
        time_s = num_steps * curve.step_time_s
        hours = time_s * trial.world_size / 3600
        price = self._request.job.cluster.price_per_accelerator_hour
        return TargetReached(
            num_steps=num_steps,
            num_samples=num_steps * curve.global_batch_size,
            step_time_s=curve.step_time_s,
            time_s=time_s,
            accelerator_hours=hours,
            cost=hours * price if price else None,
        )

    def loses(self, trial: OptimizerTrial) -> PruneReason | None:
        """Return the reason to stop a running trial before it reaches the target loss; None if it should go on."""
        return None if self._pruning is None else self._pruning.verdict(trial)

    def ended(
        self, trial: OptimizerTrial, *, pruned: PruneReason | None, failure: TrialFailure | None
    ) -> OptimizerTrial:
        """Record the end of a trial and return the trial as it is to be stored.

        A trial ends because it reached the target loss, was pruned, failed, or used all of its samples. If several of
        these hold, the first one counts.

        Args:
            trial: The trial with its loss curve.
            pruned: Reason why the trial was ended early; None: it was not.
            failure: Reason why the trial died; None: it did not.
        """
        reached = self.reached(trial)
        if reached is not None:
            ended = replace(trial, state=TrialState.COMPLETE, reached=reached)
        elif pruned is not None:
            ended = replace(trial, state=TrialState.PRUNED, pruned=pruned)
        elif failure is not None:
            ended = replace(trial, state=TrialState.FAILED, detail=f"{failure.kind}: {failure.message}")
        else:
            ended = replace(trial, state=TrialState.COMPLETE)
        self._trials[ended.number] = ended
        return ended

    def _new(self, candidate: OptimizerCandidate) -> OptimizerTrial:
        number = len(self._trials)
        return OptimizerTrial(
            id=f"{self._id}-{number:04d}",
            study_id=self._id,
            number=number,
            candidate=candidate,
            world_size=self._request.layout_of(candidate.data_parallel_degree).world_size,
            curve=LossCurve(global_batch_size=candidate.global_batch_size),
        )

    def _end(self, limit: StudyLimit, ended: Sequence[OptimizerTrial]) -> StudyEnd:
        return StudyEnd(
            limit=limit,
            accelerator_hours=sum(trial.accelerator_hours for trial in ended),
            num_tried=len(ended),
            num_reached=sum(trial.reached is not None for trial in self._trials.values()),
        )
