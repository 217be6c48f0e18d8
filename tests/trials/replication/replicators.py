"""Replicators of every kind for the same few tensors, and what two replicas would teach them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from trials.replication.demo import DemoReplicator
from trials.replication.elements import ElementReplicator, striding_offsets
from trials.replication.replicator import FullReplicator, Replicator

SHAPES = ((16, 24), (48,), (3, 7), (0,), (), (130, 2))
"""Some fill their chunks and some do not; one rank of a shard group may hold nothing of a tensor."""

Built = Callable[[list[Tensor], dist.ProcessGroup], Replicator]

DENSE: dict[str, Built] = {
    "full": FullReplicator,
    "all of demo": lambda held, group: DemoReplicator(held, group, chunk=16, top_k=16),
    "all elements": lambda held, group: ElementReplicator(held, group, sparsity=1),
    "every stride": lambda held, group: ElementReplicator(held, group, sparsity=1, offsets=striding_offsets),
}
"""Those that send everything."""

KEEPING: dict[str, Built] = {
    "demo": lambda held, group: DemoReplicator(held, group, chunk=16, top_k=2),
    "wide demo": lambda held, group: DemoReplicator(held, group, chunk=512, top_k=8),
    "short demo": lambda held, group: DemoReplicator(held, group, chunk=16, top_k=2, payload_dtype=torch.bfloat16),
    "random": lambda held, group: ElementReplicator(held, group, sparsity=8),
    "short random": lambda held, group: ElementReplicator(held, group, sparsity=8, payload_dtype=torch.bfloat16),
    "striding": lambda held, group: ElementReplicator(held, group, sparsity=8, offsets=striding_offsets),
}
"""Those that keep something back."""

REPLICATORS: dict[str, Built] = {**DENSE, **KEEPING}


def tensors() -> list[Tensor]:
    """Parameters that a rank holds."""
    return [torch.zeros(shape) for shape in SHAPES]


def gradients(replica: int, step: int) -> list[Tensor]:
    """What a replica finds in a step."""
    generator = torch.Generator().manual_seed(1000 * replica + step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]
