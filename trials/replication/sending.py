"""What replicas have on its way to each other, as futures.

Futures rather than works: DDP's hooks go on in a callback of the future, before gloo counts the work as done, where
waiting for the work would wait for itself.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

__all__ = ["Sending", "gather", "sum_up"]

Sending = Future[Any] | None
"""Done when everybody's payload is there; None where nobody else is."""


def sum_up(payload: Tensor, group: dist.ProcessGroup) -> Sending:
    """Start to make the payload the sum of everybody's."""
    if group.size() == 1:
        return None
    work: dist.Work = dist.all_reduce(payload, group=group, async_op=True)
    return work.get_future()


def gather(payload: Tensor, group: dist.ProcessGroup) -> tuple[list[Tensor], Sending]:
    """Start to gather everybody's payloads, which are of one length, in the order of ranks."""
    if group.size() == 1:
        return [payload], None
    payloads = [torch.empty_like(payload) for _ in range(group.size())]
    work: dist.Work = dist.all_gather(payloads, payload, group=group, async_op=True)
    return payloads, work.get_future()
