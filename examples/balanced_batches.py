"""Sequences of unequal lengths, dealt evenly to ranks and packed without padding, without the service:

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/balanced_batches.py --balance stratified_snake

Every rank trains a small decoder under DDP. `--balance none` reads the same batches as they come: the losses are the
same but for rounding, and ranks wait for the one with the longest sequences. docs/explanation/batches.md explains it.
"""

from __future__ import annotations

import argparse
import time
from random import Random

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from autotuner.core.choices import BatchBalance
from autotuner.training.batches import (
    NO_LABEL,
    Assignment,
    BalancedBatchSampler,
    Documents,
    attend_by_document,
    pack,
    positions_in,
    tokens_per_rank,
)

VOCAB, WIDTH, HEADS, LAYERS, LONGEST = 256, 128, 4, 2, 256


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads_first = functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
    )
    return heads_first.transpose(1, 2)


class Texts(Dataset[Tensor]):
    """Sequences of random tokens, most of them short."""

    def __init__(self, num_sequences: int) -> None:
        draw = Random(0)
        self.lengths = [min(LONGEST, 8 + int(draw.expovariate(1 / 50))) for _ in range(num_sequences)]

    def __getitem__(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randint(VOCAB, (self.lengths[index] + 1,), generator=generator)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, documents: Documents) -> Tensor:
        q, k, v = self.query_key_value(self.norm(x)).unflatten(-1, (3, HEADS, -1)).unbind(2)
        x = x + self.output(attend_by_document(attend, q, k, v, documents).flatten(2))  # each to itself
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens: Tensor, documents: Documents) -> Tensor:
        x = self.embedding(tokens) + self.positions(positions_in(documents))  # positions begin anew with each
        for block in self.blocks:
            x = block(x, documents)
        return self.output(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--balance", choices=[str(one) for one in BatchBalance], default="stratified_snake")
    parser.add_argument("--batch-size", type=int, default=8, help="sequences per rank")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    # 1. batches of this rank, dealt by length
    texts = Texts(2000)
    balance = next(one for one in BatchBalance if str(one) == arguments.balance)
    assignment = Assignment(num_ranks=num_ranks, balance=balance, num_dealing_ranks=num_ranks)
    sampler = BalancedBatchSampler(texts.lengths, batch_size=arguments.batch_size, assignment=assignment, rank=rank)

    # 2. packed into one row each
    loader: DataLoader[Tensor] = DataLoader(texts, batch_sampler=sampler, collate_fn=pack)

    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batch in zip(range(arguments.steps), loader, strict=False):
        dist.barrier()
        began_s = time.perf_counter()
        # 3. a sum over this rank's tokens over what all ranks have on average: DDP's mean is that of all tokens
        logits = model(batch.tokens_BS, batch.documents)
        total = functional.cross_entropy(
            logits.flatten(0, 1), batch.labels_BS.flatten(), ignore_index=NO_LABEL, reduction="sum"
        )
        loss = total / tokens_per_rank(batch.labels_BS)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        totals = torch.tensor([loss.item() / num_ranks, float(batch.num_tokens)])
        most = totals[1:].clone()
        dist.all_reduce(totals)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        if rank == 0:
            took_ms = 1e3 * (time.perf_counter() - began_s)
            imbalance = most.item() * num_ranks / totals[1].item() - 1
            print(f"step {step:2} {took_ms:6.1f} ms  imbalance {imbalance:6.1%}  loss {totals[0]:.4f}", flush=True)
    dist.barrier()  # so that no thread of gloo still holds a callback of the last step when the interpreter ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
