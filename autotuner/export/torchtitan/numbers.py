"""Number formats of torchtitan, read as a precision and its recipe."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import Fp8Recipe, Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.target import NoteKind
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

_OF_EXPERTS = ("quantize.grouped_mm.float8.fqns", "quantize.grouped_mm.mx.fqns")

_CONVERTERS = {"Float8LinearConverter": "float8", "MXFP8LinearConverter": "mx", "NVFP4LinearConverter": "nvfp4"}
"""Classes of 0.3 (torchtitan/components/quantization) by the words of 0.2."""


def precision_0_2(settings: Settings, layout: Layout) -> Layout:
    """Formats of 0.2.

    Raises:
        InvalidInput: A setting is none of torchtitan's words.
    """
    layout = _unrounded(settings, layout, needs_shards=True)
    names = settings.words("model.converters")
    _ignore_gathers(settings)
    kinds = {name.removeprefix("quantize.linear.") for name in names}
    if kinds & {"mx", "float8"} and not any(name.startswith("quantize.grouped_mm.") for name in names):
        _tell_of_experts(settings, layout)
    if "mx" in kinds:
        settings.word(f"{_MX}.recipe_name", "mxfp8_cublas")
        settings.words(f"{_MX}.filter_fqns")
        return replace(layout, precision=Precision.FP8, fp8_recipe=Fp8Recipe.MXFP8)
    if "float8" not in kinds:
        return layout
    if f"{_FLOAT8}.recipe_name" not in settings:
        settings.assume(f"{_FLOAT8}.recipe_name", "tensorwise")
    return _float8(settings, layout, f"{_FLOAT8}.recipe_name", f"{_FLOAT8}.emulate", "tensorwise")


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
    if "float8" not in kinds:
        return layout
    settings.assume("model.float8.recipe_name", "rowwise")
    return _float8(settings, layout, "model.float8.recipe_name", "model.float8.emulate", "rowwise")


def _unrounded(settings: Settings, layout: Layout, *, needs_shards: bool) -> Layout:
    """What parameters are cast to before any product.

    0.2 casts by FSDP, or by autocast where no other parallelism is (``maybe_enable_amp`` of its distributed/utils.py);
    0.3 always has FSDP's policy.
    """
    param, dtype = (settings.word(name, default) for name, default in ((_PARAM, "bfloat16"), (_DTYPE, "float32")))
    for name, word in ((_PARAM, param), (_DTYPE, dtype)):
        if word not in ("bfloat16", "float32"):
            raise InvalidInput(name, word, "must be bfloat16 or float32", "bfloat16")
    if dtype == "bfloat16":
        settings.note(
            NoteKind.CHANGED, _DTYPE, "weights and optimizer states are in bf16 too; a layout keeps fp32 ones"
        )
        return replace(layout, precision=Precision.BF16)
    inner = layout.tensor_parallel_degree > 1 or layout.pipeline_parallel_degree > 1
    if param == "bfloat16" and needs_shards and inner and not shards(layout):
        detail = "without shards torchtitan 0.2 casts nothing beside tensor or pipeline ranks: it trains in fp32"
        settings.note(NoteKind.CHANGED, _PARAM, detail)
        return replace(layout, precision=Precision.FP32)
    return replace(layout, precision=Precision.BF16 if param == "bfloat16" else Precision.FP32)


def _float8(settings: Settings, layout: Layout, recipe_name: str, emulate_name: str, default: str) -> Layout:
    recipe = settings.word(recipe_name, default)
    if recipe not in _RECIPES:
        raise InvalidInput(recipe_name, recipe, f"must be one of {', '.join(_RECIPES)}", default)
    if recipe == "rowwise_with_gw_hp":
        settings.note(
            NoteKind.CHANGED, recipe_name, "gradients of weights are multiplied in bf16; a layout has no word"
        )
    if settings.switch(emulate_name, default=False):
        return replace(layout, precision=Precision.FP8_EMULATED, fp8_recipe=Fp8Recipe.TENSORWISE)
    return replace(layout, precision=Precision.FP8, fp8_recipe=_RECIPES[recipe])


def _tell_of_experts(settings: Settings, layout: Layout) -> None:
    if layout.expert_parallel_degree > 1:
        detail = "experts stay in 16 bits without a converter of grouped products; those of a layout do not"
        settings.note(NoteKind.CHANGED, "model.converters", detail)


def _ignore_gathers(settings: Settings) -> None:
    settings.ignore(f"{_FLOAT8}.enable_fsdp_float8_all_gather", "what is gathered in 8 bits is a fact of the stack")
    settings.ignore(
        f"{_FLOAT8}.precompute_float8_dynamic_scale_for_fsdp", "when a scale is known is a fact of the stack"
    )
    for name in (f"{_FLOAT8}.filter_fqns", f"{_MX}.filter_fqns", *_OF_EXPERTS):
        settings.ignore(name, "a layout rounds the products of its layers and no others")
