"""The mean over all real tokens of a batch, however they are spread over micro-batches and ranks.

A mean of means would weigh a token by how few others its rank drew: a rank of short sequences would pull as hard as
one of long ones, and dealing them otherwise would train another function.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from trials.batches.micro_batch import NO_LABEL


def tokens_per_rank(labels_BS: Tensor, group: dist.ProcessGroup | None = None) -> float:
    """Real tokens of a step over the ranks whose gradients are averaged: what each rank divides its summed losses by.

    Then the average of the gradients is the gradient of the mean over all real tokens of the job.

    Args:
        labels_BS: Of all micro-batches of this rank's step.
        group: The ranks; None: all of them, or this one alone where there is no process group.
    """
    total = torch.tensor(float((labels_BS != NO_LABEL).sum()), dtype=torch.float64, device=labels_BS.device)
    if not dist.is_initialized():
        return total.item()
    dist.all_reduce(total, group=group)
    return total.item() / dist.get_world_size(group)
