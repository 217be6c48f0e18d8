"""Reads settings of torchtitan as a layout, with notes about assumed, changed and ignored settings."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

from autotuner.core.choices import AttentionKernel, ContextExchange, Fp8Recipe, Precision, Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.stages import ONE_STAGE_SCHEDULES, stage_sizes
from autotuner.exports.shared.command import whole_number
from autotuner.exports.shared.common_rules import LAUNCHED
from autotuner.exports.shared.target import Imported, Target
from autotuner.exports.torchtitan.releases import DEBUG_MODEL, RELEASE_0_2, RELEASE_0_3, Release, spec_of
from autotuner.exports.torchtitan.rules import (
    DDP_BUCKET_BYTES,
    DEFAULT_SPACE_0_2,
    DEFAULT_SPACE_0_3,
    RULES_0_2,
    RULES_0_3,
    shards,
)
from autotuner.exports.torchtitan.texts import (
    Settings,
    is_configuration,
    is_job_file,
    job_file_settings,
    module_settings,
)
from autotuner.exports.torchtitan.write import write_0_2, write_0_3

_PARAM = "training.mixed_precision_param"
_DTYPE = "training.dtype"
_FLOAT8 = "quantize.linear.float8"
_MX = "quantize.linear.mx"

_RECIPES = {"tensorwise": Fp8Recipe.TENSORWISE, "rowwise": Fp8Recipe.ROWWISE, "rowwise_with_gw_hp": Fp8Recipe.ROWWISE}
"""Recipes of torchao's float8 training. The last one keeps the product for the gradient of the weight in 16 bits."""

_FACTS = {
    f"{_FLOAT8}.enable_fsdp_float8_all_gather": "the software stack decides what is gathered in 8 bits",
    f"{_FLOAT8}.precompute_float8_dynamic_scale_for_fsdp": "the software stack decides when a scale is known",
    **dict.fromkeys(
        (
            *(f"{_FLOAT8}.filter_fqns", f"{_MX}.filter_fqns"),
            *("quantize.grouped_mm.float8.fqns", "quantize.grouped_mm.mx.fqns"),
        ),
        "a layout rounds the products of all its layers and no others",
    ),
}
"""Settings of converters in 0.2 that a layout does not have, each with the reason."""

_CONVERTERS = {"Float8LinearConverter": "float8", "MXFP8LinearConverter": "mx", "NVFP4LinearConverter": "nvfp4"}
"""Converter classes of 0.3 (torchtitan/components/quantization), with their names in 0.2."""


def _precision_0_2(reading: Settings, layout: Layout) -> Layout:
    """Return the layout with the number formats of a configuration for 0.2."""
    layout = _unrounded(reading, layout, needs_shards=True)
    names = reading.settings.words("model.converters") or ()
    for name, detail in _FACTS.items():
        reading.ignore(name, detail)
    kinds = {name.removeprefix("quantize.linear.") for name in names}
    rounds_experts = any(name.startswith("quantize.grouped_mm.") for name in names)
    if kinds & {"mx", "float8"} and not rounds_experts and layout.expert_parallel_degree > 1:
        detail = "without a converter of grouped products, experts stay in 16 bits, but a layout has no such exception"
        reading.changed("model.converters", detail)
    if "mx" in kinds:
        reading.text(f"{_MX}.recipe_name", "mxfp8_cublas")
        reading.settings.words(f"{_MX}.filter_fqns")
    return _rounded(reading, layout, kinds, _FLOAT8, "tensorwise")


def _precision_0_3(reading: Settings, layout: Layout) -> Layout:
    """Return the layout with the number formats of a configuration for 0.3.

    Its converters are arguments of the model's registry function.
    """
    layout = _unrounded(reading, layout, needs_shards=False)
    kinds = {_CONVERTERS.get(kind, kind) for kind in reading.settings.words("model.converters") or ()}
    if "nvfp4" in kinds:
        return replace(layout, precision=Precision.NVFP4)
    return _rounded(reading, layout, kinds, "model.float8", "rowwise")


