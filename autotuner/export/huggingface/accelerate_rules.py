"""Layouts that a configuration of ``accelerate launch`` cannot say (accelerate 1.15.0)."""

from __future__ import annotations

from autotuner.core.choices import Fp8Recipe, Precision, ShardLevel
from autotuner.core.layout import DEFAULT_BUCKET_BYTES
from autotuner.core.rules.rule import Rule
from autotuner.export.huggingface.backend import RULES, exchanges_heads

ELSEWHERE = frozenset({"attention_kernel", "fused_norm", "optimizer_kernel", "fp32_gradient_reduce", "loss_parallel"})
"""What the script decides: the model that it loads, with its plan for tensor ranks and the format of its weights, which
is that of the gradients; and the optimizer."""

_FP8 = (Precision.BF16, Precision.FP32, Precision.FP8)

ACCELERATE_RULES: tuple[Rule, ...] = (
    *RULES,
    Rule(
        "accelerate-sizes-no-bucket",
        "gradient_bucket_bytes",
        lambda x, j: (x.shard_level == ShardLevel.NONE) & (x.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES),
        lambda x, j: "the script says it (DistributedDataParallelKwargs.bucket_cap_mb); torch's 25 MiB run",
        lambda x, j: DEFAULT_BUCKET_BYTES,
    ),
    Rule(
        "accelerate-recomputes-every-layer",
        "recompute_every",
        lambda x, j: x.recompute_every > 1,
        lambda x, j: "fsdp_activation_checkpointing recomputes every layer",
        lambda x, j: 1,
    ),
    Rule(
        "accelerate-offloads-with-fsdp",
        "offload_activations",
        lambda x, j: (x.offload_activations != 0) & ((x.shard_level != ShardLevel.PARAMETERS) | exchanges_heads(x)),
        lambda x, j: "fsdp_activation_checkpointing_offload is FSDP2's",
        lambda x, j: False,
    ),
    Rule(
        "accelerate-multiplies-in-8-bits-or-more",
        "precision",
        lambda x, j: (x.precision != _FP8[0]) & (x.precision != _FP8[1]) & (x.precision != _FP8[2]),
        lambda x, j: f"mixed_precision has no word for {x.precision}",
        lambda x, j: Precision.BF16.label,
    ),
    Rule(
        "accelerate-scales-tensors",
        "fp8_recipe",
        lambda x, j: (
            (x.precision == Precision.FP8)
            & (x.fp8_recipe != Fp8Recipe.TENSORWISE)
            & (x.fp8_recipe != Fp8Recipe.DELAYED)
        ),
        lambda x, j: f"fp8_config scales tensorwise (AO) or delayed (TE), not {x.fp8_recipe}",
        lambda x, j: Fp8Recipe.TENSORWISE.label,
    ),
    Rule(
        "accelerate-shards-on-gpus",
        "shard_level",
        lambda x, j: (x.shard_level != ShardLevel.NONE) & (j.cluster.accelerator.kind == "cpu"),
        lambda x, j: "on cores accelerate leaves FSDP and DeepSpeed out without a word, and trains replicas",
        lambda x, j: ShardLevel.NONE.label,
        is_of_hardware=True,
    ),
)
