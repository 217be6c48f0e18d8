"""Checkpoints of a training, from which any layout of the same model can continue.

``torch.distributed.checkpoint`` writes each part once, although several ranks may have copies of it, and lets each rank
read what overlaps its own parts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from autotuner.core.choices import GradientSync
from autotuner.core.errors import InvalidInput
from autotuner.core.measuring import averages_in
from autotuner.core.trial_spec import OptimizerName, TrialSpec
from autotuner.trials.distributed.mesh import Grid, local_part
from autotuner.trials.step.optimizer import ShardedOptimizer

# WholeState: what an optimizer remembers, by names of the whole model, each value as a part of a whole tensor.
#
# Names and whole tensors are the same in every layout, so that one layout can read what another wrote.

MASTERS = "masters"
MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's states of each element, by torch's names; sign descent has none."""

_WRAPPERS = ("module.", "_checkpoint_wrapped_module.")
"""Prefixes that DDP and recomputation add to names."""


class WholeState:
    """Reads and writes the state of this rank's optimizer, in a format that does not depend on the layout.

    The optimizer is AdamW or sign descent. Sign descent keeps no moments.

    Args:
        stages: This rank's pipeline stages, before the first step. (During a step, FSDP hides the parameters.)
        optimizer: The optimizer of these stages.
        ties: True if the embedding and the output projection of the model share one table (tied embeddings).

    Attributes:
        kinds: Names of the tensors that are kept for each parameter, such as the master weights.
    """

    def __init__(self, stages: Sequence[nn.Module], optimizer: ShardedOptimizer, *, ties: bool) -> None:
        self._optimizer = optimizer
        self._names = {
            parameter: _whole_name(name, ties=ties) for stage in stages for name, parameter in stage.named_parameters()
        }
        has_moments = any(True for _ in _step_numbers(optimizer.state_dict()))
        self.kinds = (MASTERS, *MOMENTS) if has_moments else (MASTERS,)

    def read(self) -> dict[str, Tensor]:
        """Return every tensor of the state by its kind and parameter name, such as ``masters.layers.0.mlp.up.weight``.

        A tensor that is split over ranks is returned as a DTensor.
        """
        state = self._optimizer.state_dict()
        return {
            f"{kind}.{self._names[parameter]}": _part_of_whole(parameter, values)
            for kind in self.kinds
            for index, shard in enumerate(self._optimizer.shards)
            for parameter, values in zip(shard.parameters, shard.held(_values(state, kind, index)), strict=True)
        }

    def write(self, whole: dict[str, Tensor], num_steps: int) -> None:
        """Restore a state of the optimizer that ``read`` returned, so that the training continues from this state.

        Args:
            whole: Tensors by kind and parameter name. Kinds that are missing stay unchanged.
            num_steps: Number of training steps that led to the state.
        """
        state = self._optimizer.state_dict()
        kinds = [kind for kind in self.kinds if any(name.startswith(f"{kind}.") for name in whole)]
        for kind in kinds:
            for index, shard in enumerate(self._optimizer.shards):
                held = [_local(whole[f"{kind}.{self._names[parameter]}"]) for parameter in shard.parameters]
                _values(state, kind, index).copy_(shard.own(held))
        state["num_steps"] = num_steps
        if kinds != [MASTERS]:  # moments that begin anew are corrected as in a first step
            for number in _step_numbers(state):
                number.fill_(num_steps)
        self._optimizer.load_state_dict(state)


def _values(state: dict[str, Any], kind: str, index: int) -> Tensor:
    values: Tensor = state["masters"][index] if kind == MASTERS else state["optimizer"]["state"][index][kind]
    return values


def _step_numbers(state: dict[str, Any]) -> Iterator[Tensor]:
    """Return AdamW's step counter of each master parameter."""
    return (of_master["step"] for of_master in state["optimizer"]["state"].values() if "step" in of_master)


def _whole_name(name: str, *, ties: bool) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return "embedding.weight" if name == "output.weight" and ties else name


def _part_of_whole(parameter: nn.Parameter, values: Tensor) -> Tensor:
    if isinstance(parameter, DTensor):
        return DTensor.from_local(
            values,
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )
    # what DDP reduces under tensor parallelism is a plain tensor that remembers of what DTensor it is a part
    if (part := getattr(parameter, "_st_info", None)) is not None:
        return DTensor.from_local(
            values, part.mesh, part.placements, run_check=False, shape=part.shape, stride=part.stride
        )
    return values


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