def _unrounded(reading: Settings, layout: Layout, *, needs_shards: bool) -> Layout:
    """Return the layout with the precision that parameters are cast to before products.

    Release 0.2 casts by FSDP, or by autocast if there is no other parallelism (``maybe_enable_amp`` of its
    distributed/utils.py); Release 0.3 always uses FSDP's policy.
    """
    param = reading.choice(_PARAM, "bfloat16", ("bfloat16", "float32"))
    dtype = reading.choice(_DTYPE, "float32", ("bfloat16", "float32"))
    inner = layout.tensor_parallel_degree > 1 or layout.pipeline_parallel_degree > 1
    precision = Precision.BF16 if "bfloat16" in (param, dtype) else Precision.FP32
    if dtype == "bfloat16":
        reading.changed(_DTYPE, "weights and optimizer states are in bf16 too, but a layout keeps them in fp32")
    elif param == "bfloat16" and needs_shards and inner and not shards(layout):
        detail = (
            "without shards, torchtitan 0.2 casts nothing to bf16 if there are tensor or pipeline ranks, so it "
            "trains in fp32"
        )
        reading.changed(_PARAM, detail)
        precision = Precision.FP32
    return replace(layout, precision=precision)


def _rounded(reading: Settings, layout: Layout, kinds: set[str], section: str, default: str) -> Layout:
    """Return the layout with the 8-bit format of a converter.

    The section ``section`` names its float8 recipe.
    """
    if "mx" in kinds:
        return replace(layout, precision=Precision.FP8, fp8_recipe=Fp8Recipe.MXFP8)
    if "float8" not in kinds:
        return layout
    name = f"{section}.recipe_name"
    recipe = reading.choice(name, default, _RECIPES, tells=True)
    if recipe == "rowwise_with_gw_hp":
        reading.changed(name, "gradients of weights are multiplied in bf16, which a layout cannot express")
    if reading.on(f"{section}.emulate"):
        return replace(layout, precision=Precision.FP8_EMULATED, fp8_recipe=Fp8Recipe.TENSORWISE)
    return replace(layout, precision=Precision.FP8, fp8_recipe=_RECIPES[recipe])


# ---------------------------------------------------------------- activation checkpointing
_KIND, _MODE = "activation_checkpoint", "activation_checkpoint.mode"
_OPTION = "activation_checkpoint.selective_ac_option"
_MODES = (*Recompute.labels(), "memory_budget")


def _recompute_0_2(reading: Settings, layout: Layout) -> Layout:
    """Return the layout with the recomputation mode and option of 0.2.

    ``selective`` with a number recomputes every n-th layer in full.
    """
    mode = reading.choice(_MODE, "selective", _MODES, tells=True)
    if mode != "selective":
        return _by_word(reading, layout, _MODE, mode)
    reading.assume(_OPTION, "2", "torchtitan fully recomputes every second layer if no option is given")
    option = reading.text(_OPTION, "2")
    if option == "op":
        return replace(layout, recompute=Recompute.SELECTIVE)
    if not option.isdecimal():
        raise InvalidInput(_OPTION, option, 'must be "op", or a whole number such as 2 to recompute every second layer')
    every = max(1, whole_number(_OPTION, option))  # "0" recomputes all, as "1" does
    if every > 1:
        detail = (
            f"a rank recomputes its layers {every}, {2 * every} ..., but a layout recomputes layers 1, {every + 1} ..."
        )
        reading.changed(_OPTION, detail)
    return replace(layout, recompute=Recompute.FULL, recompute_every=every)


def _recompute_0_3(reading: Settings, layout: Layout) -> Layout:
    """Return the layout with the activation checkpointing of 0.3, whose kinds are spelled with dashes in flags."""
    reading.assume(_KIND, "selective")
    word = reading.text(_KIND, "selective").replace("-", "_")
    return _by_word(reading, layout, _KIND, reading.meant(_KIND, word, dict(zip(_MODES, _MODES, strict=True))))


