"""Examples of sweeps, of what they find and of their events."""

from __future__ import annotations

from typing import Any

from api.examples.catalog import cluster, model
from api.examples.descriptions import small_model
from api.examples.trials import CREATED_AT, SWEEP_ID, trial
from api.schemas import ModelSize, Progress, SweepDetail, SweepPage, SweepRules, SweepSummary, TrialCounts, TrialView
from autotuner.core.job import Job
from autotuner.core.objective import Objective
from autotuner.core.run import StopReason, SweepState
from autotuner.core.space import default_trial_space
from autotuner.core.sweep import BestSoFar, Budget, SweepRequest
from autotuner.core.wire import to_dict
from autotuner.core.workload import Workload
from autotuner.search.explain.pairwise import Insight

_WORKLOAD = Workload(seq_len=8192, global_batch_size=64)


def sweep_bodies() -> dict[str, Any]:
    """Bodies of ``POST /sweeps``."""
    workload = to_dict(_WORKLOAD)
    return {
        "by name": {"model": "llama-3-8b", "cluster": "h100:8", "workload": workload},
        "this machine": {
            "name": "nightly",
            "model": small_model(),
            "cluster": "local",
            "workload": {"seq_len": 128, "global_batch_size": 8},
            "space": {"micro_batch_size": [1, 2], "recompute": ["none", "full"]},
            "budget": {"num_trials": 8, "wall_clock_s": 600.0, "min_gain": 0.02},
            "trial": {"measured_steps": 5, "timeout_s": 60.0},
            "seed": 1,
        },
    }


def budget_bodies() -> dict[str, Any]:
    """Bodies of ``POST /sweeps/{sweep_id}/budget``."""
    return {"more trials": {"budget": {"num_trials": 40}}, "no limit of time": {"budget": {"wall_clock_s": None}}}


def clone_bodies() -> dict[str, Any]:
    """Bodies of ``POST /sweeps/{sweep_id}/clone``."""
    return {"again": {}, "wider": {"space": {"micro_batch_size": [1, 2, 4]}, "name": "wider", "seed": 1}}


def sweep_detail() -> SweepDetail:
    """A finished sweep."""
    job = Job(model=model(), cluster=cluster(), workload=_WORKLOAD)
    request = SweepRequest(job=job, space=default_trial_space(job), budget=Budget(num_trials=1), name="nightly")
    size = ModelSize.of(job.model)
    return SweepDetail(**_sweep(), model_size=size, caveats=(), request=request, best=TrialView.of(trial()))


def sweep_page() -> SweepPage:
    """A page with one sweep."""
    return SweepPage(items=(SweepSummary(**_sweep()),), total=1, limit=50, offset=0)


def sweep_rules() -> SweepRules:
    """One statement, as six sheets of arXiv 2311.05610 support it."""
    recompute = Insight(
        subject="recompute",
        before="full",
        after="none",
        num_pairs=34,
        num_faster=34,
        median_gain=0.308,
        least_gain=0.053,
        greatest_gain=0.399,
        statement="recompute full → none: +30.8 % throughput in the median of 34 pairs (+5.3 % to +39.9 %), "
        "faster in 34 of them",
    )
    return SweepRules(num_measured=267, items=(recompute,))


def event_stream() -> str:
    """One event as it travels."""
    return (
        'event: trial.finished\nid: 17\ndata: {"at": 1760000042.5, "number": 3, "state": "complete", "mfu": 0.41}\n\n'
    )


def _sweep() -> dict[str, Any]:
    return {
        "id": SWEEP_ID,
        "name": "nightly",
        "state": SweepState.COMPLETE,
        "model": "llama-3-8b",
        "cluster": "h100:8",
        "created_at": CREATED_AT,
        "started_at": CREATED_AT + 1,
        "finished_at": CREATED_AT + 61,
        "cancel_requested": False,
        "stop_reason": StopReason.TRIAL_BUDGET,
        "stop_detail": "1 of 1 trials ran",
        "budget": Budget(num_trials=1),
        "progress": Progress(fraction=1.0, num_trials=1, elapsed_s=60.0, accelerator_hours=0.12),
        "trials": TrialCounts(complete=1),
        "objective": Objective(),
        "best_value": 0.43,
        "best_measured_mfu": 0.43,
        "trial_cluster": None,
        "best_estimated_mfu": None,
        "engine": "local",
        "best_simulated_mfu": None,
        "best_trial_id": trial().id,
        "best_tokens_per_s": 98_000.0,
        "best_relative_error": 0.004,
        "best_so_far": (BestSoFar(number=0, value=0.43),),
    }
