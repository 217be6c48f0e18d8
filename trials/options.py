"""Options of a layout that change how layers run: compilation, fp8, offload and recomputation."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
import torch.distributed._symmetric_memory as symmetric_memory
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import SAC_IGNORED_OPS, CheckpointPolicy, create_selective_checkpoint_contexts

from autotuner.core.choices import FP8_PRECISIONS, Precision, Recompute
from autotuner.core.layout import Layout

# torch.compile, layer by layer, and the seconds that it took.


def compiled(layer: nn.Module, layout: Layout, tensor_axis: DeviceMesh) -> nn.Module:
    """Return the layer, compiled with ``torch.compile`` if the layout says so.

    The compilation happens in the first step. Only the method ``forward`` of the layer is compiled. Hooks around the
    layer, such as the hooks of FSDP and of the stopwatch, are not compiled, so the compiler need not trace them.

    Args:
        layer: The layer.
        layout: The layout.
        tensor_axis: The tensor ranks. With asynchronous tensor parallelism, the compiler overlaps their collectives
            with matrix products.
    """
    if not layout.compiled:
        return layer
    torch._inductor.config.compile_threads = 1  # a rank is a fork with one core; a pool of compilers would fork again
    # DDP would cut the graphs at the ends of its buckets, which lie between layers anyway, and fails where one is small
    torch._dynamo.config.optimize_ddp = False
    if layout.async_tensor_parallel:
        _decompose_collectives(tensor_axis)
    layer.forward = torch.compile(layer.forward, fullgraph=True)
    return layer


def _decompose_collectives(tensor_axis: DeviceMesh) -> None:
    """Let the compiler split a tensor-parallel collective and run it beside its matrix product, with symmetric memory.

    This follows torchtitan (arXiv 2410.06511, section 2.1.3), and works on CUDA only.
    """
    torch._inductor.config._micro_pipeline_tp = True
    symmetric_memory.enable_symm_mem_for_group(tensor_axis.get_group().group_name)


def compile_time_s() -> float:
    """Return the seconds that all compilations in this process took so far; 0.0 if nothing was compiled.

    The number is torch dynamo's own count, for forward and backward passes. The difference between the first and a
    later step would be too large: the first step also exchanges shapes, allocates the optimizer's moments, and computes
    DTensor's sharding rules.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.utils")  # a process that compiles nothing need not import it
    return float(dynamo.calculate_time_spent()["total_wall_time"]) if dynamo else 0.0


# fp8: linear layers whose matrix products take values rounded to 8 bits (torchao).


def use_fp8(layer: nn.Module, layout: Layout) -> None:
    """Replace the linear modules of a layer by fp8 ones, real or emulated, if the layout says so.

    The parameters stay in bf16. The two inputs of each matrix product are rounded to fp8 when they are used, in the
    forward and in the backward pass. The embedding and the output projection are not part of a layer, so they stay in
    bf16.
    """
    if layout.precision not in FP8_PRECISIONS:
        return
    with _without_warnings("torchao", "torch.utils._pytree"):
        # importing torchao takes more than a second, and few trials need it
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: PLC0415
    recipe = Float8LinearConfig.from_recipe_name(layout.fp8_recipe.label)
    convert_to_float8_training(layer, config=replace(recipe, emulate=layout.precision == Precision.FP8_EMULATED))


@contextmanager
def _without_warnings(*names: str) -> Iterator[None]:
    """Silence the warnings of these loggers, in which torchao only reports attempts that are allowed to fail."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# Activation offload: what the backward pass needs waits in the host's memory.

_SMALLEST_BYTES = 2**20
"""Size in bytes below which a tensor is not offloaded. At the 25 GB/s of PCIe 4.0 x16, 1 MiB takes 40 us, which is no
less than launching its two copies."""


def offloaded(layer: nn.Module, layout: Layout, device: torch.device) -> nn.Module:
    """Return the layer. If the layout says so, the layer keeps its saved activations in host memory.

    If the layer recomputes activations, only its input is kept there. Activations that selective recomputation does not
    recompute stay on the device.
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
    """A tensor that was moved to the host, and the function that rebuilds it from the returned values."""

    on_host: Tensor
    restored: Callable[[Tensor], Tensor]


