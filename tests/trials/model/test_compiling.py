"""Two layers of one shape make one graph to compile; the compiler keeps its results for the next run of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.domain.choice import AttentionKernel, Precision, Recompute
from autotuner.domain.layout import Layout
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import fsdp
from tests.trials.test_oracle import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    References,
    assert_gradients_agree,
    gradients,
    tensor,
    trial_losses,
)
from tests.trials.zygote import Zygote

TWO_LAYERS = tiny_model(name="two-layers", num_layers=2)

LAYOUTS = (
    # the first layer is fed by the embedding's DTensor, whose gradient is what the compiler once lost
    cpu_layout(**tensor(micro_batch_size=8, compiled=True, recompute=Recompute.SELECTIVE)),
    fsdp(2, micro_batch_size=4, compiled=True, recompute=Recompute.FULL, attention_kernel=AttentionKernel.FLASH),
)


@pytest.mark.timeout(300)  # the compiler takes 10 s on a quiet core, and others may use it as well
@pytest.mark.oracle
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_compiled_layers_train_like_those_of_a_single_process(
    layout: Layout, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    expected = reference(TWO_LAYERS, Precision.FP32)
    losses = trial_losses(zygote, layout, TWO_LAYERS, tmp_path / "trial")
    assert losses == pytest.approx(expected.losses, rel=LOSS_TOLERANCE)
    found = gradients(zygote, layout, TWO_LAYERS, tmp_path / "gradients")
    assert_gradients_agree(found, expected, GRADIENT_TOLERANCE)
