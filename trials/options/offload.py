"""Activation offload: what the backward pass needs waits in the host's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

from autotuner.core.layout import Layout

_SMALLEST_BYTES = 2**20
"""What is smaller stays: 1 MiB takes 40 us at the 25 GB/s of PCIe 4.0 x16, no less than launching its two copies."""


def offloaded(layer: nn.Module, layout: Layout, device: torch.device) -> nn.Module:
    """The layer, keeping in the host's memory what its backward pass needs, if the layout says so.

    Of a layer that recomputes, that is the input; what a selective one keeps besides stays on the device.
    """
    if layout.offload_activations:
        # the forward and not the call: FSDP's hooks around it gather the parameters first
        layer.forward = _in_host_memory(layer, layer.forward, HostMemory(device))
    return layer


def _in_host_memory(layer: nn.Module, forward: Callable[..., Any], memory: HostMemory) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with memory.keeping(except_for=layer.parameters()):
            return forward(*args)

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Absent:
    """A tensor that went to the host, and how it is put together again from what comes back."""

    on_host: Tensor
    restored: Callable[[Tensor], Tensor]


class HostMemory:
    """Takes tensors to the host and back, beside what the device computes.

    On CUDA the copies have a stream of their own, one for all layers. The way out starts as soon as the tensor is
    computed, the way back when the backward pass asks for it: before the device needs it by as much as Python runs
    ahead of the device.
    """

    def __init__(self, device: torch.device, *, smallest_bytes: int = _SMALLEST_BYTES) -> None:
        self._device = device
        self._smallest_bytes = smallest_bytes
        self._stream = _copy_stream(device) if device.type == "cuda" else None
        self.num_sent = 0

    @contextmanager
    def keeping(self, *, except_for: Iterable[Tensor]) -> Iterator[None]:
        """Where autograd keeps here what it saves for the backward pass, except these tensors and their views."""
        stay = {_plain(tensor).untyped_storage().data_ptr() for tensor in except_for}
        sent: dict[Any, tuple[Tensor, _Absent]] = {}  # what several operations save goes once

        def pack(tensor: Tensor) -> Tensor | _Absent:
            here = _plain(tensor)
            if here.nbytes < self._smallest_bytes or here.untyped_storage().data_ptr() in stay:
                return tensor.detach()  # the tensor itself would hold the graph that holds it
            key = here.data_ptr(), here.dtype, here.shape, here.stride(), here._version, type(tensor)
            if key not in sent:
                sent[key] = here, self._send(tensor, here)
            return sent[key][1]

        with saved_tensors_hooks(pack, self._unpack):
            yield
        sent.clear()  # a tensor that lives on keeps its address for itself; from here on nobody looks it up

    def _unpack(self, kept: Tensor | _Absent) -> Tensor:
        return kept.restored(self._fetch(kept.on_host)) if isinstance(kept, _Absent) else kept

    def _send(self, tensor: Tensor, here: Tensor) -> _Absent:
        self.num_sent += 1
        on_host = room_on_host(here, pinned=self._stream is not None)
        if self._stream is None:
            on_host.copy_(here)
        else:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                on_host.copy_(here, non_blocking=True)
            here.record_stream(self._stream)  # its memory is not given away before the copy is done
        return _Absent(on_host=on_host, restored=_restoring(tensor))

    def _fetch(self, on_host: Tensor) -> Tensor:
        if self._stream is None:
            return on_host.clone()
        with torch.cuda.stream(self._stream):  # behind the way out, and into memory that this stream waits for
            here = on_host.to(self._device, non_blocking=True)
        consumer = torch.cuda.current_stream(self._device)
        consumer.wait_stream(self._stream)
        here.record_stream(consumer)
        return here


def room_on_host(tensor: Tensor, *, pinned: bool) -> Tensor:
    """The host's memory for a copy of the tensor; a dry run counts it apart."""
    return torch.empty_like(tensor, device="cpu", pin_memory=pinned)


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all layers: the allocator gives what one stream freed to no other, so each would keep its own."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own


def _plain(tensor: Tensor) -> Tensor:
    """The values on this rank, when they are there."""
    here = tensor.detach()
    local = here.to_local() if isinstance(here, DTensor) else here
    waited: Tensor = local.wait() if isinstance(local, AsyncCollectiveTensor) else local
    return waited


def _restoring(tensor: Tensor) -> Callable[[Tensor], Tensor]:
    """From the values to what the backward pass expects, which is a DTensor if one was saved."""
    if not isinstance(tensor, DTensor):
        return lambda local: local
    mesh, placements, shape, stride = tensor.device_mesh, tensor.placements, tensor.shape, tensor.stride()
    return lambda local: DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=stride)