def _by_word(reading: Settings, layout: Layout, name: str, mode: str) -> Layout:
    if mode == "memory_budget":
        reading.changed(
            name,
            "the compiler decides what is computed again; the closest choice of a layout, which keeps "
            "the matrix products, is read",
        )
        return replace(layout, recompute=Recompute.SELECTIVE)
    return replace(layout, recompute=Recompute.from_label(mode))


_SECTIONS = ("parallelism", "training", "activation_checkpoint", "compile", "quantize")
"""Sections for which every setting that is not used gets a note."""

_OTHER_THINGS = {
    "training.enable_cpu_offload": (
        "moves parameters, gradients and optimizer states to the host, which a layout cannot express"
    ),
    "parallelism.context_parallel_load_balancer": "context ranks of a layout always share causal attention evenly",
    "parallelism.pipeline_parallel_schedule_csv": "a layout cannot name a schedule of your own",
    "parallelism.module_fqns_per_model_part": "a layout assigns layers to stages by their number, not by their name",
    "parallelism.pipeline_parallel_expert_parallel_overlap": (
        "the software stack decides how much of the dispatch of tokens is hidden"
    ),
    "parallelism.expert_parallel_comm_backend": "the software stack decides how tokens are sent to their experts",
}
"""Settings that change a run but have no field in a layout, each with its effect."""

_HARMLESS = (None, False, "", "None", "False", "false", "headtail", "standard")
"""Values with which these settings have no effect."""


def _imported(release: Release, reading: Settings, num_ranks: int | None) -> Imported:
    """Return the layout and the notes of a configuration."""
    model, model_name, attention = _model(release, reading)
    ranks, of_0_2 = num_ranks or reading.num_ranks, release is RELEASE_0_2
    layout = _with_degrees(release, reading, ranks, model)
    layout = _with_fields(release, reading, layout)
    if layout.pipeline_parallel_degree > 1:
        layout = _with_stages(reading, layout, model.num_layers if model else None)
    layout, global_batch_size = _with_batch(reading, layout)
    layout = (_recompute_0_2 if of_0_2 else _recompute_0_3)(reading, layout)
    layout = (_precision_0_2 if of_0_2 else _precision_0_3)(reading, layout)
    layout = _with_sharding(release, reading, layout)
    layout = replace(layout, attention_kernel=_attention(release, reading, attention))
    reading.assume("training.seq_len", 2048)
    seq_len = reading.integer("training.seq_len", 2048)
    for name, detail in _OTHER_THINGS.items():
        if reading.settings.values.get(name) not in _HARMLESS:
            reading.ignore(name, detail)
    reading.leave(_SECTIONS, [key.path for key in release.keys])
    return Imported(
        format=release.format,
        version=release.version,
        layout=layout,
        num_ranks=ranks,
        model=model,
        model_name=model_name,
        seq_len=seq_len,
        global_batch_size=global_batch_size,
        notes=tuple(reading),
    )


def _model(release: Release, reading: Settings) -> tuple[TransformerSpec | None, str, AttentionKernel | None]:
    if reading.is_partial and "model.flavor" not in reading.settings:
        reading.assumed("model.flavor", "the configuration does not name the model; give the model")
        return None, "", None
    family = reading.text("model.name", DEBUG_MODEL[0])
    flavor = reading.text("model.flavor", DEBUG_MODEL[1])
    spec, attention = spec_of(family, flavor, release.version)
    if "model.flavor" not in reading.settings:
        reading.assumed("model.flavor", "torchtitan trains the debugmodel of llama3 if no flavor is given")
    elif spec is None:
        reading.ignored("model.flavor", f"the shapes of this flavor are not known here ({family}); give the model")
    return spec, f"{family} {flavor}", attention


