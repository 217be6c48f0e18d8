"""A plain model, the ways to clip its gradients, and what two replicas of it find in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.training.clipping import Overlap, average, clip_buckets, clip_replicas
from autotuner.trials.process.task import TaskContext
from tests.trials.joined import joined

NUM_LAYERS, WIDTH = 8, 64
A_LAYER_MIB = 4 * WIDTH * WIDTH / 2**20
NUM_STEPS = 3
"""The first two form DDP's buckets."""
MAX_NORM, FAR_ABOVE = 0.01, 1e6
"""Below what every layer's gradient has in these steps, and above what all have."""

Hook = Callable[[DistributedDataParallel], Overlap]
WAYS: Mapping[str, tuple[float, Hook]] = {
    "post": (A_LAYER_MIB, average),
    "post in bf16": (A_LAYER_MIB, lambda model: average(model, dtype=torch.bfloat16)),
    "pre": (A_LAYER_MIB, lambda model: clip_replicas(model, MAX_NORM)),
    "bucket": (A_LAYER_MIB, lambda model: clip_buckets(model, MAX_NORM)),
    "bucket of more": (A_LAYER_MIB, lambda model: clip_buckets(model, MAX_NORM, num_buckets=4 * NUM_LAYERS)),
    "one bucket": (100 * A_LAYER_MIB, lambda model: clip_buckets(model, MAX_NORM)),
    "unclipped pre": (A_LAYER_MIB, lambda model: clip_replicas(model, FAR_ABOVE)),
    "unclipped bucket": (A_LAYER_MIB, lambda model: clip_buckets(model, FAR_ABOVE)),
}
"""Size of a bucket in MiB, which is that of a layer or of more than all, and hook."""


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = ((nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh()) for _ in range(NUM_LAYERS))
    return nn.Sequential(*(one for layer in layers for one in layer))


def own_gradients(rank: int, step: int, module: nn.Module) -> list[Tensor]:
    """What a replica's own batch of a step says, by itself."""
    _loss(module, rank, step).backward()  # type: ignore[no-untyped-call]
    found = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    module.zero_grad()
    return found


def train(context: TaskContext) -> int:
    """Steps without an update under each hook; leaves the gradients of every step and the overlap of the last."""
    rank = joined(context).rank()
    found = {}
    for name, (bucket_mib, hook) in WAYS.items():
        replica = DistributedDataParallel(model(), bucket_cap_mb=bucket_mib)
        overlap, steps = hook(replica), []
        for step in range(NUM_STEPS):
            overlap.reset()
            replica.zero_grad()
            _loss(replica, rank, step).backward()  # type: ignore[no-untyped-call]
            steps.append([parameter.grad.clone() for parameter in replica.parameters() if parameter.grad is not None])
        found[name] = {"steps": steps, "share": overlap.share, "bytes": overlap.reduced_bytes}
    torch.save(found, context.folder / f"{rank}.pt")
    return 0


def _loss(module: nn.Module, rank: int, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(16, WIDTH, generator=generator)
    loss: Tensor = module(inputs).square().mean()
    return loss
