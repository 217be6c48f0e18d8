"""Number formats, and the kernels of attention.

Names and defaults: megatron-core 0.16.1, transformer/transformer_config.py and training/arguments.py; the backends of
attention: transformer/enums.py, AttnBackend.
"""

from __future__ import annotations

from autotuner.core.choices import AttentionKernel, Fp8Recipe, Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.megatron.reading import Reading, Settings

RECIPES = {
    "delayed": Fp8Recipe.DELAYED,  # the default
    "tensorwise": Fp8Recipe.TENSORWISE,
    "blockwise": Fp8Recipe.BLOCKWISE,
    "mxfp8": Fp8Recipe.MXFP8,
}

BACKENDS = {
    "flash": AttentionKernel.FLASH,
    "fused": AttentionKernel.CUDNN,
    "unfused": AttentionKernel.MATH,
}
"""``auto`` is Transformer Engine's choice, ``local`` Megatron's own module around its fused softmax.

Which FlashAttention ``flash`` is decided by what is installed until 0.19, whose ``flash_attention_version`` says it.
"""


def write_numerics(layout: Layout) -> Settings:
    """Precision, recipe, attention backend."""
    written: Settings = {} if layout.precision == Precision.FP32 else {"bf16": True}
    if layout.precision in (Precision.FP8, Precision.FP8_EMULATED):
        recipe = next((word for word, one in RECIPES.items() if one == layout.fp8_recipe), "tensorwise")
        written |= {"fp8": "hybrid", "fp8_recipe": recipe}
    if layout.precision == Precision.NVFP4:
        written |= {"fp4": "e2m1", "fp4_recipe": "nvfp4"}
    backend = next((word for word, kernel in BACKENDS.items() if kernel == layout.attention_kernel), _nearest(layout))
    written["attention_backend"] = backend
    return written | ({"flash_attention_version": 3} if layout.attention_kernel == AttentionKernel.FLASH_3 else {})


def _nearest(layout: Layout) -> str:
    return "unfused" if layout.attention_kernel == AttentionKernel.FUSED_SOFTMAX else "flash"


def read_numerics(reading: Reading) -> tuple[dict[str, object], Precision]:
    """The same back, and the precision by itself."""
    precision = _precision(reading)
    found: dict[str, object] = {"precision": precision, "attention_kernel": _attention(reading)}
    if precision == Precision.FP8:
        found["fp8_recipe"] = _recipe(reading)
    return found, precision


def _precision(reading: Reading) -> Precision:
    if reading.on("fp16"):
        reading.changed("fp16", "is told as bf16, whose rates and sizes it has")
    if reading.word("fp4", "none") != "none":
        return Precision.NVFP4
    if reading.word("fp8", "none") != "none":
        return Precision.FP8
    return Precision.BF16 if reading.on("bf16") or reading.on("fp16") else Precision.FP32


def _recipe(reading: Reading) -> Fp8Recipe:
    word = reading.word("fp8_recipe")
    if not word:
        reading.assumed("fp8_recipe", "Megatron's default is delayed")
        return Fp8Recipe.DELAYED
    if word == "custom":
        reading.changed("fp8_recipe", "a custom recipe is told as tensorwise")
        return Fp8Recipe.TENSORWISE
    if word not in RECIPES:
        raise InvalidInput("fp8_recipe", word, f"must be one of {', '.join(RECIPES)}, custom")
    return RECIPES[word]


def _attention(reading: Reading) -> AttentionKernel:
    word = reading.word("attention_backend", "auto").removeprefix("attnbackend.")
    version = reading.word("flash_attention_version")
    if word == "flash":
        return AttentionKernel.FLASH_3 if version in ("3", "4") else AttentionKernel.FLASH
    if word == "local":
        return AttentionKernel.FUSED_SOFTMAX if reading.on("masked_softmax_fusion", True) else AttentionKernel.MATH
    if word == "auto":
        if not reading.on("use_flash_attn"):
            reading.assumed("attention_backend", "Transformer Engine chooses; FlashAttention is taken")
        return AttentionKernel.FLASH
    if word not in BACKENDS:
        raise InvalidInput("attention_backend", word, f"must be one of {', '.join(BACKENDS)}, local, auto", "flash")
    return BACKENDS[word]
