"""The examples of the OpenAPI document, made of real domain objects so that they cannot drift from the schema."""

from __future__ import annotations

from typing import Any

from api import views
from api.schemas import (
    AcceleratorDetail,
    AcceleratorList,
    ClusterList,
    ModelList,
    PredictionTable,
    Progress,
    RankingPage,
    SweepDetail,
    SweepPage,
    SweepSummary,
    TrialCounts,
    TrialDetail,
    TrialPage,
)
from autotuner.catalog.load import accelerator_facts, load_accelerator, load_cluster, load_model
from autotuner.domain.cluster import Cluster
from autotuner.domain.defaults import default_space
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.model import TransformerSpec
from autotuner.domain.prediction import Memory, Prediction, StepTime
from autotuner.domain.sweep import Budget, StopReason, SweepRequest, SweepState
from autotuner.domain.trial import Measurement, PhaseTimes, StepReport, Trial, TrialState
from autotuner.domain.wire import to_dict
from autotuner.domain.workload import Workload
from autotuner.ports import Page

__all__ = [
    "accelerator_detail",
    "accelerator_list",
    "cluster",
    "cluster_bodies",
    "cluster_list",
    "model",
    "model_bodies",
    "model_list",
    "prediction_bodies",
    "prediction_table",
    "ranking_page",
    "sweep_bodies",
    "sweep_detail",
    "sweep_page",
    "trial_detail",
    "trial_page",
]

_SWEEP_ID = "sw-k3v7q2mxn5"
_CREATED_AT = 1_760_000_000.0
_WORKLOAD = Workload(seq_len=8192, global_batch_size=64)


# ---------------------------------------------------------------- request bodies
def sweep_bodies() -> dict[str, Any]:
    """Bodies of ``POST /sweeps``."""
    workload = to_dict(_WORKLOAD)
    return {
        "by name": {"value": {"model": "llama-3-8b", "cluster": "h100:8", "workload": workload}},
        "this machine": {
            "value": {
                "name": "nightly",
                "model": _small_model(),
                "cluster": "local",
                "workload": {"seq_len": 128, "global_batch_size": 8},
                "space": {"micro_batch_size": [1, 2], "recompute": ["none", "full"]},
                "budget": {"num_trials": 8, "wall_clock_s": 600.0},
                "trial": {"measured_steps": 5, "timeout_s": 60.0},
                "seed": 1,
            }
        },
    }


def prediction_bodies() -> dict[str, Any]:
    """Bodies of ``POST /predictions``."""
    job = {"model": "llama-3-8b", "cluster": "h100:8", "workload": to_dict(_WORKLOAD)}
    return {
        "best of the space": {"value": job | {"limit": 5}},
        "one layout": {"value": job | {"layout": {"tensor_parallel_degree": 8, "recompute": "full"}}},
    }


def model_bodies() -> dict[str, Any]:
    """Bodies of ``PUT /models/{name}``."""
    config = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    }
    return {"our fields": {"value": _small_model()}, "Hugging Face config.json": {"value": config}}


def cluster_bodies() -> dict[str, Any]:
    """Bodies of ``PUT /clusters/{name}``."""
    return {"eight H100": {"value": to_dict(cluster())}}


def _small_model() -> dict[str, Any]:
    sizes = {"num_layers": 8, "hidden_size": 256, "num_heads": 8, "num_kv_heads": 4, "head_dim": 32, "ffn_size": 704}
    return {"name": "my-llama", **sizes, "vocab_size": 4096}


# ---------------------------------------------------------------- answers
def model() -> TransformerSpec:
    """A model of the catalog."""
    return load_model("llama-3-8b")


def cluster() -> Cluster:
    """A cluster of catalog accelerators."""
    return load_cluster("h100:8")


def model_list() -> ModelList:
    """A list of models."""
    return ModelList(items=(model(),))


def cluster_list() -> ClusterList:
    """A list of clusters."""
    return ClusterList(items=(cluster(),))


def accelerator_list() -> AcceleratorList:
    """A list of accelerators."""
    return AcceleratorList(items=(load_accelerator("h100-sxm"),))


def accelerator_detail() -> AcceleratorDetail:
    """An accelerator with the origin of a value."""
    facts = accelerator_facts("h100-sxm")
    name = "memory_bytes"
    return AcceleratorDetail(accelerator=load_accelerator("h100-sxm"), facts={name: facts[name]})


