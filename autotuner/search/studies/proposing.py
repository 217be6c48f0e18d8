"""The next candidate of a study, by an Optuna study in memory that is made of the stored trials each time.

Both directions go down: time to the target, and accelerator-hours to it. TPE of several objectives (arXiv 2203.13429,
Optuna's ``TPESampler``) asks. Nothing of it is kept: a worker that takes a study over proposes as the one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial

from autotuner.core.study import OptimizerCandidate, OptimizerSpace, OptimizerStudyRequest, OptimizerTrial, Range
from autotuner.core.trial import TrialState
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings
from autotuner.search.studies.starts import Starts

_NUM_STARTUP = 10
"""Candidates that are drawn at random before TPE has anything to say: Optuna's own default."""

_DIVERGED = 10.0
"""How far above the target, as a share of it, a loss counts that is no number: farther than any that is."""

_FACTOR_OF_MISSES = 2.0
"""What did not come to the target within its samples counts as slower than whatever did: twice and more."""

Params = dict[str, float | int | str]


def propose(request: OptimizerStudyRequest, starts: Starts, trials: Sequence[OptimizerTrial]) -> OptimizerCandidate:
    """What to try next after these trials: first each optimizer in the middle of its ranges, then as TPE says."""
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
        params[key] = asked._suggest(key, distribution)  # of the public ones each has other arguments
    return _candidate(params, name, starts)


def _middle(space: OptimizerSpace, name: OptimizerName, starts: Starts) -> OptimizerCandidate:
    """Its library's way to be used: no warm-up, and numbers in the middle of what may be tried."""
    rate, decay = space.learning_rates(name), space.weight_decay
    scale = starts.scales[name][-1]
    return OptimizerCandidate(
        optimizer=OptimizerSettings(
            name=name,
            learning_rate=math.sqrt(rate.low * rate.high),
            beta1=1 - math.sqrt((1 - space.beta1.low) * (1 - space.beta1.high)),
            beta2=1 - math.sqrt((1 - space.beta2.low) * (1 - space.beta2.high)),
            weight_decay=(decay.low + decay.high) / 2,
            warmup_steps=space.warmup_steps[0],
        ),
        global_batch_size=scale.global_batch_size,
        data_parallel_degree=scale.data_parallel_degree,
    )


def _distributions(space: OptimizerSpace, name: OptimizerName, starts: Starts) -> dict[str, BaseDistribution]:
    """What is drawn beside the optimizer; learning rates and scales of its own, other numbers shared by all."""
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
    return OptimizerCandidate(
        optimizer=OptimizerSettings(
            name=name,
            learning_rate=float(params[f"learning_rate.{name}"]),
            beta1=1 - float(params["left_of_beta1"]),
            beta2=1 - float(params["left_of_beta2"]),
            weight_decay=float(params["weight_decay"]),
            warmup_steps=int(params["warmup_steps"]),
        ),
        global_batch_size=scale.global_batch_size,
        data_parallel_degree=scale.data_parallel_degree,
    )


def _frozen(request: OptimizerStudyRequest, starts: Starts, trial: OptimizerTrial) -> FrozenTrial | None:
    """A trial as Optuna keeps it; None of one that says nothing of its candidate."""
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
    """Seconds and accelerator-hours to the target; of one that missed it, more, by how far it lay above."""
    if trial.reached is not None:
        return trial.reached.time_s, trial.reached.accelerator_hours
    if not trial.curve.losses or not trial.state.finished or trial.state is TrialState.CANCELLED:
        return None
    loss = trial.curve.smoothed(request.window_sequences)[-1]
    gap = _DIVERGED if trial.state is TrialState.FAILED else max(0.0, loss / request.target_loss - 1)
    steps = request.budget.max_samples / trial.candidate.global_batch_size
    seconds = (_FACTOR_OF_MISSES + gap) * steps * trial.curve.step_time_s
    return seconds, seconds * trial.world_size / 3600
