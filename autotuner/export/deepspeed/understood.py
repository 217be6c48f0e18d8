"""What the keys of ``ds_config.json`` say of a layout together, whoever holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import ceil

from autotuner.core.choices import AttentionKernel, ContextExchange, Precision, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.deepspeed.batch import Batch, batch_of
from autotuner.export.deepspeed.keys import (
    BATCH_KEYS,
    CHANGED,
    DEFAULT_BUCKET_ELEMENTS,
    KEYS,
    KNOWN_SECTIONS,
    STAGE_0_ELEMENTS,
    gradient_element_bytes,
)
from autotuner.export.keys import flag_of, heard
from autotuner.export.target import Note, NoteKind

_READ = {*BATCH_KEYS, *(key.path for key in KEYS)} | {
    *("data_parallel_size", "expert_parallel.enabled", "fp16.enabled", "zero_optimization.stage3_max_live_parameters"),
}
_OFF: tuple[object, ...] = (False, None, "none", 0, 1, {})
"""Values with which a switch, a section or a size changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """A configuration's layout, with what of it was assumed, changed and ignored.

    Attributes:
        num_ranks: None: neither the caller nor the batch sizes say it, and data-parallel degrees are the least.
    """

    layout: Layout
    num_ranks: int | None
    global_batch_size: int | None
    notes: tuple[Note, ...]


def understood(config: Mapping[str, object], num_ranks: int | None) -> Understood:
    """The layout that keys by path say.

    Raises:
        InvalidInput: A value makes no sense, or the ranks do not split so.
    """
    config = _spelled_anew(config)
    plain = {path: raw for path, raw in config.items() if raw != "auto"}
    if "expert_parallel.enabled" in plain and not flag_of("expert_parallel.enabled", plain["expert_parallel.enabled"]):
        plain.pop("expert_parallel.autoep_size", None)
    layout = heard(KEYS, plain, Layout(precision=Precision.FP32))
    layout, assumed = _completed(layout, plain)
    batch = batch_of(plain, _data_ranks(layout, num_ranks))
    layout, split = _with_data_ranks(layout, batch, is_known=batch.num_data_ranks is not None)
    known = batch.num_data_ranks is not None
    return Understood(
        layout=layout,
        num_ranks=layout.world_size if known else None,
        global_batch_size=batch.global_batch_size,
        notes=(*_filled_in(config), *assumed, *split, *_changed(plain), *_ignored(config)),
    )


def _spelled_anew(config: Mapping[str, object]) -> dict[str, object]:
    """Today's name of a section that older configurations spell otherwise (runtime/precision_config.py)."""
    return {("bf16" + path[8:] if path.startswith("bfloat16.") else path): raw for path, raw in config.items()}


def _data_ranks(layout: Layout, num_ranks: int | None) -> int | None:
    if num_ranks is None:
        return None
    inner = layout.tensor_parallel_degree * layout.pipeline_parallel_degree * layout.context_parallel_degree
    if num_ranks % inner:
        raise InvalidInput(
            "num_ranks", num_ranks, f"must be a multiple of {inner} tensor, pipeline and sequence ranks", inner
        )
    return num_ranks // inner


def _with_data_ranks(layout: Layout, batch: Batch, *, is_known: bool) -> tuple[Layout, list[Note]]:
    lenders = layout.tensor_parallel_degree * layout.context_parallel_degree
    num_data_ranks = batch.num_data_ranks or ceil(layout.expert_parallel_degree / lenders)
    notes = []
    if layout.shard_level != ShardLevel.NONE and num_data_ranks * layout.context_parallel_degree == 1 and is_known:
        detail = f"one data-parallel rank has nothing to shard; stage {layout.shard_level.value} runs as stage 0"
        notes.append(Note(kind=NoteKind.CHANGED, setting="zero_optimization.stage", detail=detail))
        layout = replace(layout, shard_level=ShardLevel.NONE, reshard_after_forward=False)
    if batch.micro_batch_size is None:
        detail = "no micro-batch size is said; one sequence is taken"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="train_micro_batch_size_per_gpu", detail=detail))
    shards = layout.shard_level != ShardLevel.NONE
    return (
        replace(
            layout,
            micro_batch_size=batch.micro_batch_size or 1,
            data_parallel_shard_degree=num_data_ranks if shards else 1,
            data_parallel_replicate_degree=1 if shards else num_data_ranks,
        ),
        notes,
    )


