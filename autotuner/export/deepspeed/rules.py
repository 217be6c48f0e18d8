"""Layouts that DeepSpeed cannot express, each with what it does instead.

Source: deepspeed 0.19.8, the files named beside each rule.
"""

from __future__ import annotations

from autotuner.core.choices import ContextExchange, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.layout import DEFAULT_BUCKET_BYTES
from autotuner.core.rules.rule import Rule, any_of
from autotuner.export.common_rules import exchanges_and_batches, numbers_ranks, sends_and_places
from autotuner.export.deepspeed.keys import STAGE_0_ELEMENTS, gradient_element_bytes

ELSEWHERE = frozenset({"attention_kernel", "fused_norm", "compiled", "optimizer_kernel"})
"""What the script decides: the model's attention and norms, ``engine.compile()``, the optimizer that it is handed."""

_BY_LAYER = (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)

ZERO_RULES: tuple[Rule, ...] = (
    Rule(
        "deepspeed-shards-over-all-replicas",
        "data_parallel_replicate_degree",
        lambda x, j: (x.shard_level != ShardLevel.NONE) & (x.data_parallel_replicate_degree > 1),
        lambda x, j: (
            f"ZeRO shards over all data-parallel ranks, here {x.data_parallel_degree}; it keeps no "
            f"{x.data_parallel_replicate_degree} replicas of the shards"
        ),
        lambda x, j: 1,
    ),  # runtime/engine.py: seq_data_parallel_group
    Rule(
        "deepspeed-sizes-no-bucket-at-stage-0",
        "gradient_bucket_bytes",
        lambda x, j: (x.shard_level == ShardLevel.NONE) & (x.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES),
        lambda x, j: (
            f"ZeRO stage 0 has no key for its buckets: it reduces {STAGE_0_ELEMENTS:,} elements at once, after the "
            "last micro-batch"
        ),
        lambda x, j: DEFAULT_BUCKET_BYTES,
    ),  # runtime/engine.py: MEMORY_OPT_ALLREDUCE_SIZE
    Rule(
        "deepspeed-counts-whole-elements",
        "gradient_bucket_bytes",
        lambda x, j: (
            (x.shard_level == ShardLevel.OPTIMIZER) & (x.gradient_bucket_bytes % gradient_element_bytes(x) != 0)
        ),
        lambda x, j: (
            f"reduce_bucket_size counts elements of {gradient_element_bytes(x)} bytes, and {x.gradient_bucket_bytes} "
            "bytes are no whole number of them"
        ),
        lambda x, j: x.gradient_bucket_bytes + -x.gradient_bucket_bytes % gradient_element_bytes(x),
    ),
)
"""Rules of ZeRO, whoever starts it."""

