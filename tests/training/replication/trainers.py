"""Anybody's trainers on 2 x 2 ranks: plain torch code, with and without a lossy exchange between the replicas."""

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
    exchange_hook,
    local_shards,
)
from tests.trials.joined import joined
from trials.process.task import TaskContext

NUM_STEPS = 4
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
    for name, exchange in exchanges.items():
        parameters = _trained_by_ddp(exchange)
        payload_bytes = 0 if exchange is None else exchange.payload_bytes
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
    for step in range(NUM_STEPS):
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
    averager = ParameterAverager(local_shards(model.parameters()), mesh["replicate"].get_group(), period=NUM_STEPS)
    for step in range(NUM_STEPS):
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
    for step in range(NUM_STEPS):
        _loss(model, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return _whole(model.module)


def _whole(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().clone()
        for name, value in model.named_parameters()
    }