# ---------------------------------------------------------------- degrees
def _with_degrees(release: Release, reading: Settings, ranks: int | None, model: TransformerSpec | None) -> Layout:
    degrees: dict[str, Any] = {
        key.field: reading.integer(key.path)
        for key in release.keys
        if key.field.endswith("_degree") and key.default != -1
    }
    if model is not None and model.experts is None and degrees["expert_parallel_degree"] > 1:
        reading.ignored("parallelism.expert_parallel_degree", "the model has no experts")
        degrees["expert_parallel_degree"] = 1
    shard = _shard_degree(reading, Layout(**degrees), ranks)
    layout = Layout(**degrees, data_parallel_shard_degree=shard)
    if ranks not in (None, layout.world_size):
        raise InvalidInput(
            "num_ranks",
            ranks,
            f"must be {layout.world_size}, the product of the parallel degrees in the configuration",
            layout.world_size,
        )
    return layout


def _shard_degree(reading: Settings, others: Layout, ranks: int | None) -> int:
    """Return the shard degree that the configuration states, or the number of ranks that the other degrees leave."""
    name = "parallelism.data_parallel_shard_degree"
    said = reading.integer(name, -1, least=-1)
    if said > 0:
        return said
    if said == 0:
        raise InvalidInput(name, 0, "must be 1 or more, or -1 for all ranks that the other degrees leave", 1)
    if ranks is None:
        inner = others.context_parallel_degree * others.tensor_parallel_degree
        fewest = others.expert_parallel_degree // gcd(inner, others.expert_parallel_degree)
        fewest = max(fewest, 1 if others.context_parallel_degree > 1 else 2)
        detail = (
            "it is the number of ranks that the other degrees leave, but the number of all ranks is not given; "
            f"{fewest}, the smallest possible degree, is assumed"
        )
        reading.assumed(name, detail)
        return fewest
    left, rest = divmod(ranks, others.world_size)
    if rest:
        rule = f"must be a multiple of {others.world_size}, the ranks that the other degrees need"
        raise InvalidInput("num_ranks", ranks, rule, max(1, round(ranks / others.world_size)) * others.world_size)
    reading.assume(name, -1, f"torchtitan shards over all ranks that the other degrees leave, {left} of {ranks}")
    return left


# ---------------------------------------------------------------- reading that say one field each
def _with_fields(release: Release, reading: Settings, layout: Layout) -> Layout:
    fields: dict[str, Any] = {}
    for key in release.keys:
        if key.field.endswith("_degree"):
            continue
        matters, raw = key.write(layout) is not None, reading.of(key)
        if matters and key.read(key.path, key.default, layout) != OPTIONS[key.field].default:
            reading.assume(key.path, key.default)
        value = key.read(key.path, raw, layout)
        if matters:
            fields[key.field] = value
            if str(key.write(replace(layout, **{key.field: value}))).lower() != str(raw).lower():  # type: ignore[arg-type]
                reading.changed(key.path, f"the closest value of a layout is {OPTIONS[key.field].to_plain(value)}")  # type: ignore[arg-type]
    if fields["compiled"] and "model" not in (reading.settings.words("compile.components") or ("model", "loss")):
        reading.changed("compile.components", "layers are compiled only if model is in this list")
        fields["compiled"] = False
    if release is RELEASE_0_3 and layout.context_parallel_degree > 1:
        fields["context_exchange"] = ContextExchange.ALL_GATHER  # of keys and values, for FlexAttention
    if release.splits_every_sequence and layout.tensor_parallel_degree > 1:
        fields["sequence_parallel"] = True
    return replace(layout, **fields)


# ---------------------------------------------------------------- stages
_PER_STAGE = "parallelism.pipeline_parallel_layers_per_stage"
_PARTS = "parallelism.module_fqns_per_model_part"
_MOST_LESS = 8
"""Largest number of layers by which an end stage may have fewer, when a list of modules is matched."""


