"""Trials small enough to run by the dozen, their models, and the layouts that they are run in.

A layout's kinds of parallelism are words to be put together: ``fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2)``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from tests.builders import cpu_layout, tiny_model
from tests.patience import PATIENCE_S

WORKLOAD = Workload(seq_len=32, global_batch_size=8)

FIVE_STEPS = TrialSettings(
    warmup_steps=1,
    max_warmup_steps=1,
    measured_steps=4,
    max_measured_steps=4,
    profiled_steps=0,
    timeout_s=PATIENCE_S,
)
"""The first of them is warm-up."""

THREE_STEPS = replace(FIVE_STEPS, measured_steps=2, max_measured_steps=2)
"""The loss of the last one has seen an update by the gradients of two steps."""

ONE_STEP = replace(FIVE_STEPS, warmup_steps=0, max_warmup_steps=0, measured_steps=1, max_measured_steps=1)
"""Enough for the peak of memory, which is that of the first step."""

GPT_2 = tiny_model(
    name="gpt-2",
    norm="layernorm",
    gated_mlp=False,
    attention_bias="all",
    mlp_bias=True,
    num_learned_positions=64,
    num_kv_heads=4,
    tied_embeddings=True,
)
HEAD_NORMS = tiny_model(name="head-norms", qk_norm=True, attention_bias="qkv")
ODD_VOCABULARY = tiny_model(name="odd-vocabulary", vocab_size=257)

TENSOR: dict[str, Any] = {"tensor_parallel_degree": 2}
SEQUENCE: dict[str, Any] = {**TENSOR, "sequence_parallel": True}
CONTEXT: dict[str, Any] = {"context_parallel_degree": 2}
PIPELINE: dict[str, Any] = {"pipeline_parallel_degree": 2}
ZBV: dict[str, Any] = {**PIPELINE, "virtual_stages_per_rank": 2, "pipeline_schedule": PipelineSchedule.ZBV}


def trial_spec(layout: Layout | None = None, **changes: Any) -> TrialSpec:
    """Five steps of the tiny model, with a peak given so that none is measured."""
    values: dict[str, Any] = {
        "trial_id": "trial",
        "model": tiny_model(),
        "workload": WORKLOAD,
        "layout": cpu_layout(micro_batch_size=8) if layout is None else layout,
        "device": "cpu",
        "settings": FIVE_STEPS,
        "reference_flop_per_s": 1e11,
        "seed": 3,
    }
    return TrialSpec(**{**values, **changes})


def ddp(degree: int, **changes: Any) -> Layout:
    return cpu_layout(data_parallel_replicate_degree=degree, **changes)


def fsdp(degree: int, **changes: Any) -> Layout:
    return cpu_layout(data_parallel_shard_degree=degree, shard_level=ShardLevel.PARAMETERS, **changes)


def hsdp(replicate: int, shard: int, **changes: Any) -> Layout:
    return fsdp(shard, data_parallel_replicate_degree=replicate, **changes)


def zero(degree: int, **changes: Any) -> Layout:
    """Shards of the optimizer, unless told of what else."""
    return cpu_layout(**{"data_parallel_shard_degree": degree, "shard_level": ShardLevel.OPTIMIZER, **changes})
