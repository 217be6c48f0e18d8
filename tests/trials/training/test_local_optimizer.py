from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autotuner.core.choices import OptimizerKernel
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings
from trials.training.local_optimizer import local_optimizer

GRADIENT = (1.0, -2.0, 2.0)


def stepped(settings: OptimizerSettings, gradients: int = 1, scale: float = 1.0) -> Tensor:
    """Values 0.5, 0.5, 0.5 after so many equal gradients."""
    held = torch.full((3,), 0.5)
    optimizer = local_optimizer([held], settings, OptimizerKernel.FUSED)
    for _ in range(gradients):
        held.grad = scale * torch.tensor(GRADIENT)
        optimizer.step()
    return held


def test_a_step_of_lamb_is_as_long_as_the_norm_of_the_tensor_times_the_learning_rate() -> None:
    """Algorithm 2 of arXiv 1904.00962 without weight decay."""
    lamb = OptimizerSettings(name=OptimizerName.LAMB, learning_rate=0.1, weight_decay=0.0)
    moved = stepped(lamb) - 0.5
    assert moved.norm().item() == pytest.approx(0.1 * 0.5 * 3**0.5, rel=1e-4)  # its epsilon is 1e-6 of an update of 3
    assert moved.sign().tolist() == [-1.0, 1.0, -1.0]


def test_lamb_counts_weight_decay_into_the_length_of_its_step() -> None:
    lamb = OptimizerSettings(name=OptimizerName.LAMB, learning_rate=0.1, weight_decay=0.5)
    moved = stepped(lamb) - 0.5
    assert moved.norm().item() == pytest.approx(0.1 * 0.5 * 3**0.5, rel=1e-4)


def test_madgrad_steps_by_the_cube_root_of_the_summed_squares() -> None:
    """Algorithm 1 of arXiv 2101.11075 with k = 0: x0 - lambda g / cbrt(lambda g^2), of which 1 - momentum counts."""
    madgrad = OptimizerSettings(name=OptimizerName.MADGRAD, learning_rate=0.1, beta1=0.5, weight_decay=0.0)
    gradient = torch.tensor(GRADIENT)
    expected = 0.5 - 0.5 * 0.1 * gradient / (0.1 * gradient**2) ** (1 / 3)
    torch.testing.assert_close(stepped(madgrad), expected, rtol=1e-4, atol=1e-5)  # its epsilon is added twice


@pytest.mark.parametrize("name", OptimizerName)
def test_every_optimizer_goes_down(name: OptimizerName) -> None:
    settings = OptimizerSettings(name=name, learning_rate=0.01, weight_decay=0.0)
    moved = stepped(settings, gradients=3) - 0.5
    assert moved.sign().tolist() == [-1.0, 1.0, -1.0]
