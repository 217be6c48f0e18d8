"""Understood: settings of torchtitan as a layout, with what was assumed, changed and ignored on the way."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

from autotuner.core.choices import AttentionKernel, ContextExchange, Precision, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.model import TransformerSpec
from autotuner.export.target import Imported, NoteKind
from autotuner.export.torchtitan.catalog import DEBUG_MODEL, RELEASE_0_2, RELEASE_0_3, Release, spec_of
from autotuner.export.torchtitan.entries import Entry, Value
from autotuner.export.torchtitan.numbers import precision_0_2, precision_0_3
from autotuner.export.torchtitan.recomputed import recompute_0_2, recompute_0_3
from autotuner.export.torchtitan.rules import DDP_BUCKET_BYTES, shards
from autotuner.export.torchtitan.settings import Settings
from autotuner.export.torchtitan.staged import virtual_stages

_SECTIONS = ("parallelism", "training", "activation_checkpoint", "compile", "quantize")
"""Sections whose every setting is told about."""

_OTHER_THINGS = {
    "training.enable_cpu_offload": "moves parameters, gradients and optimizer states to the host, which no layout says",
    "parallelism.context_parallel_load_balancer": "a layout's context ranks share causal attention evenly",
    "parallelism.pipeline_parallel_schedule_csv": "a schedule of one's own is none that a layout names",
    "parallelism.module_fqns_per_model_part": "a layout deals layers to stages by number, not by name",
    "parallelism.pipeline_parallel_expert_parallel_overlap": "the stack says how much of the dispatch is hidden",
    "parallelism.expert_parallel_comm_backend": "the stack says how tokens reach their experts",
}
"""Settings that change a run and that no layout says."""

_HARMLESS = (None, False, "", "None", "False", "false", "headtail", "standard")
"""Their values at which they change nothing."""


def imported(release: Release, settings: Settings, num_ranks: int | None) -> Imported:
    """The layout that a configuration means.

    Raises:
        InvalidInput: A setting has a value that torchtitan refuses, or the number of ranks does not fit.
    """
    model, model_name, attention = _model(release, settings)
    ranks = num_ranks or settings.num_ranks
    layout = _with_degrees(release, settings, ranks, model)
    layout = replace(layout, **_entries(release, settings, layout))
    if layout.pipeline_parallel_degree > 1:
        layout = virtual_stages(settings, layout, model.num_layers if model else None)
    layout, global_batch_size = _with_batch(settings, layout)
    of_release = release is RELEASE_0_2
    layout = (recompute_0_2 if of_release else recompute_0_3)(settings, layout)
    layout = (precision_0_2 if of_release else precision_0_3)(settings, layout)
    layout = _with_sharding(release, settings, layout)
    layout = _attending(release, settings, layout, attention)
    settings.assume("training.seq_len", 2048)
    seq_len = settings.integer("training.seq_len", 2048)
    for name, detail in _OTHER_THINGS.items():
        if settings.raw(name) not in _HARMLESS:
            settings.ignore(name, detail)
    settings.leave(_SECTIONS, [entry.setting for entry in release.entries])
    return Imported(
        format=release.format,
        version=release.version,
        layout=layout,
        num_ranks=ranks,
        model=model,
        model_name=model_name,
        seq_len=seq_len,
        global_batch_size=global_batch_size,
        notes=tuple(settings.notes),
    )


def _model(release: Release, settings: Settings) -> tuple[TransformerSpec | None, str, AttentionKernel | None]:
    if settings.is_partial and "model.flavor" not in settings:
        settings.note(NoteKind.ASSUMED, "model.flavor", "nothing here names the model; give it")
        return None, "", None
    family = settings.word("model.name", DEBUG_MODEL[0])
    flavor = settings.word("model.flavor", DEBUG_MODEL[1])
    spec, attention = spec_of(family, flavor, release.version)
    if "model.flavor" not in settings:
        settings.assume("model.flavor", flavor, "torchtitan trains llama3's debugmodel where no flavor is named")
    elif spec is None:
        settings.note(NoteKind.IGNORED, "model.flavor", f"its shapes are not known here ({family}); give the model")
    return spec, f"{family} {flavor}", attention


# ---------------------------------------------------------------- degrees
def _with_degrees(release: Release, settings: Settings, ranks: int | None, model: TransformerSpec | None) -> Layout:
    degrees: dict[str, Any] = {
        entry.name: settings.integer(entry.setting, 1)
        for entry in release.entries
        if entry.name.endswith("_degree") and entry.default != -1
    }
    if model is not None and model.experts is None and degrees["expert_parallel_degree"] > 1:
        settings.note(NoteKind.IGNORED, "parallelism.expert_parallel_degree", "the model has no experts")
        degrees["expert_parallel_degree"] = 1
    shard = _shard_degree(settings, Layout(**degrees), ranks)
    layout = Layout(**degrees, data_parallel_shard_degree=shard)
    if ranks is not None and layout.world_size != ranks:
        raise InvalidInput("num_ranks", ranks, f"the degrees multiply to {layout.world_size}", layout.world_size)
    return layout


def _shard_degree(settings: Settings, others: Layout, ranks: int | None) -> int:
    """The degree that is said, or the ranks that the others leave."""
    name = "parallelism.data_parallel_shard_degree"
    said = settings.integer(name, -1, least=-1)
    if said > 0:
        return said
    if said == 0:
        raise InvalidInput(name, 0, "must be 1 or more, or -1 for the ranks that are left", -1)
    if ranks is None:
        inner = others.context_parallel_degree * others.tensor_parallel_degree
        fewest = others.expert_parallel_degree // gcd(inner, others.expert_parallel_degree)
        fewest = max(fewest, 1 if others.context_parallel_degree > 1 else 2)
        detail = f"it is the ranks that are left; how many is not said, and {fewest} is the least that shards"
        settings.note(NoteKind.ASSUMED, name, detail)
        return fewest
    if ranks % others.world_size:
        rule = f"must be a multiple of the {others.world_size} ranks that the other degrees need"
        raise InvalidInput("num_ranks", ranks, rule, max(1, ranks // others.world_size) * others.world_size)
    settings.assume(
        name, -1, f"torchtitan shards over the ranks that are left, {ranks // others.world_size} of {ranks}"
    )
    return ranks // others.world_size


# ---------------------------------------------------------------- settings that say one field each
def _entries(release: Release, settings: Settings, layout: Layout) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for entry in release.entries:
        if entry.name.endswith("_degree"):
            continue
        value = _understood(entry, settings, matters=entry.matters(layout))
        if entry.matters(layout):
            fields[entry.name] = value
    if fields["compiled"] and "model" not in settings.words("compile.components", ("model", "loss")):
        settings.note(NoteKind.CHANGED, "compile.components", "without model in it no layer is compiled")
        fields["compiled"] = False
    if release is RELEASE_0_3 and layout.context_parallel_degree > 1:
        fields["context_exchange"] = ContextExchange.ALL_GATHER  # of keys and values, for FlexAttention
    if release.splits_every_sequence and layout.tensor_parallel_degree > 1:
        fields["sequence_parallel"] = True
    return fields


def _understood(entry: Entry, settings: Settings, *, matters: bool) -> int:
    """The field's value.

    Raises:
        InvalidInput: The setting has none of torchtitan's words.
    """
    value = _value(entry, settings)
    if matters and entry.setting not in settings and _of(entry, entry.default) != OPTIONS[entry.name].default:
        settings.assume(entry.setting, entry.default)
    found = _of(entry, value)
    if found is not None:
        return found
    near = next((near for word, near in entry.near.items() if _alike(word, value)), None)
    if near is None:
        words = ", ".join(map(str, (*entry.words.values(), *entry.near)))
        raise InvalidInput(entry.setting, value, f"must be one of {words}")
    if matters:
        nearest = OPTIONS[entry.name].to_plain(near)
        settings.note(NoteKind.CHANGED, entry.setting, f"the nearest of a layout is {nearest}")
    return near


def _value(entry: Entry, settings: Settings) -> Value:
    default = entry.default
    if isinstance(default, bool):
        return settings.switch(entry.setting, default)
    if isinstance(default, int):
        return settings.integer(entry.setting, default, least=OPTIONS[entry.name].lowest)
    return settings.word(entry.setting, str(default))


def _of(entry: Entry, value: Value) -> int | None:
    if not entry.words:
        return value  # type: ignore[return-value]  # a number or a switch, as the entry's default is
    option = OPTIONS[entry.name]
    return next((option.value_of(field) for field, word in entry.words.items() if _alike(word, value)), None)


def _alike(word: Value, value: Value) -> bool:
    """Whether they are the same; schedules are named whatever the case (torch 2.13, ``get_schedule_class``)."""
    return word == value or (isinstance(word, str) and isinstance(value, str) and word.lower() == value.lower())


# ---------------------------------------------------------------- batch
def _with_batch(settings: Settings, layout: Layout) -> tuple[Layout, int]:
    settings.assume("training.local_batch_size", 8)
    local, at_once = settings.integer("training.local_batch_size", 8), 1
    micro_batch = settings.integer("parallelism.pipeline_parallel_microbatch_size", 1)
    if layout.pipeline_parallel_degree == 1:
        micro_batch = local
    elif local % micro_batch:
        rule = f"must be a multiple of pipeline_parallel_microbatch_size ({micro_batch})"
        raise InvalidInput("training.local_batch_size", local, rule, -(-local // micro_batch) * micro_batch)
    per_pass = local * layout.data_parallel_degree
    said = settings.integer("training.global_batch_size", -1, least=-1)
    total = said if said > 0 else per_pass
    if total % per_pass:
        rule = f"must be a multiple of {per_pass}, local batch size x data-parallel degree"
        raise InvalidInput("training.global_batch_size", total, rule, max(1, round(total / per_pass)) * per_pass)
    at_once = total // per_pass
    if layout.pipeline_parallel_degree > 1 and at_once > 1:
        detail = f"torchtitan empties the pipeline {at_once} times a step; a layout runs all micro-batches at once"
        settings.note(NoteKind.CHANGED, "training.global_batch_size", detail)
    return replace(layout, micro_batch_size=micro_batch), total


# ---------------------------------------------------------------- data-parallel ranks
def _with_sharding(release: Release, settings: Settings, layout: Layout) -> Layout:
    """FSDP where shards are asked for, by a degree above 1, by context ranks, or by -1 for any number of ranks."""
    policy = settings.word("parallelism.fsdp_reshard_after_forward", "default")
    if policy not in ("default", "always", "never"):
        raise InvalidInput(
            "parallelism.fsdp_reshard_after_forward", policy, "must be default, always or never", "default"
        )
    layout = _reducing(settings, layout)
    if not shards(layout):
        if layout.data_parallel_replicate_degree > 1 and release is RELEASE_0_2:
            settings.note(NoteKind.ASSUMED, "bucket_cap_mb", "torchtitan's DDP reduces gradients in buckets of 100 MiB")
            layout = replace(layout, gradient_bucket_bytes=DDP_BUCKET_BYTES)
        return layout
    reshards = policy == "always" or (policy == "default" and layout.pipeline_parallel_degree == 1)
    if policy == "default":
        how = "but the output layer's" if reshards else "for no layer in a pipeline"
        detail = f"its default reshards after the forward pass, {how}" if reshards else f"its default reshards {how}"
        settings.assume("parallelism.fsdp_reshard_after_forward", policy, detail)
    return replace(layout, shard_level=ShardLevel.PARAMETERS, reshard_after_forward=reshards)


def _reducing(settings: Settings, layout: Layout) -> Layout:
    """Gradients are summed in fp32 wherever several ranks have one and the layout's own format is shorter."""
    name = "training.mixed_precision_reduce"
    word = settings.word(name, "float32")
    if word not in ("float32", "bfloat16"):
        raise InvalidInput(name, word, "must be float32", "float32")
    if word == "bfloat16":
        settings.note(NoteKind.CHANGED, name, "torchtitan's own releases take float32 alone; bf16 is read")
    several = layout.data_parallel_degree * layout.context_parallel_degree > 1
    in_fp32 = several and layout.precision != Precision.FP32 and word == "float32"
    return replace(layout, fp32_gradient_reduce=in_fp32)


def _attending(release: Release, settings: Settings, layout: Layout, attention: AttentionKernel | None) -> Layout:
    if not release.by_flavor:
        words = {"flex": AttentionKernel.FLEX, "varlen": AttentionKernel.FLASH, "flex_flash": AttentionKernel.FLEX}
        settings.assume("model.attn_backend", "flex")
        word = settings.word("model.attn_backend", "flex")
        if word not in words:
            raise InvalidInput("model.attn_backend", word, f"must be one of {', '.join(words)}", "flex")
        return replace(layout, attention_kernel=words[word])
    if attention is None:
        detail = (
            "scaled_dot_product_attention takes cuDNN's kernel where the device has it, else flash, which is taken here"
        )
        settings.note(NoteKind.ASSUMED, "attention", detail)
    return replace(layout, attention_kernel=attention or AttentionKernel.FLASH)
