"""Gradients that are clipped before their reduction, without the service:

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 examples/clipping.py --clip bucket

Each replica clips its own gradient, bucket by bucket as they fill, whole, or not before the reduction. The last line
says how much of the gradients was reduced while the backward pass still ran. docs/explanation/batches.md explains it.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.training.clipping import average, clip_buckets, clip_replicas

MAX_NORM, WIDTH, LAYERS = 0.1, 256, 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clip", choices=("post", "pre", "bucket"), default="bucket")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    torch.manual_seed(0)
    module = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())))
    model = DistributedDataParallel(module, bucket_cap_mb=0.25)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if arguments.clip == "post":
        overlap = average(model)
    elif arguments.clip == "pre":
        overlap = clip_replicas(model, MAX_NORM)
    else:
        overlap = clip_buckets(model, MAX_NORM)

    torch.manual_seed(1 + dist.get_rank())  # each replica has data of its own
    inputs, targets = torch.randn(64, WIDTH), torch.randn(64, WIDTH)
    loss = torch.zeros(())
    for _ in range(arguments.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        if arguments.clip == "post":
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.4f}, {overlap.share:.0%} of the gradients reduced under the backward pass")
    dist.barrier()  # so that no thread of gloo still holds a callback of the last step when the interpreter ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
