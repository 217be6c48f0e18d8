"""Replicators of every kind for the same few tensors, and what replicas are asked to do; each leaves what it found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from autotuner.training.lossy_exchange import (
    BucketExchange,
    DemoReplicator,
    ElementReplicator,
    FullReplicator,
    ParameterAverager,
    ReplicatedOptimizer,
    Replicator,
    exchange,
    exchange_hook,
    local_shards,
)
from autotuner.training.momentum import striding_offsets
from autotuner.trials.process.task import TaskContext
from tests.training.lossy_training import trained
from tests.trials.joined import joined

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
    """A training with the exchange that the file ``exchange`` names."""
    exchange = (context.folder / "exchange").read_text()
    found = trained(exchange, context.rank_info.rank, context.folder, num_steps=_TRAINED_STEPS)
    torch.save(found, context.folder / f"{context.rank_info.rank}.pt")
    return 0


_TRAINER_STEPS = 4
_WIDTH = 20
"""No multiple of the chunk of 16: layers and their shards end in half-filled chunks."""


def fsdp(context: TaskContext) -> int:
    """Shards of two ranks, replicas of two: what each training left of the whole parameters, by name."""
    mesh = _mesh_of(context)
    replicas = mesh["replicate"].get_group()
    every = partial(DemoReplicator, group=replicas, chunk=16, top_k=16)
    found = {
        "hybrid": _trained(mesh, _adamw, is_hybrid=True),
        "all of demo": _trained(mesh, lambda model: ReplicatedOptimizer(_adamw(model), every)),
        "demo": _trained(mesh, _few_components(replicas)),
        "demo, saved and loaded": _trained(mesh, _few_components(replicas), is_saved=True),
        "random": _trained(mesh, _few_elements(replicas)),
        "averaged": _averaged(mesh),
    }
    torch.save(found, context.folder / f"{dist.get_rank()}.pt")
    return 0


def ddp(context: TaskContext) -> int:
    """Replicas of four ranks: what trainings with hooks left of the parameters, and what was sent in the last step."""
    everybody = joined(context)
    few = partial(DemoReplicator, group=everybody, chunk=16, top_k=2)
    exchanges = {
        "plain": None,
        "full": BucketExchange(partial(FullReplicator, group=everybody), everybody),
        "all of demo": BucketExchange(partial(DemoReplicator, group=everybody, chunk=16, top_k=16), everybody),
        "demo": BucketExchange(few, everybody, is_signed=True),
    }
    found = {}
    for name, hook in exchanges.items():
        parameters = _trained_by_ddp(hook)
        payload_bytes = 0 if hook is None else hook.payload_bytes
        found[name] = {"parameters": parameters, "payload": payload_bytes}
    torch.save(found, context.folder / f"{dist.get_rank()}.pt")
    return 0


def _mesh_of(context: TaskContext) -> DeviceMesh:
    joined(context)
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))


def small_model() -> nn.Sequential:
    """The same layers on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, _WIDTH))


def _adamw(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def _few_components(group: dist.ProcessGroup) -> Callable[[nn.Module], Optimizer]:
    build = partial(DemoReplicator, group=group, chunk=16, top_k=2)
    return lambda model: ReplicatedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-2), build, is_signed=True)


def _few_elements(group: dist.ProcessGroup) -> Callable[[nn.Module], Optimizer]:
    build = partial(ElementReplicator, group=group, sparsity=8)
    return lambda model: ReplicatedOptimizer(_adamw(model), build)


def _loss(model: nn.Module, step: int) -> Tensor:
    """Every rank sees a batch of its own."""
    generator = torch.Generator().manual_seed(100 * dist.get_rank() + step)
    inputs, targets = torch.randn(2, 8, _WIDTH, generator=generator)
    return nn.functional.mse_loss(model(inputs), targets)


def _sharded(mesh: DeviceMesh, *, is_hybrid: bool = False) -> nn.Module:
    model = small_model()
    fully_shard(model, mesh=mesh if is_hybrid else mesh["shard"])
    return model


def _trained(
    mesh: DeviceMesh, build: Callable[[nn.Module], Optimizer], *, is_hybrid: bool = False, is_saved: bool = False
) -> dict[str, Any]:
    model = _sharded(mesh, is_hybrid=is_hybrid)
    optimizer = build(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    for step in range(_TRAINER_STEPS):
        if is_saved and step == 2:
            saved, optimizer = optimizer.state_dict(), build(model)
            optimizer.load_state_dict(saved)
            scheduler.optimizer = optimizer
        _loss(model, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    return _whole(model)


def _averaged(mesh: DeviceMesh) -> dict[str, Any]:
    model = _sharded(mesh)
    optimizer = _adamw(model)
    averager = ParameterAverager(local_shards(model.parameters()), mesh["replicate"].get_group(), period=_TRAINER_STEPS)
    for step in range(_TRAINER_STEPS):
        _loss(model, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        averager.after_step()
    return _whole(model)


def _trained_by_ddp(exchange: BucketExchange | None) -> dict[str, Any]:
    # buckets of one layer each: a bucket is 1,680 bytes, and no layer fits into what another leaves
    model = DistributedDataParallel(small_model(), bucket_cap_mb=0.001)
    if exchange is not None:
        model.register_comm_hook(exchange, exchange_hook)
    is_signed = exchange is not None and exchange.is_signed
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2) if is_signed else _adamw(model)
    for step in range(_TRAINER_STEPS):
        _loss(model, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return _whole(model.module)


def _whole(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().clone()
        for name, value in model.named_parameters()
    }
