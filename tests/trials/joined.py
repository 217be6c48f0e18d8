"""A rank joins the others of its test, and a collective that notes who waits for it."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not by name
from torch.futures import Future

from autotuner.trials.process.task import TaskContext
from tests.patience import PATIENCE_S


def joined(context: TaskContext, *, store: Store | None = None, timeout_s: float = PATIENCE_S) -> dist.ProcessGroup:
    """The group of all ranks, on gloo and one thread a rank."""
    torch.set_num_threads(1)
    info = context.rank_info
    dist.init_process_group(
        "gloo",
        store=store or context.store(),
        rank=info.rank,
        world_size=info.world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    assert dist.group.WORLD is not None
    return dist.group.WORLD


class Noted:
    """A ``Pending`` whose future is complete from the beginning, as gloo's is before the collective is over."""

    def __init__(self, result: Tensor) -> None:
        self.was_awaited = False
        self._future: Future[list[Tensor]] = Future()
        self._future.set_result([result])

    def wait(self) -> None:
        self.was_awaited = True

    def get_future(self) -> Future[list[Tensor]]:
        return self._future
