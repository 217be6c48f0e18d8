from __future__ import annotations

import pytest
import torch
from torch import nn

from autotuner.core.choices import OptimizerKernel
from autotuner.core.trial_spec import OptimizerSettings
from trials.distributed.data.optimizer_shard import ParameterShard
from trials.training.optimizer import ShardedOptimizer

LEARNING_RATE = 0.1


def parameter(dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.linspace(-1.0, 1.0, 12).reshape(3, 4).to(dtype))


def settings(learning_rate: float = LEARNING_RATE) -> OptimizerSettings:
    return OptimizerSettings(learning_rate=learning_rate)


def optimizer(held: nn.Parameter, kernel: OptimizerKernel = OptimizerKernel.FUSED) -> ShardedOptimizer:
    return ShardedOptimizer([ParameterShard(held, num_replicas=1)], settings=settings(), kernel=kernel)


def train(held: nn.Parameter, optimizer: ShardedOptimizer, num_steps: int = 3) -> None:
    for _ in range(num_steps):
        held.grad = torch.full_like(held, 0.5) * held.detach()
        optimizer.take_gradients()
        optimizer.step()


@pytest.mark.parametrize("kernel", OptimizerKernel)
def test_every_kernel_is_adamw(kernel: OptimizerKernel) -> None:
    ours, theirs = parameter(), parameter()
    train(ours, optimizer(ours, kernel))
    reference = torch.optim.AdamW([theirs], lr=LEARNING_RATE, foreach=False, fused=False)
    for _ in range(3):
        theirs.grad = 0.5 * theirs.detach()
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)  # kernels round in another order


def test_a_bf16_parameter_follows_an_fp32_one_that_no_rounding_stops() -> None:
    """A thousandth of a value near 1 is less than its last bf16 digit."""
    held = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    adamw = ShardedOptimizer([ParameterShard(held, num_replicas=1)], settings=settings(1e-3))
    for _ in range(16):
        held.grad = torch.ones_like(held)
        adamw.take_gradients()
        adamw.step()
    assert held.detach().float().tolist() == pytest.approx([0.984] * 4, abs=2**-9)


def test_an_fp32_parameter_is_its_own_master() -> None:
    held = parameter()
    (master,) = (shard.values() for shard in optimizer(held).shards)
    assert master.data_ptr() == held.data_ptr()


def test_after_a_step_neither_the_parameters_nor_the_optimizer_hold_gradients() -> None:
    held = parameter()
    adamw = optimizer(held)
    train(held, adamw, num_steps=1)
    assert held.grad is None
    assert adamw.gradients == []


def test_the_learning_rate_rises_over_the_warm_up() -> None:
    """AdamW's first steps are as long as the learning rate, whatever the gradient's size."""
    held = nn.Parameter(torch.zeros(3))
    warming = OptimizerSettings(learning_rate=0.3, warmup_steps=2, weight_decay=0.0)
    adamw = ShardedOptimizer([ParameterShard(held, num_replicas=1)], settings=warming)
    lengths = []
    for _ in range(4):
        before = held.detach().clone()
        held.grad = torch.ones_like(held)
        adamw.take_gradients()
        adamw.step()
        lengths.append((before - held.detach()).mean().item())
    assert lengths == pytest.approx([0.1, 0.2, 0.3, 0.3], rel=1e-5)  # AdamW's epsilon is 1e-8 of the gradient
