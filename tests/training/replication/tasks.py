"""Replicators of every kind for the same few tensors, and what replicas are asked to do; each leaves what it found."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.training.lossy_exchange import (
    DemoReplicator,
    ElementReplicator,
    FullReplicator,
    ParameterAverager,
    Replicator,
    exchange,
)
from autotuner.training.momentum import striding_offsets
from tests.training.replication.lossy_training import EXCHANGES, trained
from tests.trials.joined import joined
from trials.process.task import TaskContext

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


NUM_STEPS = 5
_TRAINED_STEPS = 60
"""Of a training whose loss counts."""


def exchanges(context: TaskContext) -> int:
    """Five steps by every replicator: what came of each, the payload, and what is left."""
    group = joined(context)
    found = {}
    for name, built in REPLICATORS.items():
        replicator = built(tensors(), group)
        steps = []
        for step in range(NUM_STEPS):
            steps.append([one.clone() for one in exchange(replicator, gradients(group.rank(), step))])
        found[name] = {"steps": steps, "payload": replicator.payload_bytes, "state": replicator.state_dict()}
    torch.save(found, context.folder / f"{group.rank()}.pt")
    return 0


def goes_on(context: TaskContext) -> int:
    """Steps by every replicator, of which the last is done by one that was given the other's state."""
    group = joined(context)
    found = {}
    for name, built in REPLICATORS.items():
        first, second = built(tensors(), group), built(tensors(), group)
        for step in range(NUM_STEPS - 1):
            exchange(first, gradients(group.rank(), step))
        second.load_state_dict(first.state_dict())
        found[name] = exchange(second, gradients(group.rank(), NUM_STEPS - 1))
    torch.save(found, context.folder / f"{group.rank()}.pt")
    return 0


def averages(context: TaskContext) -> int:
    """Parameters behind each of four steps that replicas take apart, averaged behind every second of them."""
    group = joined(context)
    held = [one + 1.0 for one in tensors()]
    averager = ParameterAverager(held, group, period=2)
    found = []
    for step in range(4):
        for own, change in zip(held, gradients(group.rank(), step), strict=True):
            own.add_(change)
        was_due = averager.after_step()
        found.append({"parameters": [own.clone() for own in held], "due": was_due, "payload": averager.payload_bytes})
    torch.save(found, context.folder / f"{group.rank()}.pt")
    return 0


def learns(context: TaskContext) -> int:
    """The benchmark's training, shorter, with the exchange that the file ``exchange`` names."""
    exchange = EXCHANGES[(context.folder / "exchange").read_text()]
    found = trained(exchange, context.rank_info.rank, context.folder, seed=0, num_steps=_TRAINED_STEPS)
    torch.save(found, context.folder / f"{context.rank_info.rank}.pt")
    return 0
