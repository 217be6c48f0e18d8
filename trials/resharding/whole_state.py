"""WholeState: what an optimizer remembers, by names of the whole model, each value as a part of a whole tensor.

Names and whole tensors are the same in every layout, so that one layout can read what another wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trials.training.optimizer import ShardedOptimizer

MASTERS = "masters"
MOMENTS = ("exp_avg", "exp_avg_sq")
"""What AdamW keeps of each element, as torch calls it; sign descent keeps nothing."""

_WRAPPERS = ("module.", "_checkpoint_wrapped_module.")
"""What DDP and recomputation add to names."""


class WholeState:
    """Reads and writes what this rank's AdamW remembers, or sign descent, which keeps no moments.

    Args:
        stages: This rank's stages, built and not yet trained: FSDP hides its parameters while they are gathered.
        optimizer: Of these stages.
        ties: Whether the model's vocabulary table is tied.

    Attributes:
        kinds: What is kept of each parameter.
    """

    def __init__(self, stages: Sequence[nn.Module], optimizer: ShardedOptimizer, *, ties: bool) -> None:
        self._optimizer = optimizer
        self._names = {
            parameter: _whole_name(name, ties=ties) for stage in stages for name, parameter in stage.named_parameters()
        }
        has_moments = any(True for _ in _step_numbers(optimizer.state_dict()))
        self.kinds = (MASTERS, *MOMENTS) if has_moments else (MASTERS,)

    def read(self) -> dict[str, Tensor]:
        """Every value by kind and name, ``masters.layers.0.mlp.up.weight``: a DTensor where other ranks hold more."""
        state = self._optimizer.state_dict()
        return {
            f"{kind}.{self._names[parameter]}": _part_of_whole(parameter, values)
            for kind in self.kinds
            for index, shard in enumerate(self._optimizer.shards)
            for parameter, values in zip(shard.parameters, shard.held(_values(state, kind, index)), strict=True)
        }

    def write(self, whole: dict[str, Tensor], num_steps: int) -> None:
        """Have the optimizer go on from such values, behind so many steps; kinds that are missing stay as they are."""
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
    """AdamW's own count of steps, of each master."""
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
