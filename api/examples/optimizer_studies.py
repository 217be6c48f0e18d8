"""Examples of optimizer studies."""

from __future__ import annotations

from typing import Any

from api.schemas import OptimizerStudyDetail, OptimizerStudyPage, OptimizerStudyView
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.run import Run, RunState
from autotuner.core.study import (
    Candidate,
    LossCurve,
    OptimizerSpace,
    OptimizerStudyRequest,
    OptimizerTrial,
    StudyBudget,
    TargetReached,
)
from autotuner.core.trial import TrialState
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings
from autotuner.core.workload import Workload

_AT = 1_760_000_000.0


def optimizer_study_bodies() -> dict[str, Any]:
    """Bodies of ``POST /optimizer-studies``."""
    job = {
        "model": "bert-large",
        "cluster": "a100-80gb:8",
        "workload": {"seq_len": 512, "global_batch_size": 512},
    }
    layout = {"data_parallel_replicate_degree": 8, "micro_batch_size": 8}
    study = {**job, "layout": layout, "target_loss": 2.5}
    large = {"optimizers": ["adamw", "lamb"], "global_batch_sizes": [512, 2048], "data_parallel_degrees": [4, 8]}
    return {
        "every optimizer at the job's batch": study,
        "large batches, and fewer replicas": {**study, "space": large, "budget": {"num_trials": 60}},
    }


def optimizer_study_detail() -> OptimizerStudyDetail:
    """A study of two candidates, one of which came to the target."""
    return OptimizerStudyDetail.with_trials(_study(), [_trial()])


def optimizer_study_page() -> OptimizerStudyPage:
    """A page with one study."""
    return OptimizerStudyPage(items=(OptimizerStudyView.of(_study()),), total=1, limit=50, offset=0)


def _study() -> Run:
    job = Job(
        model=load_model("llama-3-8b"),
        cluster=load_cluster("h100:8"),
        workload=Workload(seq_len=2048, global_batch_size=64),
    )
    request = OptimizerStudyRequest(
        job=job,
        layout=Layout(data_parallel_replicate_degree=8),
        target_loss=5.0,
        window_sequences=128,
        space=OptimizerSpace(optimizers=(OptimizerName.ADAMW, OptimizerName.LAMB)),
        budget=StudyBudget(num_trials=1, max_samples=4096),
        name="after the sweep",
    )
    return Run(
        id="os-4kq2mxw7ab",
        kind="study",
        subject="",
        created_by="",
        request=request,
        state=RunState.COMPLETE,
        created_at=_AT,
        due_at=_AT,
        started_at=_AT + 1,
        finished_at=_AT + 90,
        detail="1 candidates were tried, and 1 came to the target",
    )


def _trial() -> OptimizerTrial:
    candidate = Candidate(
        optimizer=OptimizerSettings(name=OptimizerName.ADAMW, learning_rate=6e-4, warmup_steps=10),
        global_batch_size=64,
        data_parallel_degree=8,
    )
    curve = LossCurve(losses=(9.1, 7.3, 5.2, 4.7), step_times_s=(3.0, 2.0, 2.0, 2.0), global_batch_size=64)
    reached = TargetReached(num_steps=4, num_samples=256, step_time_s=2.0, time_s=8.0, accelerator_hours=8 * 8 / 3600)
    return OptimizerTrial(
        id="os-4kq2mxw7ab-0000",
        study_id="os-4kq2mxw7ab",
        number=0,
        candidate=candidate,
        state=TrialState.COMPLETE,
        world_size=8,
        attempts=1,
        started_at=_AT + 2,
        finished_at=_AT + 80,
        curve=curve,
        reached=reached,
        detail="at the target after 4 steps",
    )
