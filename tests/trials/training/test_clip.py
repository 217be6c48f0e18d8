"""Clipping by the norm of the whole gradient; ``assert_alike`` holds every rank to this norm in all layouts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.layouts.layout import Layout
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import TOLERANCES, Trainer, for_each
from tests.trials.specs import FIVE_STEPS, PIPELINE, SEQUENCE, ZBV, fsdp, trial_spec, zero
from trials.training.clip import clip

MAX_NORM = 0.1
"""Far below the norm of the first steps, some 2: every step is clipped."""

ON_STAGES = (tiny_model(), zero(2, **ZBV, micro_batch_size=2))
ON_ALL_AXES = (tiny_model(), fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2))


@for_each([ON_STAGES], oracle=[ON_ALL_AXES])
def test_a_clipped_run_has_the_losses_of_a_clipped_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    clipping = replace(FIVE_STEPS, max_gradient_norm=MAX_NORM)
    layouts = (cpu_layout(micro_batch_size=8), layout)
    whole, spread = (trainer.train(trial_spec(each, model=model, settings=clipping)).losses for each in layouts)
    assert spread == pytest.approx(whole, rel=TOLERANCES[layout.precision].loss)
    assert whole != trainer.alone(layout, model).losses


def clipped(max_norm: float) -> list[Tensor]:
    gradients = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    clip(gradients, torch.tensor(5.0, dtype=torch.float64), max_norm)
    return gradients


def test_gradients_above_the_norm_are_scaled_down_to_it() -> None:
    assert [float(gradient) for gradient in clipped(1.0)] == pytest.approx([0.6, 0.8])


def test_gradients_below_the_norm_stay_as_they_are() -> None:
    assert [float(gradient) for gradient in clipped(6.0)] == [3.0, 4.0]
