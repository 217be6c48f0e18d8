from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autotuner.core.choices import Fp8Recipe, Precision, Recompute
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Tolerance, Trainer, assert_alike, for_each
from tests.trials.model.test_decoder import decoder
from tests.trials.specs import PIPELINE, SEQUENCE, TENSOR, fsdp
from trials.options.fp8 import use_fp8

EMULATED = Precision.FP8_EMULATED
TENSORWISE: dict[str, Any] = {"precision": EMULATED}
ROWWISE: dict[str, Any] = {"precision": EMULATED, "fp8_recipe": Fp8Recipe.ROWWISE}
BF16: dict[str, Any] = {"precision": Precision.BF16}

ROUNDING = 2**-4
"""Relative error of a value rounded to e4m3, which keeps 3 bits after the leading one: half of the last one's worth."""

LOSS_TOLERANCE = 2e-3
"""Seen: 5e-4. Errors of single products, up to 2^-4, have either sign and average out over 256 tokens of a loss."""

SPLIT = Tolerance(loss=LOSS_TOLERANCE, gradients=0.2, norm=0.05)
"""Seen: 0.13. Values that are scaled and summed in other groups are rounded to other neighbours, three times on the
way to a gradient: two factors forward, and the gradient itself to e5m2 (2^-3) or e4m3 (2^-4)."""
WHOLE = Tolerance(loss=LOSS_TOLERANCE, gradients=1e-2, norm=1e-2)
"""Seen: 4e-3. A row's scale is its own, so only the columns of a weight's gradient meet other tokens in a micro-batch
of another size."""

TINY = tiny_model()
SELECTIVE = {"recompute": Recompute.SELECTIVE}


@for_each(
    [(TINY, cpu_layout(**PIPELINE, **ROWWISE, **SELECTIVE, micro_batch_size=4))],
    oracle=[(TINY, fsdp(2, **ROWWISE, micro_batch_size=4))],
)
def test_emulated_fp8_on_whole_matrices_trains_like_a_single_process_in_it(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model, WHOLE)


@for_each(
    [(TINY, cpu_layout(**SEQUENCE, **ROWWISE, micro_batch_size=8))],
    oracle=[(TINY, cpu_layout(**TENSOR, **TENSORWISE, **SELECTIVE, micro_batch_size=8))],
)
def test_emulated_fp8_on_split_matrices_trains_like_a_single_process_in_it(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model, SPLIT)


def test_fp8_loses_little_beside_bf16_and_something(trainer: Trainer) -> None:
    rounded, exact = (trainer.alone(cpu_layout(**choice), tiny_model()) for choice in (ROWWISE, BF16))
    assert_alike(rounded, exact, SPLIT)
    assert rounded.losses != pytest.approx(exact.losses, rel=1e-9)


def linears(layer: nn.Module) -> dict[str, nn.Linear]:
    return {name: module for name, module in layer.named_modules() if isinstance(module, nn.Linear)}


@pytest.mark.parametrize("recipe", [Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE], ids=str)
def test_every_product_of_a_layer_rounds_its_factors(recipe: Fp8Recipe) -> None:
    exact, rounded = decoder(tiny_model()).layers["0"], decoder(tiny_model()).layers["0"]
    use_fp8(rounded, cpu_layout(precision=EMULATED, fp8_recipe=recipe))
    assert dict(exact.named_parameters()).keys() == dict(rounded.named_parameters()).keys()
    for name, module in linears(exact).items():
        x = torch.randn(64, module.in_features, generator=torch.Generator().manual_seed(0))
        error = relative_error(linears(rounded)[name](x), module(x))
        assert 0.0 < error < 2 * ROUNDING, name  # each of two factors is off by so much at most


def relative_error(found: Tensor, exact: Tensor) -> float:
    return float(((found - exact).norm() / exact.norm()).detach())
