"""What an imported layout of Hugging Face's still needs: its ranks, and defaults for what is not said."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import AttentionKernel, ContextExchange, Fp8Recipe, Precision, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.target import Note, NoteKind


def fp16_note(setting: str) -> Note:
    """A layout's nearest to fp16."""
    detail = "a layout has no fp16; bf16 takes as much memory and time"
    return Note(kind=NoteKind.CHANGED, setting=setting, detail=detail)


def plain(layout: Layout, notes: list[Note], *, says_exchange: bool) -> Layout:
    """The layout with what means nothing beside the rest at its default, and accelerate's defaults for what does."""
    if layout.precision == Precision.FP32:
        detail = "flash attention computes in 16 bits; in fp32 the math kernel is taken"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="attention", detail=detail))
        layout = replace(layout, attention_kernel=AttentionKernel.MATH)
    if layout.precision != Precision.FP8:
        layout = replace(layout, fp8_recipe=Fp8Recipe.TENSORWISE)
    if layout.context_parallel_degree == 1:
        return replace(layout, context_exchange=ContextExchange.RING)
    if not says_exchange:
        notes.append(Note(kind=NoteKind.ASSUMED, setting="cp_comm_strategy", detail="allgather"))
        layout = replace(layout, context_exchange=ContextExchange.ALL_GATHER)
    return layout


def on_ranks(layout: Layout, num_ranks: int | None, notes: list[Note], *, says_sizes: bool) -> tuple[Layout, bool]:
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
        return _of_size(layout, num_ranks), True
    inner = layout.tensor_parallel_degree * layout.context_parallel_degree * layout.pipeline_parallel_degree
    if num_ranks is not None and num_ranks % inner:
        rule = f"must be a multiple of {inner} tensor, context and pipeline ranks"
        raise InvalidInput("num_processes", num_ranks, rule, max(1, round(num_ranks / inner)) * inner)
    num_data_ranks = (num_ranks or inner) // inner
    if num_ranks is not None and num_data_ranks * layout.context_parallel_degree == 1:
        if layout.shard_level != ShardLevel.NONE:
            detail = "one process has nothing to shard"
            notes.append(Note(kind=NoteKind.CHANGED, setting="sharding", detail=detail))
        layout = replace(layout, shard_level=ShardLevel.NONE, reshard_after_forward=False)
    shards = layout.shard_level != ShardLevel.NONE
    return (
        replace(
            layout,
            data_parallel_shard_degree=num_data_ranks if shards else 1,
            data_parallel_replicate_degree=1 if shards else num_data_ranks,
        ),
        num_ranks is not None,
    )


def _of_size(layout: Layout, num_ranks: int | None) -> Layout:
    if num_ranks is not None and layout.world_size != num_ranks:
        rule = f"must be the product of the sizes of parallelism_config ({layout.world_size})"
        raise InvalidInput("num_processes", num_ranks, rule, layout.world_size)
    return layout
