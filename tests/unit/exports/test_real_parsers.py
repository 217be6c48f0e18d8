"""Exports for DeepSpeed, accelerate and transformers, read by these packages themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.choices import ContextExchange, Fp8Recipe, OptimizerKernel, Precision, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.exports.formats import export
from autotuner.exports.shared.keys import flat
from autotuner.exports.shared.target import Export
from tests.builders import big_job

ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "4",
    "LOCAL_SIZE": "4",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",  # nobody connects to it
}
"""Of a first rank on cores."""

_JOB = replace(big_job(1), workload=Workload(seq_len=4096, global_batch_size=64))
_ZERO_1 = Layout(data_parallel_shard_degree=4, shard_level=ShardLevel.OPTIMIZER)
_ZERO_2 = replace(_ZERO_1, shard_level=ShardLevel.GRADIENTS)
_ZERO_3 = replace(_ZERO_1, shard_level=ShardLevel.PARAMETERS)
_REPLICAS = Layout(data_parallel_replicate_degree=4)

_DEEPSPEED = (
    _REPLICAS,
    replace(_REPLICAS, precision=Precision.FP32, pipeline_parallel_degree=2, recompute=Recompute.FULL),
    replace(_ZERO_1, tensor_parallel_degree=2, gradient_bucket_bytes=2**20, fp32_gradient_reduce=True),
    replace(_ZERO_2, tensor_parallel_degree=2, loss_parallel=False, micro_batch_size=4),
    replace(_ZERO_2, context_parallel_degree=2, context_exchange=ContextExchange.ALL_TO_ALL),
    replace(_ZERO_3, reshard_after_forward=True, expert_parallel_degree=2),
    replace(_ZERO_3, recompute=Recompute.FULL),
)
_ACCELERATE = (
    _REPLICAS,
    replace(_REPLICAS, precision=Precision.FP32, compiled=True),
    replace(_REPLICAS, precision=Precision.FP8, fp8_recipe=Fp8Recipe.DELAYED),
    _ZERO_1,
    replace(_ZERO_2, context_parallel_degree=2, context_exchange=ContextExchange.ALL_TO_ALL),
    replace(_ZERO_3, reshard_after_forward=True, data_parallel_replicate_degree=2),
    replace(_ZERO_3, tensor_parallel_degree=2, recompute=Recompute.FULL, offload_activations=True),
    replace(_ZERO_3, context_parallel_degree=2, context_exchange=ContextExchange.ALL_GATHER),
    replace(_ZERO_3, context_parallel_degree=2, context_exchange=ContextExchange.RING, precision=Precision.FP8),
)
_TRANSFORMERS = (
    replace(_REPLICAS, gradient_bucket_bytes=2**21, micro_batch_size=2, optimizer_kernel=OptimizerKernel.FOREACH),
    replace(_REPLICAS, precision=Precision.FP32, recompute=Recompute.FULL, offload_activations=True),
    replace(_ZERO_1, recompute=Recompute.FULL, recompute_every=2),
    _ZERO_2,
    replace(_ZERO_3, reshard_after_forward=True, recompute=Recompute.FULL),
    replace(_ZERO_3, compiled=True),
)


def _understood(exports: list[Export]) -> list[dict[str, Any]]:
    said = [
        {"format": e.format, "arguments": list(e.arguments), "files": {file.name: file.text for file in e.files}}
        for e in exports
    ]
    command = [sys.executable, "-m", "tests.unit.exports.real_parsers"]
    process = subprocess.run(
        command,
        input=json.dumps(said),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    answers: list[dict[str, Any]] = json.loads(process.stdout)
    return answers


@pytest.mark.oracle
def test_the_packages_own_parsers_read_what_was_said() -> None:
    asked = [
        *((layout, export(_JOB, layout, "deepspeed"), _of_deepspeed) for layout in _DEEPSPEED),
        *((layout, export(_JOB, layout, "accelerate"), _of_accelerate) for layout in _ACCELERATE),
        *((layout, export(_JOB, layout, "transformers"), _of_transformers) for layout in _TRANSFORMERS),
    ]
    answers = _understood([one for _, one, _ in asked])
    for (layout, one, expected), answer in zip(asked, answers, strict=True):
        assert one.unsupported == ()
        wanted = expected(layout, one)
        assert {name: answer.get(name, answer) for name in wanted} == wanted


def _of_deepspeed(layout: Layout, exported: Export) -> dict[str, Any]:
    """Every value of the file but those that ``deepspeed.initialize`` reads, and none that nobody reads."""
    config = flat(json.loads(exported.files[0].text))
    sizes = ["data_parallel_size", "sequence_parallel_size"] if layout.context_parallel_degree > 1 else []
    return {name: value for name, value in config.items() if name not in sizes} | {
        "train_batch_size": 64,
        "zero_optimization.stage": layout.shard_level.value,
        "bf16.enabled": layout.precision == Precision.BF16,
        "never asked for": sizes,
    }


def _of_accelerate(layout: Layout, _: Export) -> dict[str, Any]:
    exchanges = layout.context_exchange == ContextExchange.ALL_TO_ALL
    by_zero = layout.shard_level in (ShardLevel.OPTIMIZER, ShardLevel.GRADIENTS)
    by_fsdp = layout.shard_level == ShardLevel.PARAMETERS
    has_sizes = by_fsdp and layout != replace(_ZERO_3, reshard_after_forward=layout.reshard_after_forward)
    words = {Precision.FP32: "no", Precision.BF16: "bf16", Precision.FP8: "fp8"}
    wanted: dict[str, Any] = {
        "distributed_type": "DEEPSPEED" if by_zero else "FSDP" if by_fsdp else "MULTI_GPU",
        "num_processes": layout.world_size,
        "mixed_precision": "no" if by_zero else words[layout.precision],
        "dynamo_backend": "inductor" if layout.compiled else "no",
        "deepspeed_config_file": "ds_config.json" if by_zero else None,
        "dp_replicate_size": layout.data_parallel_replicate_degree if has_sizes else 1,
        "dp_shard_size": layout.data_parallel_shard_degree if has_sizes else 1,
        "tp_size": layout.tensor_parallel_degree,
        "cp_size": 1 if exchanges else layout.context_parallel_degree,
        "sp_size": layout.context_parallel_degree if exchanges else 1,
        "unknown": [],
    }
    if layout.precision == Precision.FP8:
        wanted["fp8_backend"] = "TE" if layout.fp8_recipe == Fp8Recipe.DELAYED else "AO"
    if by_fsdp:
        wanted |= {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": layout.reshard_after_forward,
            "fsdp_activation_checkpointing": layout.recompute == Recompute.FULL,
            "fsdp_activation_checkpointing_offload": layout.offload_activations,
            "cp_comm_strategy": "alltoall" if _goes_round(layout) else "allgather",
        }
    return wanted


def _goes_round(layout: Layout) -> bool:
    return layout.context_parallel_degree > 1 and layout.context_exchange == ContextExchange.RING


def _of_transformers(layout: Layout, _: Export) -> dict[str, Any]:
    by_zero = layout.shard_level in (ShardLevel.OPTIMIZER, ShardLevel.GRADIENTS)
    by_fsdp = layout.shard_level == ShardLevel.PARAMETERS
    kwargs = {"every_n_layers": layout.recompute_every} if layout.recompute_every > 1 else {}
    kwargs |= {"offload": True} if layout.offload_activations else {}
    return {
        "per_device_train_batch_size": layout.micro_batch_size,
        "gradient_accumulation_steps": 16 // layout.micro_batch_size,
        "bf16": layout.precision == Precision.BF16,
        "optim": "adamw_torch_fused" if layout.optimizer_kernel == OptimizerKernel.FUSED else "adamw_torch",
        "torch_compile": layout.compiled,
        "ddp_bucket_cap_mb": 2 if layout.gradient_bucket_bytes == 2**21 else None,
        "recompute": layout.recompute == Recompute.FULL,
        "kwargs": kwargs or None,
        "fsdp_version": 2 if by_fsdp else None,
        "reshard_after_forward": layout.reshard_after_forward if by_fsdp else None,
        "stage": layout.shard_level.value if by_zero else None,
        "train_batch_size": 64 if by_zero else None,
    }
