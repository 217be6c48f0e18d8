"""Gradients summed inside nodes first, then between them, in a training loop of one's own, without the service:

    OMP_NUM_THREADS=1 torchrun --nnodes 2 --nproc-per-node 4 ... examples/two_level_all_reduce.py --hierarchy two_level

Every rank trains a small network under DDP, whose hook is all that changes. On one machine `--ranks-per-node 2` has it
play nodes of two ranks. `--hierarchy flat` sums over all ranks at once: the losses are the same but for rounding.
docs/explanation/networks.md tells what is gained where.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy
from autotuner.core.placement import Nodes
from autotuner.training.clipping import average
from autotuner.training.two_level import communicator_of

WIDTH, BATCH = 256, 16


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hierarchy", default="two_level", choices=[each.label for each in CollectiveHierarchy])
    parser.add_argument("--algorithm", default="auto", choices=["auto", "ring", "tree"])
    parser.add_argument("--ranks-per-node", type=int, default=int(os.environ["LOCAL_WORLD_SIZE"]))
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    if num_ranks % given.ranks_per_node:
        raise SystemExit(f"{num_ranks} ranks are no whole nodes of {given.ranks_per_node}")

    everybody = communicator_of(
        [range(num_ranks)],
        Nodes(num_nodes=num_ranks // given.ranks_per_node, ranks_per_node=given.ranks_per_node),
        hierarchy=next(each for each in CollectiveHierarchy if each.label == given.hierarchy),
        algorithm=next(each for each in CollectiveAlgorithm if each.label == given.algorithm),
        device=device,
    )
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)).to(device)
    model = DistributedDataParallel(network)
    average(model, all_reduce=everybody.all_reduce)  # the only line that a training loop gains
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    data = torch.Generator().manual_seed(rank)
    for step in range(given.steps):
        x = torch.randn(BATCH, WIDTH, generator=data).to(device)
        start = time.monotonic()
        loss = (model(x) - x.roll(1, -1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / num_ranks
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step}  {1e3 * (time.monotonic() - start):6.1f} ms  loss {mean.item():.5f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
