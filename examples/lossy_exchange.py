"""Replicas that send each other a sixteenth of what they learn, without the service:

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/lossy_exchange.py --exchange demo

Two replicas of two FSDP2 shards learn a function of which each sees one half, so that neither learns the other half but
by the exchange. docs/explanation/lossy-exchange.md goes through it.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import Optimizer

from autotuner.training.lossy_exchange import (
    BuildReplicator,
    DemoReplicator,
    ElementReplicator,
    FullReplicator,
    ParameterAverager,
    ReplicatedOptimizer,
    local_shards,
)
from autotuner.training.momentum import striding_offsets

WIDTH, ROWS = 32, 64


def batch(half: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points on one side of a plane, and what a fixed network makes of them."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(ROWS, WIDTH, generator=generator)
    inputs[:, 0] = inputs[:, 0].abs() * (1 if half else -1)
    weight = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(half)) / WIDTH**0.5
    return inputs, inputs @ weight


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--exchange", choices=["full", "demo", "random", "striding", "diloco", "none"], default="demo")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    # 1. replicas of shards: FSDP2 is given the shards alone, so that nobody averages gradients between replicas
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicate", "shard"))
    replicas = mesh["replicate"].get_group()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH))
    fully_shard(model, mesh=mesh["shard"])

    # 2. any optimizer of torch, with an exchange in front of it: AdamW takes what came of that for the gradient
    exchanges: dict[str, BuildReplicator] = {
        "full": partial(FullReplicator, group=replicas),
        "demo": partial(DemoReplicator, group=replicas, chunk=64, top_k=4),
        "random": partial(ElementReplicator, group=replicas, sparsity=16),
        "striding": partial(ElementReplicator, group=replicas, sparsity=16, offsets=striding_offsets),
    }
    base = torch.optim.AdamW(model.parameters(), lr=3e-3)
    build = exchanges.get(arguments.exchange)
    optimizer: Optimizer = base if build is None else ReplicatedOptimizer(base, build)

    # 3. or none in a step, and the mean of the parameters every 16 steps
    averager = ParameterAverager(local_shards(model.parameters()), replicas, period=16)

    sent_bytes = 0
    for step in range(arguments.steps):
        inputs, targets = batch(mesh["replicate"].get_local_rank() % 2, 1000 + dist.get_world_size() * step + rank)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if isinstance(optimizer, ReplicatedOptimizer):
            sent_bytes += optimizer.replicator.payload_bytes
        if arguments.exchange == "diloco":
            averager.after_step()
            sent_bytes += averager.payload_bytes

    with torch.no_grad():
        losses = [nn.functional.mse_loss(model(inputs), targets) for inputs, targets in (batch(0, 1), batch(1, 2))]
        mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    if rank == 0:
        a_step_kib = sent_bytes / arguments.steps / 1024
        of_both = mean.item() / dist.get_world_size()
        print(f"{arguments.exchange:8} {a_step_kib:7.2f} KiB per step and rank, loss on both halves {of_both:.4f}")
    dist.barrier()  # so that no thread of gloo still holds a callback of the last step when the interpreter ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
