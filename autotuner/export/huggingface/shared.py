"""What accelerate and Transformers have in common: backends, where their keys stand, and what neither can run.

Source: accelerate 1.15.0 (parallelism_config.py, utils/dataclasses.py, commands/launch.py), which transformers 5.23.0
starts too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

from autotuner.core.choices import (
    NARROW_PRECISIONS,
    ContextExchange,
    Fp8Recipe,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.rule import Limit, Rule, any_of, held, named, refuse
from autotuner.export.common_rules import exchanges_and_batches
from autotuner.export.deepspeed import ZERO_RULES, attending, on_data_ranks
from autotuner.export.table import Key, number, words
from autotuner.export.target import Notes


class Backend(Enum):
    """What accelerate starts."""

    DDP = "MULTI_GPU"
    FSDP = "FSDP"
    DEEPSPEED = "DEEPSPEED"


_BETWEEN = (ShardLevel.OPTIMIZER, ShardLevel.GRADIENTS)
"""Levels that FSDP2 does not have."""


def exchanges_heads(x: Layout) -> bool:
    """Whether parts of a sequence are exchanged for heads: Ulysses, by DeepSpeed; also of a column of layouts."""
    return (x.context_parallel_degree > 1) & (x.context_exchange == ContextExchange.ALL_TO_ALL)


def backend_of(layout: Layout) -> Backend:
    """What runs a layout."""
    if layout.shard_level in _BETWEEN or exchanges_heads(layout):
        return Backend.DEEPSPEED
    return Backend.FSDP if layout.shard_level == ShardLevel.PARAMETERS else Backend.DDP


def is_by_torch(layout: Layout) -> bool:
    """Whether torch's own wrappers run a layout, and not DeepSpeed."""
    return backend_of(layout) != Backend.DEEPSPEED


def _size(name: str, field: str) -> Key:
    return number(name, field, when=lambda x: is_by_torch(x) and getattr(x, field) > 1)


SIZES: tuple[Key, ...] = (
    _size("dp_replicate_size", "data_parallel_replicate_degree"),
    _size("dp_shard_size", "data_parallel_shard_degree"),
    _size("tp_size", "tensor_parallel_degree"),
    _size("cp_size", "context_parallel_degree"),
    words(
        "cp_comm_strategy",
        "context_exchange",
        # "alltoall" permutes keys and values to the next rank (torch 2.13, _AllToAllRotater)
        {"allgather": ContextExchange.ALL_GATHER, "alltoall": ContextExchange.RING},
        when=lambda x: is_by_torch(x) and x.context_parallel_degree > 1,
    ),
    number(
        "sp_size",  # Ulysses, by DeepSpeed
        "context_parallel_degree",
        when=lambda x: not is_by_torch(x) and x.context_parallel_degree > 1,
    ),
)
"""Names of ``ParallelismConfig``, which a configuration and the environment say with a prefix."""


def says_sizes(layout: Layout) -> bool:
    """Whether accelerate cannot tell the sizes from the number of processes."""
    several = layout.tensor_parallel_degree > 1 or layout.context_parallel_degree > 1
    return several or (backend_of(layout) == Backend.FSDP and layout.data_parallel_replicate_degree > 1)


# ---------------------------------------------------------------- read
def plain(layout: Layout, notes: Notes, *, says_exchange: bool) -> Layout:
    """The layout with what means nothing beside the rest at its default, and accelerate's defaults for what does."""
    layout = attending(layout, notes)
    if layout.precision != Precision.FP8:
        layout = replace(layout, fp8_recipe=Fp8Recipe.TENSORWISE)
    if layout.context_parallel_degree == 1:
        return replace(layout, context_exchange=ContextExchange.RING)
    if not says_exchange:
        notes.assumed("cp_comm_strategy", "allgather")
        layout = replace(layout, context_exchange=ContextExchange.ALL_GATHER)
    return layout


def on_ranks(layout: Layout, num_ranks: int | None, notes: Notes, *, says_sizes: bool) -> tuple[Layout, bool]:
    """The layout on its ranks, and whether their number is known.

    Args:
        layout: With its other degrees; with those of data-parallel ranks where ``says_sizes``.
        num_ranks: In all, where something says it.
        notes: Gets what becomes of a level that one rank cannot shard.
        says_sizes: A configuration says how many replicas and shards there are.

    Raises:
        InvalidInput: The ranks do not split so.
    """
    if says_sizes:
        if num_ranks not in (None, layout.world_size):
            rule = f"must be the product of the sizes of parallelism_config ({layout.world_size})"
            raise InvalidInput("num_processes", num_ranks, rule, layout.world_size)
        return layout, True
    inner = layout.tensor_parallel_degree * layout.context_parallel_degree * layout.pipeline_parallel_degree
    if num_ranks is not None and num_ranks % inner:
        rule = f"must be a multiple of {inner} tensor, context and pipeline ranks"
        raise InvalidInput("num_processes", num_ranks, rule, max(1, round(num_ranks / inner)) * inner)
    num_data_ranks = (num_ranks or inner) // inner
    if num_ranks is not None and num_data_ranks * layout.context_parallel_degree == 1:
        if layout.shard_level != ShardLevel.NONE:
            notes.changed("sharding", "one process has nothing to shard")
        layout = replace(layout, shard_level=ShardLevel.NONE, reshard_after_forward=False)
    return on_data_ranks(layout, num_data_ranks), num_ranks is not None


