"""Examples of predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api.examples.catalog import cluster, model
from api.schemas import Gain, PredictedLayout, PredictionTable, SweepPreview
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Memory, Prediction, StepTime
from autotuner.core.space import default_trial_space
from autotuner.core.wire import to_dict
from autotuner.core.workload import Workload
from autotuner.search import ranking
from autotuner.search.advice import current as comparison
from autotuner.search.sieve import Fall

_WORKLOAD = Workload(seq_len=8192, global_batch_size=64)


def prediction_bodies() -> dict[str, Any]:
    """Bodies of ``POST /predictions``."""
    job = job_body()
    layout = {"data_parallel_shard_degree": 8, "shard_level": "parameters"}
    return {
        "best of the space": job | {"limit": 5},
        "as Megatron-LM would run it": job | {"stack": "megatron"},
        "one layout": job | {"layout": {"tensor_parallel_degree": 8, "recompute": "full"}},
        "beside what runs today": job | {"limit": 1, "current": layout},
        "the best that your trainer can be told, beside what runs today": job
        | {"stack": "megatron-core", "format": "megatron-lm", "current": layout, "limit": 3},
        "where a run was measured": job | {"measured": [{"layout": layout, "step_time_s": 8.9}]},
    }


def prediction_table() -> PredictionTable:
    """A table with one prediction."""
    row = PredictedLayout.of(1, layout(), prediction())
    job = Job(model=model(), cluster=cluster(), workload=Workload(seq_len=8192, global_batch_size=1024))
    caveats = ("dense models on nemo with h100-sxm were compared with 63 measured runs",)
    return replace(PredictionTable.of(job, (row,), _current(), caveats), num_legal=1234, num_fitting=321)


def sweep_preview() -> SweepPreview:
    """What a sweep would search."""
    job = Job(model=model(), cluster=cluster(), workload=_WORKLOAD)
    fall = Fall(
        rule="kv-heads-per-tensor-rank",
        field="tensor_parallel_degree",
        num_layouts=766,
        message="8 kv heads do not split over 16 tensor ranks",
    )
    return SweepPreview(
        space=default_trial_space(job),
        num_candidates=2000,
        falls=(fall,),
        predicted=replace(prediction_table(), current=None),
        small_trials=None,
        refusal=None,
    )


def prediction() -> Prediction:
    """The prediction that most examples show."""
    step_time = StepTime(
        matrix_s=3.0,
        attention_s=0.5,
        pointwise_s=0.5,
        host_s=0.0,
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
        step_time=step_time,
        memory=memory,
        tokens_per_s=112e3,
        mfu=0.47,
        hfu=0.47,
        fits=True,
        fit_probability=0.98,
        relative_error=0.12,
        validated=True,
    )


def layout() -> Layout:
    """The layout that most examples are about."""
    return Layout(tensor_parallel_degree=8, sequence_parallel=True)


def job_body() -> dict[str, Any]:
    """The job that bodies ask about, by names of the catalog."""
    return {"model": "llama-3-8b", "cluster": "h100:8", "workload": to_dict(_WORKLOAD)}


def _current() -> comparison.Current:
    """What runs today, slower than the one row."""
    layout = Layout(tensor_parallel_degree=8)
    today = ranking.PredictedLayout(layout=layout, prediction=replace(prediction(), tokens_per_s=100e3))
    gain = Gain(gain=0.12, change="sequence parallel off → on")
    return comparison.Current(layout=layout, predicted=today, best=gain)
