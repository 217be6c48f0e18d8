"""Any optimizer of torch with a lossy exchange in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from autotuner.training.replication.replicator import BuildReplicator, exchanged

# What of tensors and their gradients this rank holds itself.


def local_part(tensor: Tensor) -> Tensor:
    """The tensor, or this rank's shard of it, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_parts(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This rank's shards of parameters, in the same memory."""
    return [local_part(tensor.detach()) for tensor in tensors]


def local_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """This rank's shards of the gradients, in the same memory; a parameter without one is given zeros."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(local_part(parameter.grad))
    return gradients


# Any optimizer of torch, with a lossy exchange in front of it.


class ReplicatedOptimizer(Optimizer):
    """Exchanges each replica's own gradients as a replicator does, then steps the base optimizer by what comes of it.

    Nobody else may average gradients between replicas: give FSDP2 the mesh of one replica's shards alone, and wrap
    nothing in DistributedDataParallel. All replicas begin with the same parameters, and keep the same.

    Attributes:
        base: The optimizer that updates; its groups and state are this one's.
        replicator: Holds what was not sent yet.
    """

    def __init__(self, base: Optimizer, build: BuildReplicator, *, is_signed: bool = False) -> None:
        """Around a base optimizer; with ``is_signed`` it is given signs, by which ``torch.optim.SGD`` descends."""
        # as torch's own wrappers of optimizers do: all that Optimizer would set up is the base's
        self.base = base
        self.param_groups = base.param_groups
        self.defaults = base.defaults
        self.replicator = build(local_parts(self._parameters()))
        self._is_signed = is_signed

    @property
    def state(self) -> Any:  # type: ignore[override]  # an attribute in torch, which its own wrappers override too
        """The base optimizer's."""
        return self.base.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Exchange, then update; the closure's loss, where one is given to leave the gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = local_gradients(self._parameters())
        for gradient, agreed in zip(gradients, exchanged(self.replicator, gradients), strict=True):
            gradient.copy_(agreed.sign() if self._is_signed else agreed)
        self.base.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.base.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The base optimizer's state, and what this replica has not sent; each replica saves its own."""
        return {"base": self.base.state_dict(), "replicator": self.replicator.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from both."""
        self.base.load_state_dict(state_dict["base"])
        self.param_groups = self.base.param_groups
        self.replicator.load_state_dict(state_dict["replicator"])

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]