# ---------------------------------------------------------------- rules
_HELD: Mapping[str, tuple[str, str]] = {
    "has-no-pipeline": ("pipeline_parallel_degree", "only Megatron-LM pipelines under accelerate; one stage runs"),
    "has-no-virtual-stages": ("virtual_stages_per_rank", "there is no pipeline with stages"),
    "has-no-schedule": ("pipeline_schedule", "there is no pipeline that would follow a schedule"),
    "sends-to-no-stage": ("p2p_transport", "there is no pipeline whose stages would send"),
    "plans-no-slack": ("extra_slack", "there is no pipeline that would run ahead"),
    "has-no-delegates": ("num_delegates", "there is no pipeline whose sends would be delegated"),
    "orders-no-stages": ("rank_order", "there is no pipeline whose stages would change places with replicas"),
    "rotates-no-stages": ("stage_rotation", "there is no pipeline whose stages would be rotated"),
    "cuts-no-first-stage": ("first_stage_less_layers", "there is no pipeline with a first stage"),
    "cuts-no-last-stage": ("last_stage_less_layers", "there is no pipeline with a last stage"),
    "has-no-expert-ranks": ("expert_parallel_degree", "the script splits experts where it loads the model"),
    "splits-no-norms": ("sequence_parallel", "the model's plan for tensor ranks decides; no setting splits norms"),
    "cuts-no-products": (
        "async_tensor_parallel",
        "only code says it (TorchTensorParallelConfig.enable_async_tp)",
    ),
}
"""Fields that stay at their defaults, and why, by the names of rules."""

_LIMITS: Mapping[str, Limit] = {
    "accelerate-replicates-no-zero-shards": held(
        "data_parallel_replicate_degree",
        1,
        "ZeRO shards over all {x.data_parallel_degree} data-parallel ranks, without replicas of shards",
        lambda x, j: any_of(x.shard_level, _BETWEEN) | ((x.shard_level != ShardLevel.NONE) & exchanges_heads(x)),
    ),
    "accelerate-shards-what-it-splits-sequences-of": held(
        "shard_level",
        ShardLevel.PARAMETERS,
        "context ranks that meet by {x.context_exchange} are FSDP2's, which shards parameters",
        lambda x, j: (x.context_parallel_degree > 1) & (x.context_exchange != ContextExchange.ALL_TO_ALL),
    ),
    "accelerate-shards-beside-tensor-ranks": refuse(
        "shard_level",
        lambda x, j: (
            (x.tensor_parallel_degree > 1)
            & (
                any_of(x.shard_level, _BETWEEN)
                | ((x.shard_level == ShardLevel.NONE) & (x.data_parallel_replicate_degree > 1))
            )
        ),
        "ParallelismConfig joins tensor ranks with FSDP2, which shards parameters, and with nothing else",
        ShardLevel.PARAMETERS,
    ),
    "accelerate-exchanges-heads-without-tensor-ranks": refuse(
        "context_exchange",
        lambda x, j: (x.tensor_parallel_degree > 1) & exchanges_heads(x),
        "all_to_all is DeepSpeed's Ulysses, which knows no tensor ranks of torch's",
        ContextExchange.ALL_GATHER,
    ),
    "accelerate-replicates-shards": refuse(
        "data_parallel_shard_degree",
        lambda x, j: (
            (x.shard_level == ShardLevel.PARAMETERS)
            & (x.data_parallel_shard_degree == 1)
            & (x.data_parallel_replicate_degree > 1)
        ),
        "ParallelismConfig refuses replicas of context ranks that share parameters without shard ranks",
        lambda x, j: x.data_parallel_replicate_degree,
    ),
    "accelerate-zero-multiplies-in-16-bits-or-more": refuse(
        "precision",
        lambda x, j: any_of(x.precision, NARROW_PRECISIONS) & (any_of(x.shard_level, _BETWEEN) | exchanges_heads(x)),
        "DeepSpeed's configuration has no key for {x.precision}",
        Precision.BF16,
    ),
    "accelerate-recomputes-all-or-nothing": refuse(
        "recompute",
        lambda x, j: x.recompute == Recompute.SELECTIVE,
        "activation checkpointing recomputes whole layers or none",
        Recompute.FULL,
    ),
    "accelerate-offloads-what-layers-start-from": held(
        "offload_activations",
        False,
        "only the inputs of layers that are recomputed wait in the host's memory",
        lambda x, j: x.recompute != Recompute.FULL,
    ),
}

RULES: tuple[Rule, ...] = (
    *(rule for rule in ZERO_RULES if rule.field == "gradient_bucket_bytes" and "whole" in rule.name),
    *exchanges_and_batches("accelerate", "accelerate"),
    *named({f"accelerate-{name}": held(field, OPTIONS[field].default, why) for name, (field, why) in _HELD.items()}),
    *named(_LIMITS),
)
"""Layouts that accelerate cannot run, whoever starts it."""
