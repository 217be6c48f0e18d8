from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autotuner.domain.choice import Fp8Recipe, Precision, Recompute
from autotuner.domain.layout import Layout
from tests.builders import cpu_layout, tiny_model
from tests.trials.conftest import Reference
from tests.trials.model.test_decoder import decoder
from tests.trials.specs import fsdp
from tests.trials.test_oracle import (
    References,
    assert_gradients_agree,
    gradients,
    pipeline,
    sequence,
    tensor,
    trial_losses,
)
from tests.trials.zygote import Zygote
from trials.model.fp8 import use_fp8

EMULATED, ROWWISE = Precision.FP8_EMULATED, Fp8Recipe.ROWWISE
FP8 = {"precision": EMULATED, "fp8_recipe": ROWWISE}

ROUNDING = 2**-4
"""Of a value to e4m3, which keeps 3 bits after the leading one: half of the last one's worth."""

LOSS_TOLERANCE = 2e-3
"""Seen: 5e-4. Errors of single products, up to 2^-4, have either sign and average out over 256 tokens of a loss."""
SPLIT_GRADIENT_TOLERANCE = 0.2
"""Seen: 0.13. Values that are scaled and summed in other groups are rounded to other neighbours, three times on the
way to a gradient: two factors forward, and the gradient itself to e5m2 (2^-3) or e4m3 (2^-4)."""
WHOLE_GRADIENT_TOLERANCE = 1e-2
"""Seen: 4e-3. A row's scale is its own, so only the columns of a weight's gradient meet other tokens in a micro-batch
of another size."""


def case(gradient_tolerance: float, layout: Layout) -> Any:
    return pytest.param(layout, gradient_tolerance, id=str(layout))


CASES = (
    case(WHOLE_GRADIENT_TOLERANCE, fsdp(2, micro_batch_size=4, **FP8)),
    case(WHOLE_GRADIENT_TOLERANCE, cpu_layout(**pipeline(micro_batch_size=4, recompute=Recompute.SELECTIVE, **FP8))),
    case(SPLIT_GRADIENT_TOLERANCE, cpu_layout(**sequence(micro_batch_size=8, **FP8))),
    case(
        SPLIT_GRADIENT_TOLERANCE,
        cpu_layout(**tensor(micro_batch_size=8, precision=EMULATED, recompute=Recompute.SELECTIVE)),
    ),
)


@pytest.fixture(scope="module")
def single(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """One process with the same rounding."""
    folder, layout = tmp_path_factory.mktemp("fp8"), cpu_layout(micro_batch_size=8, **FP8)
    return Reference(
        losses=trial_losses(zygote, layout, tiny_model(), folder / "trial"),
        gradients=gradients(zygote, layout, tiny_model(), folder / "gradients"),
    )


@pytest.mark.parametrize(("layout", "gradient_tolerance"), CASES)
def test_layouts_in_emulated_fp8_train_like_a_single_process_in_it(
    layout: Layout, gradient_tolerance: float, single: Reference, zygote: Zygote, tmp_path: Path
) -> None:
    losses = trial_losses(zygote, layout, tiny_model(), tmp_path / "trial")
    assert losses == pytest.approx(single.losses, rel=LOSS_TOLERANCE)
    found = gradients(zygote, layout, tiny_model(), tmp_path / "gradients")
    assert_gradients_agree(found, single, gradient_tolerance)


def test_fp8_loses_little_beside_bf16_and_something(single: Reference, reference: References) -> None:
    exact = reference(tiny_model(), Precision.BF16)
    assert single.losses == pytest.approx(exact.losses, rel=LOSS_TOLERANCE)
    assert single.losses != pytest.approx(exact.losses, rel=1e-9)
    assert_gradients_agree(single.gradients, exact, SPLIT_GRADIENT_TOLERANCE)


def linears(layer: nn.Module) -> dict[str, nn.Linear]:
    return {name: module for name, module in layer.named_modules() if isinstance(module, nn.Linear)}


@pytest.mark.parametrize("recipe", Fp8Recipe, ids=str)
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
