"""Which key of ``ds_config.json`` holds which field of a layout, and what other keys mean for one.

Source of names and defaults: deepspeed 0.19.8, ``runtime/config.py``, ``runtime/zero/config.py``,
``runtime/tensor_parallel/config.py``, ``module_inject/auto_ep_config.py``, and ``__init__.py`` for data and sequence
sizes.
"""

from __future__ import annotations

from autotuner.core.choices import Precision, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.export.keys import Key, count, number_of, words

DEFAULT_BUCKET_ELEMENTS = 500_000_000
"""``zero_optimization.reduce_bucket_size`` (runtime/zero/config.py, 0.19.8)."""

STAGE_0_ELEMENTS = 500_000_000
"""``MEMORY_OPT_ALLREDUCE_SIZE``: stage 0 has no key for it (runtime/engine.py, 0.19.8)."""

NEVER_REUSED = 10**13
"""A reuse distance beyond twice the parameters of any model: stage 3 keeps what it gathered until the backward pass."""

_FAR = 10**12
"""Reuse distances from here on keep a whole model."""

BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def gradient_element_bytes(x: Layout) -> int:
    """Bytes of an element of the gradients that are reduced in buckets, also of a column of layouts."""
    return 2 + 2 * (x.precision == Precision.FP32)


def _bucket(layout: Layout) -> object:
    if layout.shard_level != ShardLevel.OPTIMIZER:
        return None  # stage 0 has no key, and a layout of stages 2 and 3 no size
    return max(1, layout.gradient_bucket_bytes // gradient_element_bytes(layout))


def _bucket_bytes(path: str, raw: object, layout: Layout) -> object:
    elements = number_of(path, raw, at_least=1)
    return (
        elements * gradient_element_bytes(layout)
        if layout.shard_level == ShardLevel.OPTIMIZER
        else (layout.gradient_bucket_bytes)
    )


def _splits_whole_model(layout: Layout) -> bool:
    """Return whether AutoTP splits the model; in a pipeline the model's own layers do."""
    return layout.tensor_parallel_degree > 1 and layout.pipeline_parallel_degree == 1


def _reuse_distance(layout: Layout) -> object:
    if layout.shard_level != ShardLevel.PARAMETERS:
        return None
    return 0 if layout.reshard_after_forward else NEVER_REUSED


def _reshards(path: str, raw: object, layout: Layout) -> object:
    is_near = number_of(path, raw) < _FAR
    return is_near and layout.shard_level == ShardLevel.PARAMETERS


def _reduces_in_fp32(raw: object, layout: Layout) -> object:
    return raw == "fp32" and layout.precision != Precision.FP32


KEYS: tuple[Key, ...] = (
    count("train_micro_batch_size_per_gpu", "micro_batch_size", when=lambda x: True),
    words("bf16.enabled", "precision", {True: Precision.BF16, False: Precision.FP32}),
    words("zero_optimization.stage", "shard_level", {level.value: level for level in ShardLevel}),
    Key(
        path="tensor_parallel.autotp_size",  # 0: it is off
        field="tensor_parallel_degree",
        said=lambda x: x.tensor_parallel_degree if _splits_whole_model(x) else None,
        heard=lambda path, raw, x: max(1, number_of(path, raw)),
    ),
    words(
        "tensor_parallel.vocab_parallel_lm_head",  # unsaid: whole logits, but for a tied head with a plan of its own
        "loss_parallel",
        {True: True, False: False},
        when=_splits_whole_model,
    ),
    count("pipeline.stages", "pipeline_parallel_degree"),
    Key(
        path="pipeline.activation_checkpoint_interval",  # layers per checkpoint, of all layers; 0 keeps what they save
        field="recompute",
        said=lambda x: 1 if x.pipeline_parallel_degree > 1 and x.recompute == Recompute.FULL else None,
        heard=lambda path, raw, x: Recompute.FULL if number_of(path, raw) else x.recompute,
    ),
    count("sequence_parallel_size", "context_parallel_degree"),
    count("expert_parallel.autoep_size", "expert_parallel_degree"),
    Key(
        path="zero_optimization.reduce_bucket_size",  # elements
        field="gradient_bucket_bytes",
        said=_bucket,
        heard=_bucket_bytes,
    ),
    Key(
        path="zero_optimization.stage3_max_reuse_distance",
        field="reshard_after_forward",
        said=_reuse_distance,
        heard=_reshards,
    ),
    Key(
        path="communication_data_type",
        field="fp32_gradient_reduce",
        said=lambda x: "fp32" if x.fp32_gradient_reduce and x.context_parallel_degree == 1 else None,
        heard=lambda path, raw, x: _reduces_in_fp32(raw, x) and x.context_parallel_degree == 1,
    ),
    Key(
        path="seq_parallel_communication_data_type",  # stands in for the key above beside sequence ranks; default fp32
        field="fp32_gradient_reduce",
        said=lambda x: (
            ("fp32" if x.fp32_gradient_reduce else "bf16")
            if x.context_parallel_degree > 1 and x.precision != Precision.FP32
            else None
        ),
        heard=lambda path, raw, x: (
            _reduces_in_fp32(raw, x) if x.context_parallel_degree > 1 else x.fp32_gradient_reduce
        ),
    ),
)
"""In the order in which they are read: precision and level before what they decide."""

CHANGED: dict[str, str] = {
    "zero_optimization.offload_optimizer": "optimizer states wait in the host's memory, which a layout does not say: "
    "its predicted memory counts them on the device",
    "zero_optimization.offload_param": "parameters wait in the host's memory, which a layout does not say: its "
    "predicted memory counts them on the device",
    "zero_optimization.zero_hpz_partition_size": "a second copy of the parameters inside each node, which a layout "
    "does not say",
    "zero_optimization.zero_quantized_weights": "parameters are gathered in 8 bits, which a layout does not say",
    "zero_optimization.zero_quantized_gradients": "gradients are sent in 4 and 8 bits, which a layout does not say",
    "activation_checkpointing.partition_activations": "what is recomputed from is split over tensor ranks, which a "
    "layout does not say",
    "activation_checkpointing.cpu_checkpointing": "what is recomputed from waits in the host's memory, which a layout "
    "does not say",
    "tensor_parallel.tp_overlap_comm": "tensor ranks communicate while gradients of weights are computed; the nearest "
    "of a layout, async_tensor_parallel, cuts up matrix products",
    "compile.deepcompile": "DeepSpeed compiles the whole model; a layout says whether each layer is compiled",
}
"""Keys that matter and that a layout cannot say, by path or by section; off, they say nothing."""

KNOWN_SECTIONS = frozenset(
    (*BATCH_KEYS, *(key.path.split(".")[0] for key in KEYS), *(path.split(".")[0] for path in CHANGED))
) | {
    *("fp16", "bfloat16", "torch_autocast", "optimizer", "scheduler", "gradient_clipping", "prescale_gradients"),
    *("gradient_predivide_factor", "gradient_allreduce_op", "steps_per_print", "wall_clock_breakdown"),
    *("memory_breakdown", "dump_state", "disable_allgather", "disable_python_gc", "dataloader_drop_last", "log_level"),
    *("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "data_types", "data_efficiency", "aio"),
    *("checkpoint", "comms_logger", "tensorboard", "wandb", "csv_monitor", "comet", "flops_profiler", "autotuning"),
    *("hybrid_engine", "weight_quantization", "timers", "data_parallel_size", "use_data_before_expert_parallelism"),
    *("managed_gradient_accumulation", "datastates", "vocabulary_size", "nebula", "amp", "compression_training"),
    *("sparse_gradients", "sparse_attention", "elasticity", "eigenvalue", "curriculum_learning", "quantize_training"),
}
"""Names at the top of a configuration, those of older releases too; DeepSpeed ignores any other without a word."""
