from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.domain.choice import Precision
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import fsdp
from tests.trials.test_oracle import (
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    ODD_VOCABULARY,
    References,
    assert_gradients_agree,
    gradients,
    pipeline,
    sequence,
    tensor,
    trial_losses,
)
from tests.trials.zygote import Zygote

GATHERED: tuple[tuple[TransformerSpec, Layout], ...] = (
    (tiny_model(), cpu_layout(**tensor(micro_batch_size=4, loss_parallel=False))),
    (tiny_model(), fsdp(2, **sequence(micro_batch_size=4, loss_parallel=False))),
    (ODD_VOCABULARY, cpu_layout(**sequence(**pipeline(micro_batch_size=2, loss_parallel=False)))),
)


@pytest.mark.parametrize(("model", "layout"), GATHERED, ids=lambda value: getattr(value, "name", str(value)))
def test_gathered_logits_give_the_loss_and_the_gradients_of_a_single_process(
    model: TransformerSpec, layout: Layout, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    expected = reference(model, Precision.FP32)
    losses = trial_losses(zygote, layout, model, tmp_path / "trial")
    assert losses == pytest.approx(expected.losses, rel=LOSS_TOLERANCE)
    found = gradients(zygote, layout, model, tmp_path / "gradients")
    assert_gradients_agree(found, expected, GRADIENT_TOLERANCE)
