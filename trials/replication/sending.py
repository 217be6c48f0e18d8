"""What replicas have on its way to each other."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

Sending = dist.Work | None
"""Over when everybody's payload is there; None where nobody else is."""


def sum_up(payload: Tensor, group: dist.ProcessGroup) -> Sending:
    """Start to make the payload the sum of everybody's."""
    if group.size() == 1:
        return None
    work: dist.Work = dist.all_reduce(payload, group=group, async_op=True)
    return work


def gather(payload: Tensor, group: dist.ProcessGroup) -> tuple[list[Tensor], Sending]:
    """Start to gather everybody's payloads, which are of one length, in the order of ranks."""
    if group.size() == 1:
        return [payload], None
    payloads = [torch.empty_like(payload) for _ in range(group.size())]
    work: dist.Work = dist.all_gather(payloads, payload, group=group, async_op=True)
    return payloads, work
