"""Reads the layout of a row from its cells, and from the defaults of its software where cells are blank."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import NamedTuple

from autotuner.backtests import cells
from autotuner.backtests.cells import Row, UnusableRow, is_true, maybe_count, text
from autotuner.backtests.sources import Source
from autotuner.catalog.software import load_stack
from autotuner.core.choices import (
    FP8_PRECISIONS,
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    PipelineSchedule,
    Recompute,
    ShardLevel,
)
from autotuner.core.cluster import Cluster
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.stages import V_SCHEDULES


class _Degrees(NamedTuple):
    """The degrees of a row.

    ``data`` times ``context`` times ``tensor`` times ``pipeline`` is the number of ranks.
    """

    data: int
    context: int
    tensor: int
    pipeline: int
    expert: int


class _Stages(NamedTuple):
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    virtual: int = 1
    first_less: int = 0
    last_less: int = 0


def layout_of(row: Row, source: Source, cluster: Cluster, model: TransformerSpec) -> Layout:
    """Return the layout of the run in a row. The layout may be illegal; the caller must check it.

    Raises:
        UnusableRow: A word is unknown, or the degrees contradict the number of accelerators.
    """
    degrees = _degrees(row, source, cluster.world_size)
    level, shards = _sharding(row, source, cluster, degrees)
    stages = _stages(row, degrees.pipeline, model, balances=load_stack(source.stack).balances_stages)
    recompute_word = _recompute_word(row, source, cluster, model)
    recomputation = cells.recompute(recompute_word)
    precision = cells.precision(text(row, "precision") or "bf16")
    scaled = cells.fp8_recipe(f"{text(row, 'precision')} {text(row, 'fp8_recipe')}", source.fp8_recipe)
    attention = _attention(row, source)
    split_sequence = is_true(text(row, "seq_parallel"), source.sequence_parallel) and degrees.tensor > 1
    compiled = is_true(text(row, "torch_compile", "compile", "compiled"), source.compiled)
    return Layout(
        data_parallel_replicate_degree=degrees.data // shards,
        data_parallel_shard_degree=shards,
        tensor_parallel_degree=degrees.tensor,
        context_parallel_degree=degrees.context,
        expert_parallel_degree=degrees.expert,
        pipeline_parallel_degree=degrees.pipeline,
        virtual_stages_per_rank=stages.virtual,
        pipeline_schedule=stages.schedule,
        first_stage_less_layers=stages.first_less,
        last_stage_less_layers=stages.last_less,
        micro_batch_size=_micro_batch_size(row, source, degrees),
        shard_level=level,
        # torchtitan/config: "default" reshards, but not in pipelines, where every micro-batch would gather again
        reshard_after_forward=level == ShardLevel.PARAMETERS and degrees.pipeline == 1,
        sequence_parallel=split_sequence,
        recompute=recomputation.level,
        recompute_every=_interval(recomputation, model, degrees.pipeline * stages.virtual),
        attention_kernel=cells.kernel_on(attention, cluster.accelerator.attention_kernels, precision),
        precision=precision,
        fp8_recipe=scaled if precision in FP8_PRECISIONS else Fp8Recipe.TENSORWISE,
        fused_norm="rms" in text(row, "attention").lower() or not source.names_fused_norm,
        context_exchange=_context_exchange(row, source, degrees),
        offload_activations=cells.offloads(recompute_word),
        compiled=compiled,
        async_tensor_parallel=compiled and split_sequence and "async tp" in text(row, "notes").lower(),
    )


def stack_of(row: Row, source: Source, cluster: Cluster, model: TransformerSpec) -> Stack:
    """Return the software stack of the run in a row.

    The row, or the usual settings of its software, may change two properties of the stack: which activations selective
    recomputation computes again, and whether tensor ranks split each expert although expert ranks hold the experts.

    Raises:
        UnusableRow: The words on recomputation are unknown.
    """
    stack, policies = load_stack(source.stack), cells.recompute(_recompute_word(row, source, cluster, model)).policies
    return replace(
        stack,
        selective_recompute=policies or stack.selective_recompute,
        splits_experts=stack.splits_experts and _may_split_experts(row, source, cluster),
    )


def _may_split_experts(row: Row, source: Source, cluster: Cluster) -> bool:
    """Return True if tensor ranks can split experts.

    They cannot if ``etp`` is 1, or if the expert ranks include them.
    """
    degrees, stated = _degrees(row, source, cluster.world_size), maybe_count(row, "etp")
    return stated == degrees.tensor if stated else degrees.data * degrees.context % degrees.expert == 0


def _recompute_word(row: Row, source: Source, cluster: Cluster, model: TransformerSpec) -> str:
    """Return the word for recomputation in the table, or in the recipe of its software."""
    word = text(row, "act_ckpt") or source.recompute_of(model.name, cluster.accelerator.name, row)
    return f"{word} (mlpwo)" if word == "custom" and "mlpwo" in text(row, "notes") else word


# ---------------------------------------------------------------- degrees
def _degrees(row: Row, source: Source, world_size: int) -> _Degrees:
    tensor, pipeline, stated = maybe_count(row, "tp"), maybe_count(row, "pp"), maybe_count(row, "dp")
    context, expert = maybe_count(row, "cp") or 1, maybe_count(row, "ep") or 1
    if tensor is None and pipeline is None and not _is_data_parallel_alone(row, source, world_size):
        raise UnusableRow("the column tp is empty, but it is required")
    if tensor is None:
        tensor = _what_is_left(world_size, context, pipeline, stated)
    if pipeline is None:
        pipeline = _what_is_left(world_size, context, tensor, stated)
    data, rest = divmod(world_size, tensor * pipeline * context)
    # some count context ranks as replicas, some count each group of expert ranks as one
    if rest or (stated is not None and data not in {stated, stated * expert} and stated != data * context):
        raise UnusableRow("the product of the parallel degrees differs from the number of accelerators")
    return _Degrees(data, context, tensor, pipeline, expert)


def _is_data_parallel_alone(row: Row, source: Source, world_size: int) -> bool:
    """Return True if a row without tensor and pipeline degrees can be data-parallel alone."""
    has_no_such_column = "tp" not in row and "pp" not in row
    fully_sharded = cells.shard_level(text(row, "zero_or_fsdp") or source.sharding).level == ShardLevel.PARAMETERS
    return has_no_such_column or fully_sharded or maybe_count(row, "dp") == world_size


def _what_is_left(world_size: int, context: int, other: int | None, data: int | None) -> int:
    """Return the one missing degree of tensor and pipeline that the other degrees leave.

    The result is 1 if the other degrees do not determine it.
    """
    taken = context * (other or 1) * (data or world_size)
    return world_size // taken if other is not None and data is not None and world_size % taken == 0 else 1


def _sharding(row: Row, source: Source, cluster: Cluster, degrees: _Degrees) -> tuple[ShardLevel, int]:
    """Return the shard level, and the number of ranks that shard together.

    Ranks that hold different experts are always shard ranks.
    """
    level, in_node, num_ranks = cells.shard_level(text(row, "zero_or_fsdp") or source.sharding)
    per_node = max(1, cluster.accelerators_per_domain // (degrees.tensor * degrees.context))
    wanted = degrees.data if level != ShardLevel.NONE else 1
    if in_node:
        wanted = math.gcd(degrees.data, per_node)
    elif num_ranks and degrees.data % num_ranks == 0:
        wanted = num_ranks
    if wanted * degrees.context * degrees.tensor % degrees.expert:
        wanted = degrees.data
    if wanted * degrees.context == 1 or (wanted == 1 and level == ShardLevel.NONE):
        return ShardLevel.NONE, 1
    return (level if level != ShardLevel.NONE else ShardLevel.OPTIMIZER), wanted


def _micro_batch_size(row: Row, source: Source, degrees: _Degrees) -> int:
    """Return the micro-batch size: as stated, computed from batch and accumulation, the source's own, or 1."""
    stated = maybe_count(row, "micro_batch", "micro_batch_size", "local_batch")
    if stated is not None:
        return stated
    batch, num_micro_batches = maybe_count(row, "global_batch"), maybe_count(row, "grad_accum", "num_microbatches")
    if batch and num_micro_batches and batch % (degrees.data * num_micro_batches) == 0:
        return batch // (degrees.data * num_micro_batches)
    name, sizes = text(row, "model").lower(), source.micro_batches.items()
    usual = next((size for word, size in sizes if re.search(rf"\b{re.escape(word)}\b", name)), None)
    if usual is None and batch is None:
        raise UnusableRow("the column micro_batch is empty, but it is required")
    return usual or 1


