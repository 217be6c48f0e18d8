"""Number formats of torchtitan, read as a precision with its recipe, and checkpointing, read as recomputation."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import Fp8Recipe, Precision, Recompute
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.flags import whole_number
from autotuner.export.torchtitan.rules import shards
from autotuner.export.torchtitan.settings import Settings

_PARAM = "training.mixed_precision_param"
_DTYPE = "training.dtype"
_FLOAT8 = "quantize.linear.float8"
_MX = "quantize.linear.mx"

_RECIPES = {
    "tensorwise": Fp8Recipe.TENSORWISE,
    "rowwise": Fp8Recipe.ROWWISE,
    "rowwise_with_gw_hp": Fp8Recipe.ROWWISE,
}
"""Recipes of torchao's float8 training; the last keeps the product of a weight's gradient in 16 bits."""

_FACTS = {
    f"{_FLOAT8}.enable_fsdp_float8_all_gather": "what is gathered in 8 bits is a fact of the stack",
    f"{_FLOAT8}.precompute_float8_dynamic_scale_for_fsdp": "when a scale is known is a fact of the stack",
    **dict.fromkeys(
        (
            *(f"{_FLOAT8}.filter_fqns", f"{_MX}.filter_fqns"),
            *("quantize.grouped_mm.float8.fqns", "quantize.grouped_mm.mx.fqns"),
        ),
        "a layout rounds the products of its layers and no others",
    ),
}
"""Settings of 0.2's converters that no layout says."""

_CONVERTERS = {"Float8LinearConverter": "float8", "MXFP8LinearConverter": "mx", "NVFP4LinearConverter": "nvfp4"}
"""Classes of 0.3 (torchtitan/components/quantization) by the words of 0.2."""


def precision_0_2(settings: Settings, layout: Layout) -> Layout:
    """Formats of 0.2.

    Raises:
        InvalidInput: A setting is none of torchtitan's words.
    """
    layout = _unrounded(settings, layout, needs_shards=True)
    names = settings.words("model.converters")
    for name, detail in _FACTS.items():
        settings.ignore(name, detail)
    kinds = {name.removeprefix("quantize.linear.") for name in names}
    rounds_experts = any(name.startswith("quantize.grouped_mm.") for name in names)
    if kinds & {"mx", "float8"} and not rounds_experts and layout.expert_parallel_degree > 1:
        detail = "experts stay in 16 bits without a converter of grouped products; those of a layout do not"
        settings.changed("model.converters", detail)
    if "mx" in kinds:
        settings.word(f"{_MX}.recipe_name", "mxfp8_cublas")
        settings.words(f"{_MX}.filter_fqns")
        return replace(layout, precision=Precision.FP8, fp8_recipe=Fp8Recipe.MXFP8)
    return _float8(settings, layout, _FLOAT8, "tensorwise") if "float8" in kinds else layout


def precision_0_3(settings: Settings, layout: Layout) -> Layout:
    """Formats of 0.3, whose converters a model's registry function takes.

    Raises:
        InvalidInput: A setting is none of torchtitan's words.
    """
    layout = _unrounded(settings, layout, needs_shards=False)
    kinds = [_CONVERTERS.get(kind, kind) for kind in settings.words("model.converters")]
    if "nvfp4" in kinds:
        return replace(layout, precision=Precision.NVFP4)
    if "mx" in kinds:
        return replace(layout, precision=Precision.FP8, fp8_recipe=Fp8Recipe.MXFP8)
    return _float8(settings, layout, "model.float8", "rowwise") if "float8" in kinds else layout


