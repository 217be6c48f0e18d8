"""Train a small language model with any exchange of the library: its loss shows what replicas tell each other.

A language model of 0.8 million parameters on 2 x 2 gloo ranks: two replicas, each of which reads a language of its
own, of two FSDP2 shards. Where all replicas read the same, one that is told nothing learns as much, and no exchange can
be told from another. Every exchange trains it from the same first values on the same tokens; the validation loss is
that of both languages.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
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
    ParameterAverager,
    ReplicatedOptimizer,
    local_shards,
)
from autotuner.training.momentum import striding_offsets
from trials.model.decoder import Decoder

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A way to train replicas."""

    build: Callable[[dist.ProcessGroup], BuildReplicator] | None = None
    """A replicator for a group; None: replicas tell each other nothing in a step."""
    is_signed: bool = False
    """Parameters follow the sign by SGD; else AdamW follows what was exchanged."""
    period: int | None = None
    """Steps after which parameters are averaged; None: never."""


EXCHANGES = {
    "full": Exchange(build=lambda group: partial(FullReplicator, group=group)),
    "none": Exchange(),
    "demo 1/16": Exchange(build=lambda group: partial(DemoReplicator, group=group, top_k=4), is_signed=True),
    "demo 1/32": Exchange(build=lambda group: partial(DemoReplicator, group=group, top_k=2), is_signed=True),
    "random 1/16": Exchange(build=lambda group: partial(ElementReplicator, group=group), is_signed=True),
    "striding 1/16": Exchange(
        build=lambda group: partial(ElementReplicator, group=group, offsets=striding_offsets), is_signed=True
    ),
    "diloco 1/16": Exchange(period=16),
    "demo 1/16, AdamW": Exchange(build=lambda group: partial(DemoReplicator, group=group, top_k=4)),
    "random 1/16, AdamW": Exchange(build=lambda group: partial(ElementReplicator, group=group)),
}
"""What is compared; ``full`` and ``none`` first, which the others are held to."""


class Training(TypedDict):
    """What a rank knows of a training when it is over."""

    validation_loss: float
    """Of both languages, in nats, the mean over replicas."""
    step_s: float
    """Median."""
    payload_bytes: int
    """What the rank contributed in all steps."""


def trained(
    exchange: Exchange, rank: int, folder: Path, *, seed: int, num_steps: int, learning_rate: float = _LEARNING_RATE
) -> Training:
    """Train one of four ranks, of which two and two are a replica."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(str(folder / "store"), 4), rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = _sharded_model(mesh, seed)
    trainer = _Trainer(exchange, model, mesh["replicate"].get_group(), learning_rate, num_steps)
    step_times_s = []
    for step in range(num_steps):
        dist.barrier()
        began_s = time.monotonic()
        # both ranks of a replica read its language, each other sequences of it
        trainer.step(sequences(rank // 2, _SEQUENCES, _SEQ_LEN, (1000 * seed + step) * 2 + rank % 2))
        step_times_s.append(time.monotonic() - began_s)
    loss = _validation_loss(model)
    dist.all_reduce(loss)
    return Training(validation_loss=loss.item() / 4, step_s=median(step_times_s), payload_bytes=trainer.payload_bytes)


class _Trainer:
    """A rank's optimizer, and what it sent."""

    payload_bytes = 0

    def __init__(
        self, exchange: Exchange, model: nn.Module, replicas: dist.ProcessGroup, learning_rate: float, num_steps: int
    ) -> None:
        self._model = model
        parameters = list(model.parameters())
        base: Optimizer = (
            torch.optim.SGD(parameters, lr=learning_rate)
            if exchange.is_signed
            else torch.optim.AdamW(parameters, lr=learning_rate)
        )
        self._replicated = (
            None
            if exchange.build is None
            else ReplicatedOptimizer(base, exchange.build(replicas), is_signed=exchange.is_signed)
        )
        self._optimizer = self._replicated or base
        self._averager = (
            None
            if exchange.period is None
            else ParameterAverager(local_shards(parameters), replicas, period=exchange.period)
        )
        # ten steps up, then straight down to a tenth: alike for all
        self._scheduler = LambdaLR(
            self._optimizer, lambda step: min(1.0, (step + 1) / 10) * (1.0 - 0.9 * step / num_steps)
        )

    def step(self, tokens: Tensor) -> None:
        """Train on a batch."""
        _loss(self._model, tokens).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._scheduler.step()
        if self._replicated is not None:
            self.payload_bytes += self._replicated.replicator.payload_bytes
        if self._averager is not None:
            self._averager.after_step()
            self.payload_bytes += self._averager.payload_bytes


def _sharded_model(mesh: DeviceMesh, seed: int) -> nn.Module:
    torch.manual_seed(seed)
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