# ---------------------------------------------------------------- pipelines
def _stages(row: Row, pipeline: int, model: TransformerSpec, *, balances: bool) -> _Stages:
    """Return the schedule and the number of stages per rank.

    A single pipeline rank runs no schedule, so it gets the default, as an equal layout has.
    """
    if pipeline == 1:
        return _Stages()
    word = text(row, "schedule", "pipeline_schedule")
    most = max(1, -(-model.num_layers // pipeline)) if cells.is_interleaved(word) else 1
    virtual = maybe_count(row, "vpp") or most  # where it is blank, one layer each of an interleaved schedule
    schedule = cells.schedule(word, virtual)
    virtual = 2 if schedule in V_SCHEDULES else virtual
    first, last = (0, 0) if balances and virtual == 1 else _smaller_ends(model.num_layers, pipeline * virtual, virtual)
    return _Stages(schedule, virtual, first, last)


def _smaller_ends(num_layers: int, num_stages: int, virtual: int) -> tuple[int, int]:
    """Return the numbers of layers by which the first and the last stage have fewer than the others.

    All other stages then have the same number. If the embedding and the loss are counted as layers, both ends have one
    less (Llama 3's 126 = 128 - 2, arXiv 2407.21783 section 3.3.2; Megatron-LM's
    ``account_for_embedding_in_pipeline_split``). If ranks have several stages, stages must be equal. Otherwise the last
    stage has fewer layers, down to none, and then the first one: 61 layers are 4 times 15 and 1, or 1, 2 times 30 and
    none (``set_deepseek_v3_pipeline_model_parallel_layout``, Megatron-Bridge 067f987df).
    """
    missing = -num_layers % num_stages
    if missing == 2:
        return 1, 1
    if virtual == 1:
        return 0, 0
    last = min(missing, (num_layers + missing) // num_stages)
    return missing - last, last


def _interval(recomputation: cells.Recomputation, model: TransformerSpec, num_stages: int) -> int:
    """Return the interval of recomputed layers, at which at least one layer of a stage recomputes."""
    if recomputation.level == Recompute.NONE:
        return 1
    most = max(1, model.num_layers // num_stages)
    if recomputation.num_layers:
        return min(most, max(1, round(most / recomputation.num_layers)))
    return min(most, recomputation.every)


# ---------------------------------------------------------------- other choices
def _attention(row: Row, source: Source) -> AttentionKernel | None:
    """Return the kernel that the row names. For an unknown word, return the kernel of the software."""
    try:
        return cells.attention_kernel(text(row, "attention") or source.attention, source.flash)
    except UnusableRow:
        return cells.attention_kernel(source.attention, source.flash)


def _context_exchange(row: Row, source: Source, degrees: _Degrees) -> ContextExchange:
    if degrees.context == 1:
        return ContextExchange.RING
    named = re.search(r"cp_comm_type[ =:]*(\S+)", text(row, "notes"))
    return cells.context_exchange(text(row, "cp_comm_type") or (named[1] if named else ""), source.context_exchange)


def global_batch_size(row: Row, layout: Layout) -> int:
    """Return the number of sequences per step of the run in a row.

    If the row does not state it, it is computed from the number of micro-batches. If the row does not state this number
    either, each data-parallel rank has one micro-batch.

    Raises:
        UnusableRow: The row states neither number, and the layout has several pipeline ranks, so that the number of
            micro-batches cannot be guessed.
    """
    stated = maybe_count(row, "global_batch", "global_batch_size")
    if stated is not None:
        return stated
    per_pass = layout.micro_batch_size * layout.data_parallel_degree
    num_micro_batches = maybe_count(row, "grad_accum", "num_microbatches")
    if num_micro_batches is None and layout.pipeline_parallel_degree > 1:
        raise UnusableRow("the column global_batch is empty, but it is required")
    return per_pass * (num_micro_batches or 1)
