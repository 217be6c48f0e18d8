"""FSDP2's collectives in our own hands: gathers, reduce-scatters, and what replicas of shards sum."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from trials.collectives.communicator import Communicator


class _Allocates:
    """Takes memory where torch takes it."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Room for a collective's input or output."""
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Allocates):
    """A ``torch.distributed.fsdp`` ``AllGather``; the group that it is handed is the communicator's own."""

    def __init__(self, shards: Communicator) -> None:
        self._shards = shards

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        del group, async_op
        self._shards.all_gather(output_tensor, input_tensor).wait()


class _ReduceScatter(_Allocates):
    """A ``torch.distributed.fsdp`` ``ReduceScatter``, of sums alone."""

    def __init__(self, shards: Communicator) -> None:
        self._shards = shards

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> None:
        del group, async_op
        assert op == dist.ReduceOp.SUM, op
        self._shards.reduce_scatter(output_tensor, input_tensor).wait()


def communicate_by(module: FSDPModule, shards: Communicator, replicas: Communicator | None) -> None:
    """Let a module that is sharded over an axis gather and reduce by a communicator, and sum over its replicas.

    A mean over shards is a sum that FSDP divides, and what replicas sum is divided before. FSDP waits for each
    collective where it starts it, on the stream that it starts it from, as it does for its own.
    """
    module.set_custom_all_gather(_AllGather(shards))  # type: ignore[arg-type]  # torch asks for a subclass of its own
    module.set_custom_reduce_scatter(_ReduceScatter(shards))  # type: ignore[arg-type]
    module.set_force_sum_reduction_for_comms(enable=True)
    if replicas is not None:
        module.set_all_reduce_hook(partial(_average, replicas))


def _average(replicas: Communicator, reduced: Tensor) -> None:
    reduced /= replicas.size
    replicas.all_reduce(reduced).wait()
