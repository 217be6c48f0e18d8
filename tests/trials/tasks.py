"""What a forked rank of the tests' fork server can be asked to do.

The fork server imports this module once, and with it the libraries that only some trials need: a second of each rank.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytorch_optimizer  # noqa: F401
import torch
import torch._inductor.compile_fx
import torchao.float8  # noqa: F401
from torch import Tensor, nn
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name
from torch.distributed.tensor import DTensor

from autotuner.core import codec
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import TrialSpec
from autotuner.training.pipelines.standby import Standby
from autotuner.trials.checkpoint import Checkpoints
from autotuner.trials.distributed.context import context_part
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.parallelize import parallel_stages
from autotuner.trials.distributed.pipeline import start_standby
from autotuner.trials.job.attempt import attempt
from autotuner.trials.measurement.measure import Stopwatch
from autotuner.trials.process.task import TaskContext
from autotuner.trials.rank import RankInfo, Reporter, device_of, join_process_group
from autotuner.trials.step.data import Batch, batch
from autotuner.trials.step.step import Step, build_step
from tests.builders import minds_nodes
from tests.patience import PATIENCE_S


def run_trial(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """The trial itself, as ``python -m autotuner.trials`` runs it."""
    reporter = Reporter(folder / "reports.jsonl", rank=rank)
    rank_info = _rank_info(rank, world_size, spec.layout)
    return attempt(codec.dumps(spec), reporter, rank_info, store=_store(folder))


def save_training(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """What a training is compared by: gradients, losses, and the whole parameters before and after all steps."""
    rank_of_trial = _Rank.joined(spec, folder, rank, world_size)
    first = rank_of_trial.whole_parameters()
    trained = _trained(rank_of_trial)
    torch.save({**trained, "first": first, "last": rank_of_trial.whole_parameters()}, folder / f"{rank}.pt")
    return 0


def save_gradients(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """Gradients and losses of a training."""
    torch.save(_trained(_Rank.joined(spec, folder, rank, world_size)), folder / f"{rank}.pt")
    return 0


def save_trainings(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """Gradients and losses of trials one after another on the same ranks.

    Each has its own folder: ``0``, which is of ``spec``, and so on.
    """
    rank_of_trial = _Rank.joined(spec, folder, rank, world_size)
    for number in range(len(list(folder.glob("*/spec.json")))):
        own = folder / str(number)
        if number > 0:
            one = codec.loads(TrialSpec, (own / "spec.json").read_text())
            nodes = _rank_info(rank, world_size, one.layout).nodes(one.layout.rank_placement)
            device = torch.device("cpu")
            rank_of_trial = _Rank.on(Grid(one.layout, device, nodes), one, device)
        torch.save(_trained(rank_of_trial), own / f"{rank}.pt")
    return 0


def _trained(rank_of_trial: _Rank) -> dict[str, Any]:
    spec = rank_of_trial.spec
    loss, norm, gradients = rank_of_trial.first_step()
    numbers = range(1, spec.settings.warmup_steps + spec.settings.measured_steps)
    losses = [loss, *(rank_of_trial.step(rank_of_trial.batch(number), number=number) for number in numbers)]
    return {"norm": norm, "gradients": gradients, "losses": losses}


def save_halves(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """The gradients that a single process has of either half of the first batch, as two replicas have of theirs."""
    rank_of_trial = _Rank.joined(spec, folder, rank, world_size)
    halves = [rank_of_trial.gradients_of(rank_of_trial.batch(0, part=(half, 2))) for half in range(2)]
    torch.save(halves, folder / f"{rank}.pt")
    return 0


def save_exchanges(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """The whole parameters behind each step, bytes sent, and parameters of a rank that goes on from a saved state."""
    rank_of_trial = _Rank.joined(spec, folder, rank, world_size)
    numbers = range(spec.settings.measured_steps)
    behind: list[dict[str, Tensor]] = []
    payload_bytes: list[int] = []
    for number in numbers:
        if number == len(numbers) // 2:
            torch.save(rank_of_trial.step.optimizer.state_dict(), folder / f"state of {rank}.pt")
        rank_of_trial.step(rank_of_trial.batch(number), number=number)
        behind.append(rank_of_trial.whole_parameters())
        assert rank_of_trial.step.optimizer.exchange is not None
        payload_bytes.append(rank_of_trial.step.optimizer.exchange.payload_bytes)
    num_elements = sum(shard.values().numel() for shard in rank_of_trial.step.optimizer.shards)
    successor = _Rank.on(rank_of_trial.grid, spec, torch.device("cpu"))
    successor.step.optimizer.load_state_dict(torch.load(folder / f"state of {rank}.pt"))
    for number in numbers[len(numbers) // 2 :]:
        successor.step(successor.batch(number), number=number)
    saved = {
        "behind": behind,
        "payload_bytes": payload_bytes,
        "num_elements": num_elements,
        "of_successor": successor.whole_parameters(),
    }
    torch.save(saved, folder / f"{rank}.pt")
    return 0


def train_and_leave(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """The first half of a training, its losses, and a checkpoint of it."""
    rank_of_trial = _Rank.joined(spec, folder, rank, world_size)
    checkpoints = rank_of_trial.checkpoints()
    losses = [rank_of_trial.step(rank_of_trial.batch(number), number=number) for number in range(_half(spec))]
    transfer = checkpoints.save(folder / "checkpoint")
    torch.save({"losses": losses, "transfer": asdict(transfer)}, folder / f"{rank}.pt")
    return 0


def go_on(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """The second half of a training from the checkpoint that the file ``checkpoint`` names; losses, last parameters."""
    rank_of_trial = _Rank.joined(spec, folder, rank, world_size)
    transfer = rank_of_trial.checkpoints().load(Path((folder / "checkpoint").read_text()))
    numbers = range(_half(spec), spec.settings.measured_steps)
    losses = [rank_of_trial.step(rank_of_trial.batch(number), number=number) for number in numbers]
    saved = {"losses": losses, "last": rank_of_trial.whole_parameters(), "transfer": asdict(transfer)}
    torch.save(saved, folder / f"{rank}.pt")
    return 0


def _half(spec: TrialSpec) -> int:
    return spec.settings.measured_steps // 2


def desert(spec: TrialSpec, folder: Path, rank: int, world_size: int) -> int:
    """A trial whose last rank joins the others and is gone without a word."""
    if rank < world_size - 1:
        return run_trial(spec, folder, rank, world_size)
    rank_info = _rank_info(rank, world_size, spec.layout)
    join_process_group(device_of(spec.device, rank_info), rank_info, timeout_s=PATIENCE_S, store=_store(folder))
    Grid(spec.layout, torch.device("cpu"))
    os._exit(0)


TASKS: dict[str, Callable[[TrialSpec, Path, int, int], int]] = {
    "trial": run_trial,
    "training": save_training,
    "gradients": save_gradients,
    "trainings": save_trainings,
    "halves": save_halves,
    "exchanges": save_exchanges,
    "deserter": desert,
    "leaving": train_and_leave,
    "going on": go_on,
}


def perform(context: TaskContext) -> int:
    """The task that the file ``task`` names, on the trial of ``spec.json``."""
    spec = codec.loads(TrialSpec, (context.folder / "spec.json").read_text())
    task = TASKS[(context.folder / "task").read_text()]
    return task(spec, context.folder, context.rank_info.rank, context.rank_info.world_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """A rank of a trial, built and not yet trained."""

    spec: TrialSpec
    grid: Grid
    step: Step
    parameters: dict[str, nn.Parameter]
    stages: tuple[nn.Module, ...]

    def checkpoints(self) -> Checkpoints:
        """What saves this training and loads it, to be asked for before the first step; not of every optimizer."""
        return Checkpoints(self.spec, self.stages, self.step.optimizer, self.grid)

    @classmethod
    def joined(cls, spec: TrialSpec, folder: Path, rank: int, world_size: int) -> _Rank:
        torch.set_num_threads(1)
        placement = spec.layout.rank_placement
        rank_info = _rank_info(rank, world_size, spec.layout).placed(placement)
        device = device_of(spec.device, rank_info)
        store = _store(folder)
        standby = start_standby(spec, rank_info.rank, device, store)
        join_process_group(device, rank_info, timeout_s=PATIENCE_S, store=store)
        return cls.on(Grid(spec.layout, device, rank_info.nodes(placement)), spec, device, standby)

    @classmethod
    def on(cls, grid: Grid, spec: TrialSpec, device: torch.device, standby: Standby | None = None) -> _Rank:
        """With the first values, whatever was trained on the grid before."""
        stages = parallel_stages(spec, grid, device)
        step = build_step(spec, stages, grid, Stopwatch(device), standby=standby)
        return cls(
            spec=spec,
            grid=grid,
            step=step,
            stages=stages,
            parameters={_whole_name(name, spec): value for stage in stages for name, value in stage.named_parameters()},
        )

    def batch(self, number: int, *, part: tuple[int, int] | None = None) -> Batch:
        """This rank's part of a step's batch, or one of several equal parts."""
        index, spec = self.grid.data_parallel_rank, self.spec
        if part is not None:
            index, num_parts = part
            spec = replace(spec, layout=replace(spec.layout, data_parallel_replicate_degree=num_parts))
        return batch(
            spec,
            step=number,
            data_parallel_rank=index,
            part=context_part(self.grid),
            device=torch.device("cpu"),
        )

    def first_step(self) -> tuple[float, float, dict[str, Tensor]]:
        """Train one step; its loss, the norm of the whole model's gradient, and the gradients as ``whole_parameters``.

        A gradient is brought together the way that new values are: it is written into the parameter, which then gets
        its own values back.
        """
        replica_loss = self.step.gradients(self.batch(0))
        gradients = self._whole_gradients()
        norm = float(self.step.optimizer.gradient_norm())
        self.step.optimizer.step()
        return self.step.global_loss(replica_loss), norm, gradients

    def gradients_of(self, own_batch: Batch) -> dict[str, Tensor]:
        """What a batch makes of the gradients, without an update."""
        self.step.gradients(own_batch)
        return self._whole_gradients()

    def _whole_gradients(self) -> dict[str, Tensor]:
        optimizer = self.step.optimizer
        values = [shard.values().clone() for shard in optimizer.shards]
        for shard, gradient in zip(optimizer.shards, optimizer.gradients, strict=True):
            shard.write(gradient)
        gradients = self.whole_parameters()
        for shard, value in zip(optimizer.shards, values, strict=True):
            shard.write(value)
        return gradients

    def whole_parameters(self) -> dict[str, Tensor]:
        """The parameters of this rank's stages, brought together from all ranks, by their names in the whole model."""
        return {name: _whole(parameter).clone() for name, parameter in self.parameters.items()}


def _rank_info(rank: int, world_size: int, layout: Layout) -> RankInfo:
    """A rank on this host, which plays two nodes where the layout cares for nodes."""
    ranks_per_node = world_size // 2 if minds_nodes(layout) else None
    return RankInfo(
        rank=rank,
        world_size=world_size,
        local_rank=rank,
        local_world_size=world_size,
        ranks_per_node=ranks_per_node,
    )


def _store(folder: Path) -> Any:
    return FileStore(str(folder / "store"))


def _whole_name(name: str, spec: TrialSpec) -> str:
    name = name.removeprefix("module.").replace("_checkpoint_wrapped_module.", "")
    return "embedding.weight" if name == "output.weight" and spec.model.tied_embeddings else name


def _whole(parameter: nn.Parameter) -> Tensor:
    value = parameter.detach()
    # what DDP reduces under tensor parallelism is a plain tensor, a part of a DTensor
    spec = getattr(parameter, "_st_info", None)
    if spec is not None:
        value = DTensor.from_local(value, spec.mesh, spec.placements, shape=spec.shape, stride=spec.stride)
    return value.full_tensor() if isinstance(value, DTensor) else value
