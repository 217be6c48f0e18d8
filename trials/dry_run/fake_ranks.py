"""A fake rank of a large job, alone in a process without a device: its tensors have shapes and no data.

Collectives return at once and nothing is computed, so a rank of a 70 B model takes a few hundred megabytes here.
Tensors that exist before the fake rank starts keep their data: the mesh finds its place by reading them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives  # its import gives collectives an implementation without values
from torch import Tensor, UntypedStorage
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.futures import Future
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from autotuner.training import clipping
from autotuner.training.communicator import FuturePending

_NUMBER_READ = 1
"""The number that every tensor without data returns when it is read. The pipeline's stages take 1 as a yes in their
vote, it is a finite loss, and dividing by it is harmless."""


@contextmanager
def fake_ranks(rank: int, world_size: int) -> Iterator[None]:
    """Let this process act as one rank of a job with ``world_size`` ranks while the block runs.

    The other ranks are fake.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def without_values() -> Iterator[None]:
    """Create tensors with shapes but without values while the block runs.

    Create the device mesh before the block, because the mesh needs tensors with values.
    """
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        _RealStaysReal(),  # type: ignore[no-untyped-call]  # torch types no mode
        _addresses(),
        _held_while_sent(),
    ):
        yield


@contextmanager
def answered_reducers() -> Iterator[None]:
    """Complete the reduction of DDP's buckets at once while the block runs, since fake ranks never send an answer."""

    def reduced(buffer: Tensor, group: dist.ProcessGroup) -> FuturePending:
        dist.all_reduce(buffer, group=group)
        answer: Future[list[Tensor]] = Future()
        answer.set_result([buffer])
        return FuturePending("all_reduce", answer)

    with mock.patch.object(clipping, "begin_all_reduce", reduced):
        yield


class _RealStaysReal(TorchDispatchMode):  # type: ignore[no-untyped-call]  # nor its making
    """Computes normally with real tensors, and returns a fixed number when a tensor without data is read."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        named = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, named)) if isinstance(leaf, Tensor)]
        if tensors and all(type(tensor) is Tensor for tensor in tensors):
            with unset_fake_temporarily():
                return func(*args, **named)
        if func is torch.ops.aten._local_scalar_dense.default:
            return _NUMBER_READ
        return func(*args, **named)


@contextmanager
def _addresses() -> Iterator[None]:
    """Give tensors without data an address: tensors that share memory have the same one, others a different one."""
    storage_address: Callable[[UntypedStorage], int] = UntypedStorage.data_ptr

    def of_storage(storage: UntypedStorage) -> int:
        return storage._cdata if storage.device.type == "meta" else storage_address(storage)

    def of_tensor(tensor: FakeTensor) -> int:
        offset = tensor.storage_offset()
        return of_storage(tensor.untyped_storage()) + int(offset) * tensor.element_size()

    with (
        mock.patch.object(UntypedStorage, "data_ptr", of_storage),
        mock.patch.object(FakeTensor, "data_ptr", of_tensor),
    ):
        yield


@contextmanager
def _held_while_sent() -> Iterator[None]:
    """Keep sent tensors alive as long as the work that sends them, as gloo and NCCL do.

    A fake work keeps nothing alive.

    Schedules of several stages keep these works until the end of a step (``_PipelineScheduleRuntime``, torch 2.13).
    """
    send: Callable[..., dist.Work] = dist.ProcessGroup.send

    def held(group: dist.ProcessGroup, tensors: list[Tensor], *args: Any) -> dist.Work:
        work = send(group, tensors, *args)
        weakref.finalize(work, tensors.clear)  # it keeps the list until then
        return work

    with mock.patch.object(dist.ProcessGroup, "send", held):
        yield
