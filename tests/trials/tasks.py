"""What a forked rank of the tests' zygote can be asked to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name
from torch.distributed.tensor import DTensor

from autotuner.domain import wire
from autotuner.domain.trial import TrialSpec
from trials.build import build_step
from trials.data import batch
from trials.job import attempt
from trials.mesh import Grid
from trials.parallelize import parallel_decoder
from trials.place import Place, device_of, join
from trials.report import Reporter
from trials.stopwatch import Stopwatch

__all__ = ["TASKS"]


def run_trial(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """The trial itself, as ``python -m trials`` runs it."""
    reporter = Reporter(folder / "reports.jsonl", rank=rank)
    return attempt(wire.dumps(spec), reporter, _place(rank, world_size), store=_store(folder, world_size))


def save_gradients(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """The first step's gradients of the whole tensors, by their names in the whole model."""
    torch.set_num_threads(1)
    place = _place(rank, world_size)
    device = device_of(spec.device, place)
    join(device, place, timeout_s=60.0, store=_store(folder, world_size))
    grid = Grid(spec.layout, device)
    model = parallel_decoder(spec, grid, device)
    step = build_step(spec, model, grid, device, Stopwatch(device))
    share = batch(
        spec.workload,
        vocab_size=spec.model.vocab_size,
        seed=spec.seed,
        step=0,
        replica=grid.replica,
        num_replicas=spec.layout.data_parallel_degree,
        device=device,
    )
    parameters = {_whole_name(name): parameter for name, parameter in model.named_parameters()}
    step.gradients(share)
    torch.save({name: _whole_gradient(parameter) for name, parameter in parameters.items()}, folder / f"{rank}.pt")
    return 0


def desert(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """A trial whose last rank joins the others and is gone without a word."""
    if rank < world_size - 1:
        return run_trial(spec, folder, rank, world_size)
    place = _place(rank, world_size)
    join(device_of(spec.device, place), place, timeout_s=60.0, store=_store(folder, world_size))
    Grid(spec.layout, torch.device("cpu"))
    os._exit(0)


TASKS: dict[str, Callable[[TrialSpec, Path, int, int], int]] = {
    "trial": run_trial,
    "gradients": save_gradients,
    "deserter": desert,
}


def _place(rank: int, world_size: int) -> Place:
    return Place(rank=rank, world_size=world_size, local_rank=rank, local_world_size=world_size)


def _store(folder: Path, world_size: int) -> Any:
    return FileStore(str(folder / "store"), world_size)


def _whole_name(name: str) -> str:
    return name.removeprefix("module.").replace("_checkpoint_wrapped_module.", "")


def _whole_gradient(parameter: nn.Parameter) -> Tensor:
    gradient = parameter.grad
    assert gradient is not None
    spec = getattr(
        parameter, "_st_info", None
    )  # what DDP reduces as a plain tensor is a shard under tensor parallelism
    if spec is not None:
        gradient = DTensor.from_local(gradient, spec.mesh, spec.placements, shape=spec.shape, stride=spec.stride)
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