def _unrounded(settings: Settings, layout: Layout, *, needs_shards: bool) -> Layout:
    """What parameters are cast to before any product.

    0.2 casts by FSDP, or by autocast where no other parallelism is (``maybe_enable_amp`` of its distributed/utils.py);
    0.3 always has FSDP's policy.
    """
    param, dtype = (settings.word(name, default) for name, default in ((_PARAM, "bfloat16"), (_DTYPE, "float32")))
    for name, word in ((_PARAM, param), (_DTYPE, dtype)):
        if word not in ("bfloat16", "float32"):
            raise InvalidInput(name, word, "must be bfloat16 or float32", "bfloat16")
    inner = layout.tensor_parallel_degree > 1 or layout.pipeline_parallel_degree > 1
    precision = Precision.BF16 if "bfloat16" in (param, dtype) else Precision.FP32
    if dtype == "bfloat16":
        settings.changed(_DTYPE, "weights and optimizer states are in bf16 too; a layout keeps fp32 ones")
    elif param == "bfloat16" and needs_shards and inner and not shards(layout):
        detail = "without shards torchtitan 0.2 casts nothing beside tensor or pipeline ranks: it trains in fp32"
        settings.changed(_PARAM, detail)
        precision = Precision.FP32
    return replace(layout, precision=precision)


def _float8(settings: Settings, layout: Layout, section: str, default: str) -> Layout:
    name = f"{section}.recipe_name"
    settings.assume(name, default)
    recipe = settings.word(name, default)
    if recipe not in _RECIPES:
        raise InvalidInput(name, recipe, f"must be one of {', '.join(_RECIPES)}", default)
    if recipe == "rowwise_with_gw_hp":
        settings.changed(name, "gradients of weights are multiplied in bf16; a layout has no word")
    if settings.switch(f"{section}.emulate", default=False):
        return replace(layout, precision=Precision.FP8_EMULATED, fp8_recipe=Fp8Recipe.TENSORWISE)
    return replace(layout, precision=Precision.FP8, fp8_recipe=_RECIPES[recipe])


# ---------------------------------------------------------------- activation checkpointing
_MODE = "activation_checkpoint.mode"
_OPTION = "activation_checkpoint.selective_ac_option"


def recompute_0_2(settings: Settings, layout: Layout) -> Layout:
    """Mode and option of 0.2: the mode ``selective`` with a number recomputes every n-th layer in full.

    Raises:
        InvalidInput: The mode or the option is none of torchtitan's.
    """
    settings.assume(_MODE, "selective")
    mode = settings.word(_MODE, "selective")
    if mode != "selective":
        return _by_word(settings, layout, mode)
    settings.assume(_OPTION, "2", "torchtitan recomputes every second layer in full where no option is named")
    option = settings.word(_OPTION, "2")
    if option == "op":
        return replace(layout, recompute=Recompute.SELECTIVE)
    if not option.isdecimal():
        raise InvalidInput(_OPTION, option, 'must be "op" or the interval of layers that recompute', "op")
    every = max(1, whole_number(_OPTION, option))  # "0" recomputes all, as "1" does
    if every > 1:
        detail = f"layers {every}, {2 * every} ... of a rank recompute; those of a layout are 1, {every + 1} ..."
        settings.changed(_OPTION, detail)
    return replace(layout, recompute=Recompute.FULL, recompute_every=every)


def recompute_0_3(settings: Settings, layout: Layout) -> Layout:
    """The kind of activation checkpointing of 0.3.

    Raises:
        InvalidInput: It is none of torchtitan's.
    """
    settings.assume("activation_checkpoint", "selective")
    return _by_word(settings, layout, settings.word("activation_checkpoint", "selective").replace("-", "_"))


def _by_word(settings: Settings, layout: Layout, mode: str) -> Layout:
    name = _MODE if _MODE in settings.values else "activation_checkpoint"
    if mode == "memory_budget":
        settings.changed(name, "the compiler decides what is computed again; what keeps matrix products comes nearest")
        return replace(layout, recompute=Recompute.SELECTIVE)
    if mode not in Recompute.labels():
        rule = f"must be one of {', '.join(Recompute.labels())}, memory_budget"
        raise InvalidInput(name, mode, rule, "selective")
    return replace(layout, recompute=Recompute.from_label(mode))
