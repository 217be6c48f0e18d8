"""Which key of accelerate's configuration holds which field of a layout.

Source of names and defaults: accelerate 1.15.0, ``commands/config/config_args.py``, ``commands/config/cluster.py`` and
``commands/launch.py``.
"""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import Fp8Recipe, Precision, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.export.huggingface.backend import SIZES, Backend, backend_of, says_sizes
from autotuner.export.keys import Key, count, words

PARALLELISM = "parallelism_config.parallelism_config_"
"""What stands before the names of ``ParallelismConfig``."""


def _is_fsdp(layout: Layout) -> bool:
    return backend_of(layout) == Backend.FSDP


def _has_precision(layout: Layout) -> bool:
    return backend_of(layout) != Backend.DEEPSPEED  # a configuration file of DeepSpeed's says it there


def _in_its_section(key: Key) -> Key:
    return replace(
        key, path=f"{PARALLELISM}{key.path}", said=lambda layout: key.said(layout) if says_sizes(layout) else None
    )


COMPILED = words(
    "dynamo_config.dynamo_backend",
    "compiled",
    {"INDUCTOR": True, "NO": False, "inductor": True, "no": False},
    when=lambda layout: layout.compiled,
)
"""What counts whoever runs it."""

KEYS: tuple[Key, ...] = (
    words(
        "mixed_precision",
        "precision",
        {"bf16": Precision.BF16, "no": Precision.FP32, "fp8": Precision.FP8, "fp16": Precision.BF16},
        when=_has_precision,
    ),
    words(
        "fp8_config.backend",
        "fp8_recipe",
        {"AO": Fp8Recipe.TENSORWISE, "TE": Fp8Recipe.DELAYED},
        when=lambda layout: layout.precision == Precision.FP8,
    ),
    words("fsdp_config.fsdp_reshard_after_forward", "reshard_after_forward", {True: True, False: False}, when=_is_fsdp),
    words(
        "fsdp_config.fsdp_activation_checkpointing",
        "recompute",
        {True: Recompute.FULL, False: Recompute.NONE},
        when=_is_fsdp,
    ),
    words(
        "fsdp_config.fsdp_activation_checkpointing_offload",
        "offload_activations",
        {True: True, False: False},
        when=lambda layout: _is_fsdp(layout) and layout.offload_activations,
    ),
    COMPILED,
    *(_in_its_section(key) for key in SIZES),
)
"""In the order in which they are read."""

MEGATRON_KEYS: tuple[Key, ...] = (
    count("megatron_lm_config.megatron_lm_tp_degree", "tensor_parallel_degree"),
    count("megatron_lm_config.megatron_lm_pp_degree", "pipeline_parallel_degree"),
    count("megatron_lm_config.megatron_lm_context_parallel_size", "context_parallel_degree"),
    count("megatron_lm_config.megatron_lm_expert_model_parallel_size", "expert_parallel_degree"),
    words("megatron_lm_config.megatron_lm_sequence_parallelism", "sequence_parallel", {True: True, False: False}),
    words(
        "megatron_lm_config.megatron_lm_recompute_activations",
        "recompute",
        {True: Recompute.SELECTIVE, False: Recompute.NONE},
    ),
    words(
        "megatron_lm_config.megatron_lm_recompute_granularity",
        "recompute",
        {"selective": Recompute.SELECTIVE, "full": Recompute.FULL},
    ),
    words(
        "megatron_lm_config.megatron_lm_use_distributed_optimizer",
        "shard_level",
        {True: ShardLevel.OPTIMIZER, False: ShardLevel.NONE},
    ),
)
"""What it says for Megatron-LM, which is read and not written: Megatron's own flags say more."""
