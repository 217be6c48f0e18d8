"""The dataclasses of the real megatron-core take what is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from autotuner.catalog.software import load_stack
from autotuner.core.blocks import LatentAttention, MixtureOfExperts
from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.exports.formats import export
from autotuner.exports.megatron.layout import OPTIMIZER_OFFLOAD, layout_settings
from autotuner.exports.megatron.model_shapes import write_shapes
from autotuner.exports.megatron.recipes import CORE_FIELDS
from autotuner.exports.shared.keys import Written
from tests.builders import big_job, h100, h100_cluster, llama_70b

_NOT_CORE = (  # of the training script, not of the model's configuration
    *("micro_batch_size", "global_batch_size", "seq_length", "max_position_embeddings", "position_embedding_type"),
    *(
        "vocab_size",
        "untie_embeddings_and_output_weights",
        "group_query_attention",
        "ckpt_format",
        "swiglu",
        "num_experts",
    ),
)

_DDP = (
    *("use_distributed_optimizer", "num_distributed_optimizer_instances", "use_megatron_fsdp", "ddp_bucket_size"),
    *("data_parallel_sharding_strategy", "overlap_grad_reduce", "overlap_param_gather", "grad_reduce_in_fp32"),
)

_OF_OTHERS = frozenset({*_NOT_CORE, *_DDP, *OPTIMIZER_OFFLOAD})
"""What the configuration of the model does not have."""

_MIXTRAL = llama_70b(
    experts=MixtureOfExperts(
        num_experts=8, experts_per_token=2, expert_ffn_size=14336, num_dense_layers=3, router_bias=True
    )
)
_DEEPSEEK = replace(
    _MIXTRAL,
    num_kv_heads=64,
    latent_attention=LatentAttention(query_rank=1536, key_value_rank=512, rope_head_dim=64, value_head_dim=128),
)

_PIPELINE: dict[str, Any] = {"pipeline_parallel_degree": 4, "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B}

_LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"tensor_parallel_degree": 8, "sequence_parallel": True, "async_tensor_parallel": True},
    {"tensor_parallel_degree": 2, "context_parallel_degree": 4, "context_exchange": ContextExchange.ALL_TO_ALL},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.OPTIMIZER, "gradient_bucket_bytes": 2**28},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.PARAMETERS, "reshard_after_forward": True},
    {"data_parallel_shard_degree": 4, "data_parallel_replicate_degree": 2, "shard_level": ShardLevel.GRADIENTS},
    {"pipeline_parallel_degree": 8},
    {**_PIPELINE, "virtual_stages_per_rank": 5},
    {**_PIPELINE, "virtual_stages_per_rank": 3, "first_stage_less_layers": 2, "last_stage_less_layers": 2},
    {"pipeline_parallel_degree": 6, "last_stage_less_layers": 2},
    {"pipeline_parallel_degree": 2, "first_stage_less_layers": 2, "last_stage_less_layers": 4},
    {"pipeline_parallel_degree": 3, "first_stage_less_layers": 1},
    {"recompute": Recompute.FULL},
    {"recompute": Recompute.FULL, "recompute_every": 3, "pipeline_parallel_degree": 2},
    {"recompute": Recompute.SELECTIVE},
    {"offload_activations": True},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.OPTIMIZER, "optimizer_offload_percent": 50},
    {"precision": Precision.FP32, "attention_kernel": AttentionKernel.MATH},
    {"precision": Precision.FP8, "fp8_recipe": Fp8Recipe.DELAYED},
    {"precision": Precision.FP8, "fp8_recipe": Fp8Recipe.BLOCKWISE},
    {"attention_kernel": AttentionKernel.CUDNN},
)


def _launches() -> Iterator[tuple[Job, Layout]]:
    for fields in _LAYOUTS:
        layout = Layout(**fields)
        cluster = h100_cluster(1, accelerators_per_node=layout.world_size, accelerator=h100())
        job = replace(big_job(1), cluster=cluster, stack=load_stack("megatron-core"))
        yield job, layout
        if (
            not layout.offload_activations and layout.precision != Precision.FP8
        ):  # it asks for Transformer Engine's version
            split = replace(layout, sequence_parallel=layout.tensor_parallel_degree > 1)
            yield (
                replace(job, model=_MIXTRAL),
                replace(split, expert_parallel_degree=min(8, layout.data_parallel_shard_degree)),
            )
    yield (
        replace(big_job(1), model=_DEEPSEEK, stack=load_stack("megatron-core")),
        Layout(tensor_parallel_degree=8, sequence_parallel=True),
    )


def _core(settings: Written, model_name: str) -> dict[str, dict[str, Any]]:
    """Settings as the fields of megatron-core's dataclasses, as training/arguments.py hands them over."""
    fields: dict[str, Any] = {CORE_FIELDS.get(n, n): v for n, v in settings.items() if n not in _OF_OTHERS}
    backend = fields.pop("attention_backend")
    fields |= {"params_dtype": "bfloat16", "pipeline_dtype": "bfloat16", "gated_linear_unit": "swiglu" in settings}
    if "num_experts" in settings:
        fields["num_moe_experts"] = settings["num_experts"]
    if "cp_comm_type" in fields:
        fields["cp_comm_type"] = settings["cp_comm_type"][0]  # type: ignore[index]
    if "moe_layer_freq" in fields:
        fields["moe_layer_freq"] = [0] * 3 + [1] * 77
    assert backend in ("flash", "fused", "unfused")
    sharded = {CORE_FIELDS.get(n, n): v for n, v in settings.items() if n in _DDP}
    return {
        model_name: fields,
        "DistributedDataParallelConfig": sharded,
        "OptimizerConfig": {
            "use_distributed_optimizer": sharded.get("use_distributed_optimizer", False),
            "bf16": "bf16" in settings,
            # the third asks for the version of Transformer Engine, which needs a GPU
            **{n: settings[n] for n in OPTIMIZER_OFFLOAD[:2] if n in settings},
        },
    }


@pytest.fixture(scope="module")
def answers() -> list[list[str]]:
    """What megatron-core says of each launch: nothing, or a complaint by dataclass."""
    asked = []
    for job, layout in _launches():
        latent = job.model.latent_attention is not None
        settings = write_shapes(job) | layout_settings(job, layout)
        asked.append(_core(settings, "MLATransformerConfig" if latent else "TransformerConfig"))
    command = [sys.executable, "-m", "tests.unit.exports.megatron.core_fields"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=100)
    return list(json.loads(done.stdout[done.stdout.index("[[") :]))


@pytest.mark.oracle  # imports megatron-core
def test_every_layout_that_is_written_is_taken(answers: list[list[str]]) -> None:
    launches = list(_launches())
    assert len(answers) == len(launches)
    refused = {
        f"{job.model.experts is not None} {layout}": said for (job, layout), said in zip(launches, answers, strict=True)
    }
    assert {name: said for name, said in refused.items() if any(said)} == {}


def test_a_read_export_gives_the_same_settings() -> None:
    job, layout = next(_launches())
    arguments = export(job, layout, "megatron-lm").arguments
    assert {f"--{name.replace('_', '-')}" for name in ("num_layers", "hidden_size", "tensor_model_parallel_size")} <= {
        *arguments
    }