RULES: tuple[Rule, ...] = (
    *ZERO_RULES,
    *exchanges_and_batches("DeepSpeed", "deepspeed"),
    *sends_and_places("DeepSpeed", "deepspeed"),
    numbers_ranks("DeepSpeed", "deepspeed"),
    Rule(
        "deepspeed-pipelines-shard-optimizers-at-most",
        "shard_level",
        lambda x, j: (x.pipeline_parallel_degree > 1) & any_of(x.shard_level, _BY_LAYER),
        lambda x, j: f"DeepSpeed's pipeline engine refuses ZeRO stage {x.shard_level.value}",
        lambda x, j: ShardLevel.OPTIMIZER.label,
    ),  # runtime/pipe/engine.py
    Rule(
        "deepspeed-pipelines-run-1f1b",
        "pipeline_schedule",
        lambda x, j: x.pipeline_schedule != PipelineSchedule.ONE_F_ONE_B,
        lambda x, j: f"DeepSpeed's pipeline engine runs 1f1b (TrainSchedule) instead of {x.pipeline_schedule}",
        lambda x, j: PipelineSchedule.ONE_F_ONE_B.label,
    ),  # runtime/pipe/schedule.py
    Rule(
        "deepspeed-has-one-stage-per-rank",
        "virtual_stages_per_rank",
        lambda x, j: x.virtual_stages_per_rank > 1,
        lambda x, j: f"PipelineModule gives each rank one stage, not {x.virtual_stages_per_rank}",
        lambda x, j: 1,
    ),  # runtime/pipe/module.py
    Rule(
        "deepspeed-cuts-no-first-stage",
        "first_stage_less_layers",
        lambda x, j: x.first_stage_less_layers > 0,
        lambda x, j: "PipelineModule balances parameters or layers (partition_method); no stage is told its own number",
        lambda x, j: 0,
    ),  # runtime/pipe/module.py
    Rule(
        "deepspeed-cuts-no-last-stage",
        "last_stage_less_layers",
        lambda x, j: x.last_stage_less_layers > 0,
        lambda x, j: "PipelineModule balances parameters or layers (partition_method); no stage is told its own number",
        lambda x, j: 0,
    ),
    Rule(
        "deepspeed-splits-no-stage-over-tensor-ranks",
        "tensor_parallel_degree",
        lambda x, j: (x.pipeline_parallel_degree > 1) & (x.tensor_parallel_degree > 1),
        lambda x, j: (
            "AutoTP splits whole models, no stages of a PipelineModule; a model whose layers are tensor-parallel by "
            "themselves can be laid out by PipeModelDataParallelTopology in code"
        ),
        lambda x, j: 1,
    ),  # runtime/engine.py: AutoTP brings groups of its own, runtime/pipe/engine.py asserts those of the grid
    Rule(
        "deepspeed-splits-no-sequence-in-stages",
        "context_parallel_degree",
        lambda x, j: (x.pipeline_parallel_degree > 1) & (x.context_parallel_degree > 1),
        lambda x, j: "a pipeline's grid has axes for stages, data and tensor ranks, and none for parts of a sequence",
        lambda x, j: 1,
    ),  # __init__.py: no mesh beside a PipelineModule
    Rule(
        "deepspeed-splits-sequence-or-tensors",
        "context_parallel_degree",
        lambda x, j: (x.tensor_parallel_degree > 1) & (x.context_parallel_degree > 1),
        lambda x, j: "Ulysses and AutoTP each lay a mesh of data ranks and their own, and cannot meet in one",
        lambda x, j: 1,
    ),  # __init__.py, utils/groups.py: _init_tp_mesh_device
    Rule(
        "deepspeed-exchanges-heads-for-sequence",
        "context_exchange",
        lambda x, j: (x.context_parallel_degree > 1) & (x.context_exchange != ContextExchange.ALL_TO_ALL),
        lambda x, j: f"Ulysses exchanges heads for parts of the sequence (all_to_all), not by {x.context_exchange}",
        lambda x, j: ContextExchange.ALL_TO_ALL.label,
    ),  # runtime/sequence_parallel/ulysses_sp.py
    Rule(
        "deepspeed-splits-no-norms",
        "sequence_parallel",
        lambda x, j: x.sequence_parallel != 0,
        lambda x, j: "AutoTP leaves norms and their activations whole on every tensor rank",
        lambda x, j: False,
    ),  # module_inject/auto_tp.py
    Rule(
        "deepspeed-cuts-no-products",
        "async_tensor_parallel",
        lambda x, j: x.async_tensor_parallel != 0,
        lambda x, j: "AutoTP cuts up no matrix products; tp_overlap_comm overlaps all-reduces of the backward pass",
        lambda x, j: False,
    ),  # runtime/tensor_parallel/config.py
    Rule(
        "deepspeed-splits-experts-outside-pipelines",
        "expert_parallel_degree",
        lambda x, j: (x.expert_parallel_degree > 1) & (x.pipeline_parallel_degree > 1),
        lambda x, j: "AutoEP finds experts in whole models, not in stages of a PipelineModule",
        lambda x, j: 1,
    ),  # module_inject/auto_ep_folding.py
    Rule(
        "deepspeed-shards-no-parameters-beside-sequence-and-experts",
        "shard_level",
        lambda x, j: (
            (x.expert_parallel_degree > 1) & (x.context_parallel_degree > 1) & (x.shard_level == ShardLevel.PARAMETERS)
        ),
        lambda x, j: "AutoEP refuses ZeRO stage 3 beside Ulysses",
        lambda x, j: ShardLevel.GRADIENTS.label,
    ),  # runtime/engine.py: _validate_zero3_moe_compatibility
    Rule(
        "deepspeed-recomputes-all-or-nothing",
        "recompute",
        lambda x, j: x.recompute == Recompute.SELECTIVE,
        lambda x, j: "scripts for DeepSpeed recompute whole layers (gradient_checkpointing) or none",
        lambda x, j: Recompute.FULL.label,
    ),
    Rule(
        "deepspeed-recomputes-every-layer",
        "recompute_every",
        lambda x, j: x.recompute_every > 1,
        lambda x, j: (
            "scripts for DeepSpeed recompute every layer or none; a pipeline's activation_checkpoint_interval says how "
            "many layers are recomputed together"
        ),
        lambda x, j: 1,
    ),  # runtime/pipe/module.py
    Rule(
        "deepspeed-multiplies-in-16-bits-or-more",
        "precision",
        lambda x, j: (x.precision != Precision.BF16) & (x.precision != Precision.FP32),
        lambda x, j: f"ds_config.json has no key for {x.precision}; bf16 runs instead",
        lambda x, j: Precision.BF16.label,
    ),  # runtime/config.py
    Rule(
        "deepspeed-keeps-activations",
        "offload_activations",
        lambda x, j: x.offload_activations != 0,
        lambda x, j: (
            "activations stay on the device: cpu_checkpointing moves only what a recomputation starts from, "
            "compile.offload_activation only what a memory budget asks for"
        ),
        lambda x, j: False,
    ),  # runtime/activation_checkpointing/config.py, compile/config.py
)