def _with_stages(reading: Settings, layout: Layout, num_layers: int | None) -> Layout:
    """Return the layout with the stages that torchtitan makes (``pipeline_llm`` of torchtitan 0.2.2).

    Args:
        reading: Settings with the layers per stage, or the modules of each stage.
        layout: The layout with its pipeline degree, schedule and smaller end stages.
        num_layers: Number of layers of the model; None if it is not known.

    Raises:
        InvalidInput: The number of stages per rank is not whole, or the schedule cannot run it.
    """
    parts = reading.settings.rows(_PARTS)
    per_stage = None if reading.text(_PER_STAGE, "None") == "None" else reading.integer(_PER_STAGE)
    if parts:
        return _of_parts(reading, layout, parts)
    usual = 1 if layout.pipeline_schedule in ONE_STAGE_SCHEDULES else 2
    if per_stage is None and usual > 1:
        reading.assume(_PER_STAGE, "none", "without a value, this schedule has two stages per rank")
    elif per_stage is not None and num_layers is None:
        reading.changed(_PER_STAGE, f"the number of layers of the model is not known; {usual} per rank is assumed")
    if per_stage is None or num_layers is None:
        return replace(layout, virtual_stages_per_rank=usual)
    shares = num_layers + layout.first_stage_less_layers + layout.last_stage_less_layers
    return _of_stages(layout, -(-shares // per_stage), _PER_STAGE, per_stage)


def _of_parts(reading: Settings, layout: Layout, parts: tuple[tuple[str, ...], ...]) -> Layout:
    """Return the layout with stages that list their modules.

    If some smaller end stages give the same split, they are part of the layout.
    """
    sizes = tuple(sum(name.startswith("layers.") for name in part) for part in parts)
    staged = _of_stages(layout, len(parts), _PARTS, len(parts))
    for first in range(_MOST_LESS + 1):
        for last in range(_MOST_LESS + 1):
            if stage_sizes(sum(sizes), len(sizes), first, last) == sizes:
                return replace(staged, first_stage_less_layers=first, last_stage_less_layers=last)
    reading.changed(
        _PARTS, "a layout splits layers evenly except for the first and the last stage, but these stages differ"
    )
    return staged


def _of_stages(layout: Layout, num_stages: int, name: str, value: int) -> Layout:
    per_rank, rest = divmod(num_stages, layout.pipeline_parallel_degree)
    one_stage = layout.pipeline_schedule in ONE_STAGE_SCHEDULES
    if rest or per_rank == 0:
        rule = (
            f"makes {num_stages} stages, which do not split evenly over "
            f"{layout.pipeline_parallel_degree} pipeline ranks"
        )
        raise InvalidInput(name, value, rule)
    if one_stage != (per_rank == 1):
        wanted = "one stage per rank" if one_stage else "two or more stages per rank"
        raise InvalidInput(
            name, value, f"makes {per_rank} stages per rank, but {layout.pipeline_schedule} needs {wanted}"
        )
    return replace(layout, virtual_stages_per_rank=per_rank)


# ---------------------------------------------------------------- batch
def _with_batch(reading: Settings, layout: Layout) -> tuple[Layout, int]:
    reading.assume("training.local_batch_size", 8)
    local = reading.integer("training.local_batch_size", 8)
    micro_batch = reading.integer("parallelism.pipeline_parallel_microbatch_size", 1)
    if layout.pipeline_parallel_degree == 1:
        micro_batch = local
    elif local % micro_batch:
        rule = f"must be a multiple of pipeline_parallel_microbatch_size ({micro_batch})"
        raise InvalidInput("training.local_batch_size", local, rule, max(1, round(local / micro_batch)) * micro_batch)
    per_pass = local * layout.data_parallel_degree
    said = reading.integer("training.global_batch_size", -1, least=-1)
    total = said if said > 0 else per_pass
    if total % per_pass:
        rule = f"must be a multiple of {per_pass}, the local batch size x the data-parallel degree"
        raise InvalidInput("training.global_batch_size", total, rule, max(1, round(total / per_pass)) * per_pass)
    at_once = total // per_pass
    if layout.pipeline_parallel_degree > 1 and at_once > 1:
        detail = (
            f"torchtitan empties the pipeline {at_once} times per step, but a layout runs all "
            "micro-batches without a break"
        )
        reading.changed("training.global_batch_size", detail)
    return replace(layout, micro_batch_size=micro_batch), total


# ---------------------------------------------------------------- data-parallel ranks
def _with_sharding(release: Release, reading: Settings, layout: Layout) -> Layout:
    """Return the layout with FSDP if the settings ask for shards.

    They do so by a degree above 1, by context ranks, or by -1, which means any number of ranks.
    """
    name = "parallelism.fsdp_reshard_after_forward"
    policy = reading.choice(name, "default", ("default", "always", "never"))
    layout = replace(layout, fp32_gradient_reduce=_reduces_in_fp32(reading, layout))
    if not shards(layout):
        if layout.data_parallel_replicate_degree > 1 and release is RELEASE_0_2:
            reading.assumed("bucket_cap_mb", "torchtitan's DDP reduces gradients in buckets of 100 MiB")
            layout = replace(layout, gradient_bucket_bytes=DDP_BUCKET_BYTES)
        return layout
    reshards = policy == "always"
    if policy == "default":
        reshards = layout.pipeline_parallel_degree == 1
        how = "after the forward pass, except for the output layer" if reshards else "no layer in a pipeline"
        reading.assume(name, policy, f"by default torchtitan reshards {how}")
    return replace(layout, shard_level=ShardLevel.PARAMETERS, reshard_after_forward=reshards)


def _reduces_in_fp32(reading: Settings, layout: Layout) -> bool:
    """Return True if gradients are summed in fp32.

    This is so wherever several ranks sum a gradient and the layout's own format is shorter.
    """
    name = "training.mixed_precision_reduce"
    word = reading.choice(name, "float32", ("float32", "bfloat16"))
    if word == "bfloat16":
        reading.changed(name, "torchtitan's own releases accept only float32; bf16 is read")
    several = layout.data_parallel_degree * layout.context_parallel_degree > 1
    return several and layout.precision != Precision.FP32 and word == "float32"


_BACKENDS = {"flex": AttentionKernel.FLEX, "varlen": AttentionKernel.FLASH, "flex_flash": AttentionKernel.FLEX}


def _attention(release: Release, reading: Settings, of_flavor: AttentionKernel | None) -> AttentionKernel:
    if release.by_flavor:
        if of_flavor is None:
            kernel = "scaled_dot_product_attention uses the cuDNN kernel if the device has it, or else flash"
            reading.assumed("attention", f"{kernel}; this is assumed here")
        return of_flavor or AttentionKernel.FLASH
    return _BACKENDS[reading.choice("model.attn_backend", "flex", _BACKENDS, tells=True)]


TORCHTITAN = Target(
    format=RELEASE_0_2.format,
    version=RELEASE_0_2.version,
    rules=RULES_0_2,
    decided_elsewhere=LAUNCHED | {"attention_kernel"},
    write=write_0_2,
    default_space=DEFAULT_SPACE_0_2,
    read=lambda text, num_ranks: _imported(RELEASE_0_2, job_file_settings(text), num_ranks),
    recognises=is_job_file,
)

TORCHTITAN_CONFIG = Target(
    format=RELEASE_0_3.format,
    version=RELEASE_0_3.version,
    rules=RULES_0_3,
    decided_elsewhere=LAUNCHED,
    write=write_0_3,
    default_space=DEFAULT_SPACE_0_3,
    read=lambda text, num_ranks: _imported(RELEASE_0_3, module_settings(text), num_ranks),
    recognises=is_configuration,
)