_PROGRESS = "num_steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A report on a checkpoint that was written or read: its bytes on this rank, its training steps, and the time."""

    num_steps: int
    """Number of optimizer steps that the training had completed."""
    own_bytes: int
    """Bytes of the checkpoint that this rank has, including parts of which other ranks have copies."""
    seconds: float
    """Seconds until every rank was done."""
    kinds: tuple[str, ...]
    """Kinds of values that the checkpoint holds for each parameter."""


class Checkpoints:
    """Saves and loads the checkpoints of a training. A checkpoint can be loaded with any other layout.

    If replicas exchange only a part of their gradients, each replica keeps the rest for later steps. A checkpoint does
    not contain this rest, so it is zero after loading. A layout with sign descent saves no moments; a layout that needs
    moments then begins with zeros.

    Args:
        spec: The specification of the trial.
        stages: This rank's pipeline stages, before the first step.
        optimizer: The optimizer of these stages.
        grid: The grid of ranks, with this rank's place on it.

    Raises:
        InvalidInput: The optimizer keeps a different state from AdamW's, which checkpoints do not support.
    """

    def __init__(self, spec: TrialSpec, stages: Sequence[nn.Module], optimizer: ShardedOptimizer, grid: Grid) -> None:
        if spec.trained_by.name != OptimizerName.ADAMW:
            rule = "must be adamw, because the state of other optimizers cannot be loaded into another layout"
            raise InvalidInput("optimizer.name", spec.trained_by.name, rule, OptimizerName.ADAMW)
        self._spec = spec
        self._optimizer = optimizer
        self._grid = grid
        self._state = WholeState(stages, optimizer, ties=spec.model.tied_embeddings)

    def save(self, folder: Path) -> Transfer:
        """Write a checkpoint to a folder. All ranks must call it at the same time.

        Raises:
            InvalidInput: The replicas average their parameters only every few steps, and the latest step did not
                average them.
        """
        num_steps: int = self._optimizer.state_dict()["num_steps"]
        self._require_one_model(num_steps)
        began = _together()
        whole = self._state.read()
        own_bytes = _num_bytes(whole)
        if not self._is_writer:
            whole = {}
        whole[_PROGRESS] = torch.tensor(num_steps)
        save(whole, storage_writer=FileSystemWriter(folder, sync_files=False))
        return Transfer(num_steps=num_steps, own_bytes=own_bytes, seconds=_together() - began, kinds=self._state.kinds)

    def load(self, folder: Path) -> Transfer:
        """Load the checkpoint in a folder, and continue from it. All ranks must call it at the same time.

        Raises:
            InvalidInput: The checkpoint belongs to another model.
        """
        began = _together()
        saved = FileSystemReader(folder).read_metadata().state_dict_metadata
        whole = {name: value for name, value in self._state.read().items() if _kind(name) in set(map(_kind, saved))}
        if missing := next((name for name in whole if name not in saved), None):
            raise InvalidInput(
                "checkpoint", str(folder), f"has no {missing}, because it is the checkpoint of another model"
            )
        progress: dict[str, Tensor] = {_PROGRESS: torch.tensor(0)}
        load(whole | progress, storage_reader=FileSystemReader(folder))
        num_steps = int(progress[_PROGRESS])
        self._state.write(whole, num_steps)
        kinds = tuple(dict.fromkeys(map(_kind, whole)))
        seconds = _together() - began
        return Transfer(num_steps=num_steps, own_bytes=_num_bytes(whole), seconds=seconds, kinds=kinds)

    @property
    def _is_writer(self) -> bool:
        """Return True if this rank saves its values.

        Replicas that do not sum their gradients may have different moments, so that only those of the first replica are
        saved.
        """
        return self._grid.sums_over_replicas or self._grid.position("dp_replicate") == 0

    def _require_one_model(self, num_steps: int) -> None:
        layout = self._spec.layout
        if layout.gradient_sync != GradientSync.DILOCO or averages_in(num_steps - 1, layout.sync_period):
            return
        rule = (
            f"must be a multiple of {layout.sync_period}, because only at these steps all replicas have the same model"
        )
        raise InvalidInput(
            _PROGRESS, num_steps, rule, layout.sync_period * max(1, round(num_steps / layout.sync_period))
        )


def _kind(name: str) -> str:
    return name.partition(".")[0]


def _num_bytes(whole: dict[str, Tensor]) -> int:
    return sum(local_part(value).nbytes for value in whole.values())


def _together() -> float:
    """Wait until every rank is here, and return the time."""
    dist.barrier()
    return time.perf_counter()
