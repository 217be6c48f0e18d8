"""fp8: linear layers whose matrix products take values rounded to 8 bits (torchao)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import nn

from autotuner.core.choices import FP8_PRECISIONS, Precision
from autotuner.core.layout import Layout


def use_fp8(layer: nn.Module, layout: Layout) -> None:
    """Replace the layer's linear modules by fp8 ones, real or emulated, where the layout says so.

    The parameters stay what they are, in bf16; the factors of each product are rounded as they come, forward and
    backward. Embedding and output are no part of a layer, so they stay in bf16.
    """
    if layout.precision not in FP8_PRECISIONS:
        return
    with _without_warnings("torchao", "torch.utils._pytree"):
        # importing torchao takes more than a second, and few trials need it
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: PLC0415
    recipe = Float8LinearConfig.from_recipe_name(layout.fp8_recipe.label)
    convert_to_float8_training(layer, config=replace(recipe, emulate=layout.precision == Precision.FP8_EMULATED))


@contextmanager
def _without_warnings(*names: str) -> Iterator[None]:
    """Loggers without warnings: torchao tries kernels of other devices, and registers a type that torch knows."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