def _completed(layout: Layout, plain: Mapping[str, object]) -> tuple[Layout, list[Note]]:
    """The layout with DeepSpeed's defaults for what the configuration does not say."""
    notes = []

    def assume(path: str, detail: str, **values: object) -> None:
        nonlocal layout
        if path not in plain:
            notes.append(Note(kind=NoteKind.ASSUMED, setting=path, detail=detail))
            layout = replace(layout, **values)  # type: ignore[arg-type]  # each field has its own type

    if flag_of("fp16.enabled", plain.get("fp16.enabled", False)):
        layout = replace(layout, precision=Precision.BF16)
        detail = "a layout has no fp16; bf16 takes as much memory and time"
        notes.append(Note(kind=NoteKind.CHANGED, setting="fp16.enabled", detail=detail))
    if layout.precision == Precision.FP32:
        layout = replace(layout, attention_kernel=AttentionKernel.MATH)
        detail = "flash attention computes in 16 bits; in fp32 the math kernel is taken"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="attention", detail=detail))
    if layout.tensor_parallel_degree > 1:
        detail = "every tensor rank holds all logits, unless the model's plan splits a tied head"
        assume("tensor_parallel.vocab_parallel_lm_head", detail, loss_parallel=False)
    else:
        layout = replace(layout, loss_parallel=True)
    if layout.context_parallel_degree > 1:
        layout = replace(layout, context_exchange=ContextExchange.ALL_TO_ALL)
        if layout.precision != Precision.FP32:
            assume("seq_parallel_communication_data_type", "fp32", fp32_gradient_reduce=True)
    return _with_zero_defaults(layout, plain, notes)


def _with_zero_defaults(layout: Layout, plain: Mapping[str, object], notes: list[Note]) -> tuple[Layout, list[Note]]:
    bucket, reuse = "zero_optimization.reduce_bucket_size", "zero_optimization.stage3_max_reuse_distance"
    if layout.shard_level == ShardLevel.NONE:
        detail = f"ZeRO stage 0 reduces {STAGE_0_ELEMENTS:,} elements at once, after the last micro-batch"
        notes.append(Note(kind=NoteKind.ASSUMED, setting=bucket, detail=detail))
    elif layout.shard_level == ShardLevel.OPTIMIZER and bucket not in plain:
        detail = f"{DEFAULT_BUCKET_ELEMENTS:,} elements"
        notes.append(Note(kind=NoteKind.ASSUMED, setting=bucket, detail=detail))
        num_bytes = DEFAULT_BUCKET_ELEMENTS * gradient_element_bytes(layout)
        layout = replace(layout, gradient_bucket_bytes=num_bytes)
    elif layout.shard_level == ShardLevel.PARAMETERS and reuse not in plain:
        detail = "parameters are given away after the forward pass, but for the last thousand million elements"
        notes.append(Note(kind=NoteKind.ASSUMED, setting=reuse, detail=detail))
        layout = replace(layout, reshard_after_forward=True)
    if layout.shard_level in (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS) and bucket in plain:
        detail = "a layout that shards gradients reduces them layer by layer, and says no size"
        notes.append(Note(kind=NoteKind.IGNORED, setting=bucket, detail=detail))
    return layout, notes


def _filled_in(config: Mapping[str, object]) -> Iterator[Note]:
    for path, raw in config.items():
        if raw == "auto" and path in _READ:
            detail = '"auto" is filled in by Hugging Face\'s integration, from arguments that are not seen here'
            yield Note(kind=NoteKind.ASSUMED, setting=path, detail=detail)


def _changed(plain: Mapping[str, object]) -> Iterator[Note]:
    for name, detail in CHANGED.items():
        inside = [raw for path, raw in plain.items() if path == name or path.startswith(f"{name}.")]
        if any(raw not in _OFF for raw in inside):
            yield Note(kind=NoteKind.CHANGED, setting=name, detail=detail)


def _ignored(config: Mapping[str, object]) -> Iterator[Note]:
    rest = [path for path in config if path not in _READ and not path.startswith(tuple(CHANGED))]
    for section in dict.fromkeys(path.split(".")[0] for path in rest):
        if section in KNOWN_SECTIONS:
            inside = [path for path in rest if path.split(".")[0] == section]
            setting = ", ".join(inside) if len(inside) < 4 else section
            yield Note(kind=NoteKind.IGNORED, setting=setting, detail="says nothing of a layout")
        else:
            near = get_close_matches(section, sorted(KNOWN_SECTIONS), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            detail = f"DeepSpeed knows no such key, and ignores it without a word{hint}"
            yield Note(kind=NoteKind.IGNORED, setting=section[:60], detail=detail)