def prediction_table() -> PredictionTable:
    """A table with one prediction."""
    row = views.predicted_layout(1, _layout(), _prediction())
    return PredictionTable(items=(row,), num_legal=1234, num_fitting=321)


def trial_detail() -> TrialDetail:
    """A complete trial with one step."""
    return views.trial_detail(_trial())


def trial_page() -> TrialPage:
    """A page with one trial."""
    return TrialPage(items=(views.trial_view(_trial()),), total=1, limit=50, offset=0)


def ranking_page() -> RankingPage:
    """A page with the best trial."""
    return RankingPage(items=views.ranked([_trial()], Page()), total=1, limit=50, offset=0)


def sweep_page() -> SweepPage:
    """A page with one sweep."""
    return SweepPage(items=(SweepSummary(**_sweep()),), total=1, limit=50, offset=0)


def sweep_detail() -> SweepDetail:
    """A finished sweep."""
    job = Job(model=model(), cluster=cluster(), workload=_WORKLOAD)
    request = SweepRequest(job=job, space=default_space(job.cluster), budget=Budget(num_trials=1), name="nightly")
    return SweepDetail(**_sweep(), request=request, best=views.trial_view(_trial()))


def _sweep() -> dict[str, Any]:
    return {
        "id": _SWEEP_ID,
        "name": "nightly",
        "state": SweepState.COMPLETE,
        "model": "llama-3-8b",
        "cluster": "h100:8",
        "created_at": _CREATED_AT,
        "started_at": _CREATED_AT + 1,
        "finished_at": _CREATED_AT + 61,
        "cancel_requested": False,
        "stop_reason": StopReason.TRIAL_BUDGET,
        "stop_detail": "1 of 1 trials ran",
        "budget": Budget(num_trials=1),
        "progress": Progress(fraction=1.0, num_trials=1, elapsed_s=60.0, accelerator_hours=0.12),
        "trials": TrialCounts(complete=1),
        "best_measured_mfu": 0.43,
    }


def _layout() -> Layout:
    return Layout(tensor_parallel_degree=8, sequence_parallel=True)


def _prediction() -> Prediction:
    step_time = StepTime(
        compute_s=4.0,
        recompute_s=0.0,
        tensor_communication_s=0.6,
        context_communication_s=0.0,
        expert_communication_s=0.0,
        pipeline_communication_s=0.0,
        data_communication_s=0.0,
        bubble_s=0.0,
        optimizer_s=0.05,
    )
    memory = Memory(
        parameters_bytes=2.0e9,
        gradients_bytes=4.0e9,
        optimizer_bytes=12.0e9,
        activations_bytes=18.0e9,
        logits_bytes=1.0e9,
        buffers_bytes=0.5e9,
        allowance_bytes=3.0e9,
        worst_stage=0,
    )
    return Prediction(
        step_time=step_time, memory=memory, tokens_per_s=112e3, mfu=0.47, hfu=0.47, fits=True, relative_error=0.12
    )


def _trial() -> Trial:
    step = StepReport(step=2, is_warmup=False, step_time_s=5.0, loss=8.1, tokens_per_s=104e3, mfu=0.43)
    measurement = Measurement(
        step_time_s=5.0,
        step_time_spread_s=0.04,
        num_steps=5,
        tokens_per_s=104e3,
        model_flop_per_s=3.4e15,
        mfu=0.43,
        hfu=0.43,
        peak_flop_per_s=7.9e15,
        peak_source="data sheet",
        peak_bytes=(39_000_000_000,) * 8,
        phases=PhaseTimes(forward_backward_s=4.9, gradient_sync_s=0.0, optimizer_s=0.1),
        losses=(11.8, 9.6, 8.1),
        foreign_cpu_share=0.01,
        environment={"torch": "2.13.0"},
    )
    return Trial(
        id=f"{_SWEEP_ID}-0000",
        sweep_id=_SWEEP_ID,
        number=0,
        state=TrialState.COMPLETE,
        layout=_layout(),
        prediction=_prediction(),
        attempts=1,
        started_at=_CREATED_AT + 2,
        finished_at=_CREATED_AT + 56,
        steps=(step,),
        measurement=measurement,
    )
