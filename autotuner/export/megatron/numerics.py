"""Megatron's arguments of precision, kernels and recomputation.

Names and defaults: megatron-core 0.16.1, transformer/transformer_config.py and training/arguments.py; the backends of
attention: transformer/enums.py, AttnBackend; limits of recomputation: transformer_config.py, __post_init__.
"""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import AttentionKernel, Fp8Recipe, Precision, Recompute
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import layers_per_stage
from autotuner.export.table import Reading, Written

RECIPES = {
    "delayed": Fp8Recipe.DELAYED,  # the default
    "tensorwise": Fp8Recipe.TENSORWISE,
    "blockwise": Fp8Recipe.BLOCKWISE,
    "mxfp8": Fp8Recipe.MXFP8,
}

BACKENDS = {"flash": AttentionKernel.FLASH, "fused": AttentionKernel.CUDNN, "unfused": AttentionKernel.MATH}
"""``auto`` is Transformer Engine's choice, ``local`` Megatron's own module around its fused softmax.

Which FlashAttention ``flash`` is decided by what is installed until 0.19, whose ``flash_attention_version`` says it.
"""


def write_numerics(layout: Layout) -> Written:
    """Precision, recipe, attention backend."""
    written: Written = {} if layout.precision == Precision.FP32 else {"bf16": True}
    if layout.precision in (Precision.FP8, Precision.FP8_EMULATED):
        recipe = next((word for word, one in RECIPES.items() if one == layout.fp8_recipe), "tensorwise")
        written |= {"fp8": "hybrid", "fp8_recipe": recipe}
    if layout.precision == Precision.NVFP4:
        written |= {"fp4": "e2m1", "fp4_recipe": "nvfp4"}
    nearest = "unfused" if layout.attention_kernel == AttentionKernel.FUSED_SOFTMAX else "flash"
    backends = (word for word, kernel in BACKENDS.items() if kernel == layout.attention_kernel)
    written["attention_backend"] = next(backends, nearest)
    return written | ({"flash_attention_version": 3} if layout.attention_kernel == AttentionKernel.FLASH_3 else {})


def read_numerics(reading: Reading, layout: Layout) -> Layout:
    """Return the layout with what settings say of it."""
    precision, kernel = _precision(reading), _attention(reading)
    if precision != Precision.FP8:
        return replace(layout, precision=precision, attention_kernel=kernel)
    recipe = reading.word("fp8_recipe")
    if not recipe:
        reading.assumed("fp8_recipe", "Megatron's default is delayed")
        recipe = "delayed"
    if recipe == "custom":
        reading.changed("fp8_recipe", "a custom recipe is told as tensorwise")
        recipe = "tensorwise"
    scaled = reading.meant("fp8_recipe", recipe, RECIPES, ", custom")
    return replace(layout, precision=precision, attention_kernel=kernel, fp8_recipe=scaled)


def _precision(reading: Reading) -> Precision:
    if reading.on("fp16"):
        reading.changed("fp16", "is told as bf16, whose rates and sizes it has")
    if reading.word("fp4", "none") != "none":
        return Precision.NVFP4
    if reading.word("fp8", "none") != "none":
        return Precision.FP8
    return Precision.BF16 if reading.on("bf16") or reading.on("fp16") else Precision.FP32


def _attention(reading: Reading) -> AttentionKernel:
    word = reading.word("attention_backend", "auto").removeprefix("attnbackend.")
    version = reading.word("flash_attention_version")
    if word == "flash" and version in ("3", "4"):
        return AttentionKernel.FLASH_3
    if word == "local":
        return AttentionKernel.FUSED_SOFTMAX if reading.on("masked_softmax_fusion", True) else AttentionKernel.MATH
    if word == "auto":
        if not reading.on("use_flash_attn"):
            reading.assumed("attention_backend", "Transformer Engine chooses; FlashAttention is taken")
        return AttentionKernel.FLASH
    return reading.meant("attention_backend", word, BACKENDS, ", local, auto", "flash")


MODULES = (*("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"),)
"""Words of ``recompute_modules``; a stack says which of them its selective recomputation means."""

_DEFAULT_MODULES = ("core_attn",)


def write_recompute(job: Job, layout: Layout) -> Written:
    """Return what is computed again, and what is offloaded."""
    written: Written = {}
    if layout.recompute == Recompute.SELECTIVE:
        modules = tuple(policy.value for policy in job.stack.selective_recompute if policy.value in MODULES)
        written = {"recompute_granularity": "selective", "recompute_modules": modules or _DEFAULT_MODULES}
    elif layout.recompute == Recompute.FULL:
        every = layout.recompute_every
        num_layers = 1 if every == 1 else -(-max(1, layers_per_stage(layout, job.model.num_layers)) // every)
        method = "uniform" if every == 1 else "block"
        written = {"recompute_granularity": "full", "recompute_method": method, "recompute_num_layers": num_layers}
    if layout.offload_activations:
        written["cpu_offloading_num_layers"] = max(1, job.model.num_layers - 1)  # all of them is refused
    return written


def read_recompute(reading: Reading, layout: Layout, layers_of_stage: int | None) -> Layout:
    """Return the layout with what settings say of it.

    Args:
        reading: The settings.
        layout: What was read before.
        layers_of_stage: Layers of a stage between the ends, where the configuration tells.
    """
    recompute, every = _recomputed(reading, layers_of_stage)
    offloads = True
    if reading.integer("cpu_offloading_num_layers", 0) or reading.on("cpu_offloading"):
        reading.changed("cpu_offloading", "a layout offloads what all layers keep")
    elif reading.on("fine_grained_activation_offloading"):
        reading.changed("fine_grained_activation_offloading", "a layout offloads all that layers keep, no modules")
    else:
        offloads = False
    return replace(layout, recompute=recompute, recompute_every=every, offload_activations=offloads)


def _recomputed(reading: Reading, layers_of_stage: int | None) -> tuple[Recompute, int]:
    granularity = reading.word("recompute_granularity")
    if reading.on("recompute_activations"):
        granularity = "selective"
    elif not granularity and reading.on("checkpoint_activations"):  # before core 0.1
        granularity = "full"
    if granularity in ("", "none"):
        return Recompute.NONE, 1
    if granularity not in ("full", "selective"):
        raise InvalidInput("recompute_granularity", granularity, "must be full or selective", "full")
    if granularity == "full":
        return Recompute.FULL, _every(reading, layers_of_stage)
    modules = reading.settings.words("recompute_modules") or _DEFAULT_MODULES
    if modules != _DEFAULT_MODULES:
        reading.changed("recompute_modules", f"which of {', '.join(modules)} run again is said by the stack")
    return Recompute.SELECTIVE, 1


def _every(reading: Reading, layers: int | None) -> int:
    """One layer in so many recomputes: as many as the first ones of each stage that Megatron's block method takes."""
    num_layers, method = reading.integer("recompute_num_layers"), reading.word("recompute_method", "uniform")
    if method != "block":
        if num_layers > 1:
            detail = f"of {num_layers} layers that run again together each keeps its input"
            reading.changed("recompute_num_layers", detail)
        return 1
    if layers is None:
        reading.changed("recompute_method", f"{num_layers} layers of a stage, whose size nothing says: told as all")
    if layers is None or num_layers >= layers:
        return 1
    every = min(range(1, layers + 1), key=lambda n: (abs(-(-layers // n) - num_layers), n))
    told = f"the first {num_layers} of {layers} layers are told as {-(-layers // every)}, each {every}th"
    reading.changed("recompute_method", told)
    return every
