"""Layouts that arguments of the ``transformers`` Trainer cannot say (transformers 5.23.0)."""

from __future__ import annotations

from autotuner.core.choices import Precision, ShardLevel
from autotuner.core.layout import DEFAULT_BUCKET_BYTES
from autotuner.core.rules.rule import Rule
from autotuner.core.units import MIB
from autotuner.export.huggingface.backend import RULES, exchanges_heads

ELSEWHERE = frozenset({"attention_kernel", "fused_norm", "fp32_gradient_reduce"})
"""What the script decides where it loads its model: attention, norms, and the format of weights and gradients."""

TRANSFORMERS_RULES: tuple[Rule, ...] = (
    *RULES,
    Rule(
        "transformers-splits-no-tensors",
        "tensor_parallel_degree",
        lambda x, j: x.tensor_parallel_degree > 1,
        lambda x, j: (
            "no argument splits tensors: the script loads its model so (DistributedConfig), or DeepSpeed does (AutoTP)"
        ),
        lambda x, j: 1,
    ),
    Rule(
        "transformers-sizes-whole-mebibytes",
        "gradient_bucket_bytes",
        lambda x, j: (x.shard_level == ShardLevel.NONE) & (x.gradient_bucket_bytes % MIB != 0),
        lambda x, j: f"ddp_bucket_cap_mb counts MiB, and {x.gradient_bucket_bytes} bytes are no whole number of them",
        lambda x, j: x.gradient_bucket_bytes + -x.gradient_bucket_bytes % MIB,
    ),
    Rule(
        "transformers-sizes-no-bucket-beside-ulysses",
        "gradient_bucket_bytes",
        lambda x, j: (
            (x.shard_level == ShardLevel.NONE) & exchanges_heads(x) & (x.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES)
        ),
        lambda x, j: "DeepSpeed runs it, and stage 0 has no key for its buckets",
        lambda x, j: DEFAULT_BUCKET_BYTES,
    ),
    Rule(
        "transformers-multiplies-in-16-bits-or-more",
        "precision",
        lambda x, j: (x.precision != Precision.BF16) & (x.precision != Precision.FP32),
        lambda x, j: f"the Trainer has no argument for {x.precision}; bf16 runs instead",
        lambda x, j: Precision.BF16.label,
    ),
    Rule(
        "transformers-shards-parameters-on-gpus",
        "shard_level",
        lambda x, j: (x.shard_level == ShardLevel.PARAMETERS) & (j.cluster.accelerator.kind == "cpu"),
        lambda x, j: "on cores the Trainer leaves FSDP out without a word and trains replicas; DeepSpeed's stages run",
        lambda x, j: ShardLevel.GRADIENTS.label,
        is_of_hardware=True,
    ),
)
