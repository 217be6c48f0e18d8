"""Optimizers over the tensors that one rank updates, each element or each whole tensor alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from autotuner.core.choices import OptimizerKernel
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings


def local_optimizer(
    masters: Sequence[Tensor], settings: OptimizerSettings, kernel: OptimizerKernel
) -> torch.optim.Optimizer:
    """The optimizer of these settings over fp32 tensors; one without a fused kernel takes one per operation.

    LAMB and MADGRAD are those of the library pytorch_optimizer.
    """
    betas = (settings.beta1, settings.beta2)
    match settings.name:
        case OptimizerName.ADAMW:
            return _adamw(masters, settings, kernel)
        case OptimizerName.LAMB:
            from pytorch_optimizer import Lamb  # noqa: PLC0415  # a hundred optimizers: only who wants one waits

            # Decoupled, the decay would be left out of the update whose norm sets the step, against the paper. Without
            # ``adam_debias`` the first steps would be longer than that norm says: 1 / (1 - beta1) times as long.
            return Lamb(
                masters,
                lr=settings.learning_rate,
                betas=betas,
                weight_decay=settings.weight_decay,
                weight_decouple=False,
                adam_debias=True,
            )
        case OptimizerName.MADGRAD:
            from pytorch_optimizer import MADGRAD  # noqa: PLC0415  # as above

            return MADGRAD(
                masters,
                lr=settings.learning_rate,
                momentum=settings.beta1,
                weight_decay=settings.weight_decay,
                weight_decouple=True,
            )


def _adamw(masters: Sequence[Tensor], settings: OptimizerSettings, kernel: OptimizerKernel) -> torch.optim.Optimizer:
    """AdamW whose moments exist from the start, so that the first step needs as much memory as all others."""
    fused = kernel == OptimizerKernel.FUSED
    adamw = torch.optim.AdamW(
        masters,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        fused=fused,
        foreach=not fused,
    )
    for master in masters:
        adamw.state[master] = {
            # as AdamW itself does: a kernel per operation computes with the step's number on the host
            "step": torch.zeros((), device=master.device if fused else "cpu"),
            "exp_avg": torch.zeros_like(master),
            "exp_avg_sq": torch.zeros_like(master),
        }
    return adamw
