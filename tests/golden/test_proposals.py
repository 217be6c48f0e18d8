"""What the search proposes, and what it learns, as recorded.

* The trials of ten sweeps, 100 in all: each layout, the gain that was expected of it, and what came of it, which is
  made up from predictions. Notes on trials tell what was believed of memory.
* Layouts that are proposed before any trial ends.
* What trials teach: the calibration of later jobs, their predictions with errors, and estimates at full size from
  trials on fewer ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import optuna
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.codec import to_plain
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.prediction import Prediction
from autotuner.core.space import default_trial_space
from autotuner.core.stack import Stack
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Trial
from autotuner.core.trial_spec import TrialSettings
from autotuner.costmodel.predict import predict_one
from autotuner.runs.past_trials import CalibrationCache
from autotuner.runs.sweep_study import Candidates
from tests.golden.golden import Golden
from tests.golden.jobs import EndedSweep, few_digits, job_of, run_sweep

_NAMES = (
    "dense",
    "experts",
    "cores",
    "tokens-per-dollar",
    "front",
    "little-memory",
    "known-trials",
    "proxy-trials",
    "faults",
    "lengths",
)

_NARROW: Mapping[str, tuple[int, ...]] = {
    "precision": (Precision.BF16,),
    "compiled": (True,),
    "pipeline_schedule": (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B),
    "shard_level": (ShardLevel.NONE, ShardLevel.PARAMETERS),
    "first_stage_less_layers": (0,),
    "last_stage_less_layers": (0, 1),
    "micro_batch_size": (1, 2, 4),
}

_CORES: Mapping[str, tuple[int, ...]] = {"recompute": (Recompute.NONE, Recompute.FULL), "fused_norm": (True, False)}


def _request(
    name: str, axes: Mapping[str, tuple[int, ...]] = _NARROW, *, num_trials: int = 10, **changes: Any
) -> SweepRequest:
    job, budget = replace(job_of(name), stack=Stack()), Budget(num_trials=num_trials, min_gain=0.0)
    return SweepRequest(job=job, space=default_trial_space(job).with_axes(**axes), budget=budget, **changes)


_FEW = {**_NARROW, "shard_level": (ShardLevel.PARAMETERS,), "micro_batch_size": (2,), "recompute": (Recompute.NONE,)}

_FRONT = Objective(front=(Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY))

_PROFILE = (Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=2.0), Weight(metric=Metric.SIMPLICITY, weight=1.0))

_TRACE = FaultTrace.parse("2;0_1;0.06\n6;0_1;0", num_steps=10)


@cache
def _sweep(name: str) -> EndedSweep:
    """Return one of ten sweeps, after all of its trials."""
    match name:
        case "dense":
            return run_sweep(_request("dense", num_trials=12))
        case "experts":
            return run_sweep(_request("experts", seed=1))
        case "cores":
            return run_sweep(_request("cores", _CORES, seed=2, num_trials=12))
        case "tokens-per-dollar":
            return run_sweep(_request("thin network", objective=Objective(profile=_PROFILE)))
        case "front":
            return run_sweep(_request("dense", objective=_FRONT))
        case "little-memory":
            little = TrialSettings(memory_budget_bytes=40 * 10**9)
            return run_sweep(_request("calibrated", num_trials=12, trial=little))
        case "known-trials":
            return run_sweep(_request("calibrated", num_trials=8, seed=3), store=_sweep("little-memory").store, at=1e6)
        case "proxy-trials":
            few = load_cluster("h100:16")
            return run_sweep(_request("dense", _FEW, num_trials=8, trial_cluster=few, seed=5))
        case "faults":
            by_robust = Objective(under_faults=True)
            return run_sweep(_request("slow links", _FEW, num_trials=8, objective=by_robust, fault_trace=_TRACE))
        case _:
            return run_sweep(_request("lengths", _FEW, seed=4))


@pytest.mark.parametrize("name", _NAMES)
def test_a_sweep_tries_the_layouts_that_were_recorded(golden: Golden, name: str) -> None:
    found = _sweep(name)
    trials = [[str(one.layout), _gain(one.expected_gain), _outcome(one)] for one in found.trials]
    golden.check(f"proposals/{name}", {"trials": trials, "notes": found.notes, "end": found.sweep.stop_detail})


def test_layouts_that_are_proposed_before_any_trial_ends_are_those_that_were_recorded(golden: Golden) -> None:
    request = _request("experts")
    sampler = Candidates.of(request).sampler(request)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    golden.check("proposals/at-once", [str(sampler.suggest(study.ask())) for _ in range(12)])


@pytest.mark.parametrize("name", ["dense", "little-memory", "proxy-trials", "cores"])
def test_trials_calibrate_predictions_as_recorded(golden: Golden, name: str) -> None:
    found = _sweep(name)
    _sweep("known-trials")  # it adds to the store of "little-memory", whichever test runs first
    known, trained = CalibrationCache(found.store.history), found.sweep.request.job
    longer = replace(trained.workload, global_batch_size=2 * trained.workload.global_batch_size)
    later = known.calibrated(replace(trained, workload=longer))
    assert later.calibration is not None
    sums = [sum(row) for row in later.calibration.correlations]
    output = {
        "calibration": to_plain(replace(later.calibration, parts=(), correlations=())),
        "parts": [[one.part, few_digits(one.factor), few_digits(one.deviation)] for one in later.calibration.parts],
        "sums of correlations": [few_digits(one) for one in sums],
        "calibrations": [to_plain(replace(one, calibration=None)) for one in known.calibrations()],
        "predicted": [[str(one.layout), *_known(predict_one(one.layout, later))] for one in found.trials[:6]],
        "estimates": [to_plain(one.estimate) for one in found.trials[::3] if one.estimate],
    }
    golden.check(f"proposals/learnt-from-{name}", output)


def _gain(expected: float | None) -> float | None:
    return None if expected is None else few_digits(expected, 12)


def _outcome(trial: Trial) -> float | str:
    """Return the step time of a trial that was measured, or how else it ended."""
    return (
        trial.failure.kind.value
        if trial.failure
        else few_digits(trial.reached.step_time_s)
        if trial.reached
        else trial.state.value
    )


def _known(prediction: Prediction) -> list[float]:
    """Return a prediction's step time, error, peak and chance to fit."""
    known = (prediction.step_time.total_s, prediction.relative_error, prediction.memory.total_bytes)
    return [few_digits(number or 0.0) for number in (*known, prediction.fit_probability)]
