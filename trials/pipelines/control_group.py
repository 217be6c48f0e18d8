"""ControlGroup: tells every rank a few numbers of every other after each step, whatever becomes of the links."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Told(Protocol):
    """What all ranks tell, while it is on its way."""

    def wait(self) -> list[list[float]]:
        """The numbers of every rank."""


class Telling(Protocol):
    """A way to tell all ranks."""

    def tell(self, numbers: Sequence[float]) -> Told:
        """Start to tell as many numbers as every other rank does."""


class ControlGroup:
    """A gloo group of all ranks with connections of its own, over the hosts' network: no link of a pipeline is theirs.

    Every rank of the job must make one at the same time.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s), group_desc="control")

    def tell(self, numbers: Sequence[float]) -> Told:
        """Start to tell all ranks; they may compute until somebody waits."""
        own = torch.tensor(numbers, dtype=torch.float64)
        told = [torch.empty_like(own) for _ in range(dist.get_world_size(self._group))]
        work = dist.all_gather(told, own, group=self._group, async_op=True)
        assert work is not None  # this rank is in the group
        return _Told(told, work)


class _Told:
    def __init__(self, told: list[Tensor], work: dist.Work) -> None:
        self._told, self._work = told, work

    def wait(self) -> list[list[float]]:
        self._work.wait()
        return [one.tolist() for one in self._told]