class HostMemory:
    """Copies tensors to host memory and back, while the device computes.

    On CUDA, the copies of all layers run on one separate stream. The copy to the host starts as soon as the tensor has
    been computed. The copy back starts when the host reaches the operation that needs the tensor. This is early enough,
    because Python runs ahead of the device.
    """

    def __init__(self, device: torch.device, *, smallest_bytes: int = _SMALLEST_BYTES) -> None:
        self._device = device
        self._smallest_bytes = smallest_bytes
        self._stream = _copy_stream(device) if device.type == "cuda" else None
        self.num_sent = 0

    @contextmanager
    def keeping(self, *, except_for: Iterable[Tensor]) -> Iterator[None]:
        """While the block runs, keep the tensors that autograd saves for the backward pass in host memory.

        Args:
            except_for: Tensors that stay on the device, together with their views.
        """
        stay = {_plain(tensor).untyped_storage().data_ptr() for tensor in except_for}
        sent: dict[Any, tuple[Tensor, _Absent]] = {}  # a tensor that several operations save is copied once

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
            here.record_stream(self._stream)  # the allocator must not reuse its memory before the copy is done
        return _Absent(on_host=on_host, restored=_restoring(tensor))

    def _fetch(self, on_host: Tensor) -> Tensor:
        if self._stream is None:
            return on_host.clone()
        with torch.cuda.stream(self._stream):  # after the copy to the host, into memory that this stream waits for
            here = on_host.to(self._device, non_blocking=True)
        consumer = torch.cuda.current_stream(self._device)
        consumer.wait_stream(self._stream)
        here.record_stream(consumer)
        return here


def room_on_host(tensor: Tensor, *, pinned: bool) -> Tensor:
    """Allocate host memory for a copy of a tensor, and return it.

    It is a separate function so that a dry run can replace it and count this memory separately.
    """
    return torch.empty_like(tensor, device="cpu", pin_memory=pinned)


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the one copy stream for all layers, because the allocator never reuses memory across streams."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own


def _plain(tensor: Tensor) -> Tensor:
    """Return the values on this rank as a plain tensor, after waiting for a collective that computes them."""
    here = tensor.detach()
    local = here.to_local() if isinstance(here, DTensor) else here
    waited: Tensor = local.wait() if isinstance(local, AsyncCollectiveTensor) else local
    return waited


def _restoring(tensor: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function that rebuilds what the backward pass expects: a DTensor if one was saved."""
    if not isinstance(tensor, DTensor):
        return lambda local: local
    mesh, placements, shape, stride = tensor.device_mesh, tensor.placements, tensor.shape, tensor.stride()
    return lambda local: DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=stride)


# Recomputation: what a layer's backward pass computes again instead of keeping it.

_aten = torch.ops.aten
_collectives = torch.ops._c10d_functional

_MATRIX_PRODUCTS = (
    _aten.mm.default,  # a linear module, in fp8 too: there the two factors are what differs
    _aten.addmm.default,
    _aten.linear.default,
    _aten._scaled_mm.default,
)
_SCALES = (_aten.max.default, _aten.amax.default)
"""Operations that find the largest value, by which a tensor or row is scaled to fp8. Their results are small, but
computing them takes a pass over all values."""

_ATTENTION_CORES = (
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_fused_attention_overrideable.default,
    getattr(torch.ops.higher_order, "flex_attention", None),
    # FlexAttention again, where it alone is compiled (``attention``); the youngest of these, and not in every torch
    getattr(torch.ops.higher_order, "inductor_compiled_code", None),
)
_COLLECTIVES = (
    _collectives.all_reduce.default,
    _collectives.all_gather_into_tensor.default,
    _collectives.reduce_scatter_tensor.default,
    _collectives.all_to_all_single.default,
)
_MARKS = (
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
)
"""Operations by which FSDP marks ranges for the profiler. When a layer is recomputed, torch expects the same number of
each operation. Sharded experts mark fewer ranges in a recomputation, because their parameters are already gathered."""

_SAVED = frozenset({*_MATRIX_PRODUCTS, *_SCALES, *_ATTENTION_CORES, *_COLLECTIVES} - {None})


def recomputed(layer: nn.Module, layout: Layout, *, index_in_stage: int) -> nn.Module:
    """Return the layer. If the layout says so, the layer recomputes its activations in the backward pass.

    Args:
        layer: The layer.
        layout: The layout.
        index_in_stage: Number of the layer in its stage, from 0. It is needed because a layout may recompute only every
            n-th layer.
    """
    if layout.recompute == Recompute.NONE or index_in_stage % layout.recompute_every:
        return layer
    # nothing here draws random numbers, so their state need not be kept and restored
    options: dict[str, Any] = {"preserve_rng_state": False}
    if layout.recompute == Recompute.SELECTIVE:  # the compiler takes no context that does nothing
        SAC_IGNORED_OPS.update(_MARKS)
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    wrapped: nn.Module = checkpoint_wrapper(layer, **options)
    return wrapped


def _policy(context: object, operation: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    """Return the policy of selective recomputation: save what is slow to compute or needs another rank.

    Saved are matrix products, attention cores and collectives. Norms, rotations and activations are computed again;
    with the math kernel, the attention core is too. Its scores are batched matrix products, which are quick to compute
    and large to store (arXiv 2205.05198, section 5).

    The policy is a function because a list of operations cannot be compiled: dynamo traces the list, and refuses the
    operator of an already compiled region.
    """
    del context, args, kwargs
    return CheckpointPolicy.MUST_SAVE if operation in _SAVED else CheckpointPolicy.PREFER_RECOMPUTE
