"""Train a small language model with any exchange of the library: its loss shows what replicas tell each other.

A language model of 0.8 million parameters on 2 x 2 gloo ranks: two replicas, each of which reads a language of its
own, of two FSDP2 shards. Where all replicas read the same, one that is told nothing learns as much, and no exchange can
be told from another. Every exchange trains it from the same first values on the same tokens; the validation loss is
that of both languages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypedDict

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from autotuner.core.model import TransformerSpec
from autotuner.training.lossy_exchange import (
    BuildReplicator,
    DemoReplicator,
    ElementReplicator,
    FullReplicator,
    ReplicatedOptimizer,
)
from autotuner.trials.model.decoder import Decoder

VOCAB_SIZE = 64
_CHANCES = (0.4, 0.3, 0.2, 0.1)
"""Of the four tokens that may follow a token; which four they are is the language."""

_SEQ_LEN, _SEQUENCES = 64, 4
"""Tokens of a sequence, and sequences that a rank reads per step: 1,024 tokens per step in all."""
_LEARNING_RATE = 3e-3
"""The best of 3e-4, 1e-3 and 3e-3 for AdamW, and of the last two for signs."""
_VALIDATION_SEQUENCES = 64
_SEED_OF_VALIDATION = 1_000_000
"""Beyond the seeds of all steps."""

MODEL = TransformerSpec(
    name="0.8M",
    num_layers=4,
    hidden_size=128,
    num_heads=4,
    num_kv_heads=4,
    head_dim=32,
    ffn_size=344,
    vocab_size=VOCAB_SIZE,
)


Build = Callable[[dist.ProcessGroup], BuildReplicator]

EXCHANGES: dict[str, tuple[Build | None, bool]] = {
    "full": (lambda group: partial(FullReplicator, group=group), False),
    "none": (None, False),
    "demo 1/16": (lambda group: partial(DemoReplicator, group=group, top_k=4), True),
    "random 1/16": (lambda group: partial(ElementReplicator, group=group), True),
}
"""The replicator for a group, if replicas tell each other anything, and whether SGD follows its signs; else AdamW does
what was exchanged."""


class Training(TypedDict):
    """What a rank knows of a training when it is over."""

    validation_loss: float
    """Of both languages, in nats, the mean over replicas."""
    payload_bytes: int
    """What the rank contributed in all steps."""


def trained(exchange: str, rank: int, folder: Path, *, num_steps: int) -> Training:
    """Train one of four ranks, of which two and two are a replica."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(str(folder / "store"), 4), rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model, (build, is_signed) = _sharded_model(mesh), EXCHANGES[exchange]
    kind = torch.optim.SGD if is_signed else torch.optim.AdamW
    optimizer: Optimizer = kind(model.parameters(), lr=_LEARNING_RATE)
    if build is not None:
        optimizer = ReplicatedOptimizer(optimizer, build(mesh["replicate"].get_group()), is_signed=is_signed)
    # ten steps up, then straight down to a tenth: alike for all
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10) * (1.0 - 0.9 * step / num_steps))
    payload_bytes = 0
    for step in range(num_steps):
        # both ranks of a replica read its language, each other sequences of it
        tokens = sequences(rank // 2, _SEQUENCES, _SEQ_LEN, step * 2 + rank % 2)
        _loss(model, tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if isinstance(optimizer, ReplicatedOptimizer):
            payload_bytes += optimizer.replicator.payload_bytes
    loss = _validation_loss(model)
    dist.all_reduce(loss)
    return Training(validation_loss=loss.item() / 4, payload_bytes=payload_bytes)


def _sharded_model(mesh: DeviceMesh) -> nn.Module:
    torch.manual_seed(0)
    model = Decoder(MODEL, seq_len=_SEQ_LEN, layers=range(MODEL.num_layers))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)  # GPT-2's, as in trials
    fully_shard(model, mesh=mesh["shard"])
    return model


def _loss(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def _validation_loss(model: nn.Module) -> Tensor:
    losses = [_loss(model, sequences(which, _VALIDATION_SEQUENCES, _SEQ_LEN, _SEED_OF_VALIDATION)) for which in (0, 1)]
    return torch.stack(losses).mean()


def sequences(language: int, num_sequences: int, seq_len: int, seed: int) -> Tensor:
    """Tokens of shape ``[num_sequences, seq_len + 1]``, always the same for the same numbers."""
    followers = _followers(language)
    generator = torch.Generator().manual_seed(1_000_003 * seed + language)
    chosen = torch.multinomial(torch.tensor(_CHANCES), num_sequences * seq_len, replacement=True, generator=generator)
    tokens = torch.empty(num_sequences, seq_len + 1, dtype=torch.long)
    tokens[:, 0] = torch.randint(VOCAB_SIZE, (num_sequences,), generator=generator)
    for position, choice in enumerate(chosen.view(num_sequences, seq_len).T):
        tokens[:, position + 1] = followers[tokens[:, position], choice]
    return tokens


def _followers(language: int) -> Tensor:
    """The tokens that may follow each token, ``[VOCAB_SIZE, 4]``, likeliest first."""
    generator = torch.Generator().manual_seed(language)
    return torch.stack([torch.randperm(VOCAB_SIZE, generator=generator) for _ in _CHANCES], dim=1)
