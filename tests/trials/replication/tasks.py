"""What replicas are asked to do; each leaves what it found."""

from __future__ import annotations

import torch

from bench.lossy_convergence import EXCHANGES, trained
from tests.trials.joined import joined
from tests.trials.replication.replicators import REPLICATORS, gradients, tensors
from trials.process.task import TaskContext
from trials.replication.averaging import ParameterAverager
from trials.replication.replicator import exchanged

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
            steps.append([one.clone() for one in exchanged(replicator, gradients(group.rank(), step))])
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
            exchanged(first, gradients(group.rank(), step))
        second.load_state_dict(first.state_dict())
        found[name] = exchanged(second, gradients(group.rank(), NUM_STEPS - 1))
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
