"""Optimizer studies and their trials, as tests want them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotuner.core.study import (
    LossCurve,
    OptimizerCandidate,
    OptimizerStudyRequest,
    OptimizerTrial,
    StudyBudget,
    TargetReached,
)
from autotuner.core.trial import TrialState
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings
from autotuner.core.workload import Workload
from tests.builders import cpu_cluster, cpu_layout, tiny_job


def study_request(**changes: Any) -> OptimizerStudyRequest:
    """Two replicas at most, of the tiny model."""
    job = replace(tiny_job(), cluster=cpu_cluster(2), workload=Workload(seq_len=32, global_batch_size=16))
    values: dict[str, Any] = {
        "job": job,
        "layout": cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4),
        "target_loss": 5.0,
        "window_sequences": 32,
        "budget": StudyBudget(num_trials=4, max_samples=320),
    }
    return OptimizerStudyRequest(**{**values, **changes})


def candidate(
    name: OptimizerName = OptimizerName.ADAMW, batch: int = 16, replicas: int = 2, **numbers: Any
) -> OptimizerCandidate:
    """AdamW with its customary numbers, unless told otherwise."""
    settings = OptimizerSettings(**{"name": name, "learning_rate": 1e-3, **numbers})
    return OptimizerCandidate(optimizer=settings, global_batch_size=batch, data_parallel_degree=replicas)


def curve(*losses: float, step_time_s: float = 1.0, batch: int = 16) -> LossCurve:
    """Losses of equally long steps."""
    return LossCurve(losses=losses, step_times_s=(step_time_s,) * len(losses), global_batch_size=batch)


def study_trial(number: int = 0, *losses: float, step_time_s: float = 1.0, **changes: Any) -> OptimizerTrial:
    """A trial that used up its samples, on two ranks."""
    chosen: OptimizerCandidate = changes.pop("candidate", candidate())
    values: dict[str, Any] = {
        "candidate": chosen,
        "state": TrialState.COMPLETE,
        "world_size": 2,
        "attempts": 1,
        "curve": curve(*losses, step_time_s=step_time_s, batch=chosen.global_batch_size),
    }
    return OptimizerTrial(id=f"os-test-{number:04d}", study_id="os-test", number=number, **{**values, **changes})


def reached_trial(number: int, time_s: float, accelerator_hours: float, **changes: Any) -> OptimizerTrial:
    """A trial that came to the target so."""
    reached = TargetReached(
        num_steps=4, num_samples=64, step_time_s=time_s / 4, time_s=time_s, accelerator_hours=accelerator_hours
    )
    return study_trial(number, 6.0, 5.5, 5.0, 4.5, step_time_s=time_s / 4, reached=reached, **changes)
