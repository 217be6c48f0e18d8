"""A rank joins the others of its test."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not by name

from tests.patience import PATIENCE_S
from trials.process.task import TaskContext


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
