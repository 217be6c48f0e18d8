"""Optimizer shards: the elements of the model that one rank updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trials.distributed.mesh import local_part


class OptimizerShard(Protocol):
    """Elements of the model that one rank updates.

    Attributes:
        num_replicas: Ranks that hold these same elements, this one included, of those that together hold one gradient
            (``Grid.gradient``).
        is_tied: The shard is the tied vocabulary table, and another stage holds it as well.
    """

    num_replicas: int
    is_tied: bool

    def expect_backward_passes(self, num_left: int) -> None:
        """So many backward passes of the step are to come: the reduction may start while the last of them runs."""

    def start_reduction(self) -> None:
        """The last backward pass of a step is done; nothing happens where the reduction has started."""

    def take_gradient(self) -> Tensor:
        """The elements' gradients of the global batch in fp32; the parameters forget theirs."""

    def values(self) -> Tensor:
        """The elements in fp32; the very memory of the parameters where these are fp32."""

    def write(self, values: Tensor) -> None:
        """Give the elements new values, on every rank that computes with them."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """Those whose elements, or some of them, the shard has."""

    def held(self, values: Tensor) -> list[Tensor]:
        """What this rank holds of each parameter, where all shards have such values; a collective."""

    def own(self, held: Sequence[Tensor]) -> Tensor:
        """The shard's values, of those that this rank is to hold of each parameter."""


class ParameterShard:
    """This rank's part of one parameter, whose gradient others reduce: FSDP, DDP, or nobody because none is spread."""

    def __init__(self, parameter: nn.Parameter, *, num_replicas: int, is_tied: bool = False) -> None:
        self.num_replicas = num_replicas
        self.is_tied = is_tied
        self._parameter = parameter

    def expect_backward_passes(self, num_left: int) -> None:
        """Nothing to do: FSDP and DDP start their own reduction."""

    def start_reduction(self) -> None:
        """Nothing to do: FSDP and DDP start their own reduction."""

    def take_gradient(self) -> Tensor:
        """The complete gradient of the part, in fp32; the parameter forgets its own."""
        gradient = complete_gradient(self._parameter).float()
        self._parameter.grad = None
        return gradient

    def values(self) -> Tensor:
        """The part in fp32; the very memory of the parameter where that is fp32."""
        return local_part(self._parameter.detach()).float()

    @torch.no_grad()
    def write(self, values: Tensor) -> None:
        """Give the part new values."""
        held = local_part(self._parameter.detach())
        if held.data_ptr() != values.data_ptr():
            held.copy_(values)

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The only one."""
        return [self._parameter]

    def held(self, values: Tensor) -> list[Tensor]:
        """The values: the shard is all that this rank holds."""
        return [values]

    def own(self, held: Sequence[Tensor]) -> Tensor:
        """The only values."""
        (values,) = held
        return values


def complete_gradient(parameter: nn.Parameter) -> Tensor:
    """This rank's part of the gradient.

    Sums what is still spread: a norm's gradient under sequence parallelism is a part on each tensor rank.
    """
    gradient = parameter.grad
    assert gradient is not None, "every parameter takes part in every step"
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        gradient = gradient.redistribute(placements=parameter.placements)
    return local_part(gradient)


def num_parts(parameter: nn.Parameter) -> int:
    """Into how many different parts the parameter is cut, one on each rank of a mesh."""
    # what DDP reduces under tensor parallelism is a plain tensor that remembers what part of a DTensor it was
    spec = parameter if isinstance(parameter, DTensor) else getattr(parameter, "_st_info", None)
    if spec is None:
        return 1
    mesh = spec.device_mesh
    return math.prod(mesh.size(dim) for dim, kind in enumerate(spec.placements) if not kind.is_replicate())
