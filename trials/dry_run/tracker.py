"""Observes every operation of a rank: records the memory of its results, and counts FLOP, bytes and collectives."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, UntypedStorage, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from autotuner.core.dry_run import CollectiveCount, HeldBytes, OperationCounts

_COLLECTIVES = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "shard_dim_alltoall": "all_to_all",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "send": "send",
    "recv_": "receive",
}
"""Our names of collectives by their names in torch's libraries."""

_LIBRARIES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")

_MOVES_NOTHING = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_local_scalar_dense"}
)
"""Operations that only return memory without reading or writing it."""


class OpCounter:
    """Counts the FLOP, the moved bytes and the collectives of the operations that one rank runs on its own tensors."""

    def __init__(self) -> None:
        self._flop = 0
        self._moved_bytes = 0
        self._num_operations = 0
        self._calls: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """Count the FLOP, the moved bytes or the collective of one executed operation.

        Args:
            func: The operation of torch.
            args: The positional arguments of the operation.
            kwargs: The keyword arguments of the operation.
            out: The result of the operation.
        """
        name = func._opname
        if func.namespace in _LIBRARIES:
            self._add_collective(name, args, out)
        elif not func.is_view and name not in _MOVES_NOTHING:
            self._num_operations += 1
            self._moved_bytes += _num_bytes((args, kwargs)) + _num_bytes(out)
            self._flop += _flop(func, args, kwargs, out)

    def counts(self) -> OperationCounts:
        """Return the FLOP, the moved bytes and the collectives of all operations that were counted so far."""
        collectives = tuple(
            CollectiveCount(kind=kind, num_calls=self._calls[kind], num_bytes=self._bytes[kind])
            for kind in sorted(self._calls)
        )
        return OperationCounts(
            flop=self._flop,
            moved_bytes=self._moved_bytes,
            num_operations=self._num_operations,
            collectives=collectives,
        )

    def _add_collective(self, name: str, args: tuple[Any, ...], out: Any) -> None:
        """Count a collective with the bytes of its whole tensors: an all-gather's output, a reduce-scatter's input."""
        kind = _COLLECTIVES.get(name)
        if kind is not None:  # a wait is not a collective
            self._calls[kind] += 1
            self._bytes[kind] += _whole_bytes(args, out)


def bytes_staged_by_gloo(func: Any, args: tuple[Any, ...], out: Any) -> int:
    """Return the bytes that gloo allocates during a collective, in addition to the collective's own tensors.

    For an all-gather, gloo allocates a second tensor of the whole size. For a reduce-scatter, it copies the input.
    Other collectives need no additional memory. Source: measured with torch 2.13 and two ranks.
    """
    is_staged = func.namespace in _LIBRARIES and _COLLECTIVES.get(func._opname) in ("all_gather", "reduce_scatter")
    return _whole_bytes(args, out) if is_staged else 0


def _whole_bytes(args: tuple[Any, ...], out: Any) -> int:
    return max(_num_bytes(side) for side in (*args, out))


def _num_bytes(tree: Any) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _flop(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> int:
    """Return the FLOP of an operation, by torch's own formulas, or by ours if torch has none."""
    packet = func._overloadpacket
    if packet in _CPU_ATTENTION:
        return _attention_flop(*_CPU_ATTENTION[packet], args)
    formula = flop_registry.get(packet)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


_CPU_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (2, 0),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (5, 1),
}
"""Number of matrix products over all pairs of tokens, and the position of the queries among the arguments.

Torch's formulas lack the CPU's flash kernel. Like CUDA's, its backward pass computes the scores again."""


def _attention_flop(num_products: int, first: int, args: tuple[Any, ...]) -> int:
    """Return the FLOP of full attention, whether causal or not, as torch counts other kernels."""
    query_BHSE, key_BKTE = args[first], args[first + 1]
    return int(num_products * 2 * query_BHSE.numel() * key_BKTE.shape[2])


# The memory of a rank's tensors: every allocation and every release, and their peak.

Kind = str
"""Name of a field of ``HeldBytes`` without its unit, or ``_ELSEWHERE``."""

_ELSEWHERE = "elsewhere"
"""Kind of a block outside the rank's memory."""


@dataclass(slots=True, eq=False)
class _Block:
    """A storage of a tensor; its kind may become known long after the allocation."""

    kind: Kind
    num_bytes: int
    reference: weakref.ref[Any] | None = None


class Allocations:
    """A record of the memory blocks of tensors. In a dry run, the blocks have sizes but no real memory.

    Each block has a kind, such as activations. At its allocation it gets the present kind (``now``); ``name`` can
    change the kind later, for the whole life of the block.
    """

    def __init__(self) -> None:
        self.now: Kind = "activations"
        self._blocks: dict[int, _Block] = {}
        self._changes: list[tuple[_Block, int]] = []

    def record(self, tensor: Tensor) -> None:
        """Record the memory of a tensor that an operation returned.

        The tensor may use a block that is known already.
        """
        if tensor.device.type != "meta":
            self._block(tensor.untyped_storage())

    def hold_for_a_moment(self, num_bytes: int) -> None:
        """Record that an operation allocates a temporary block and frees it again, while all present blocks exist."""
        block = _Block(self.now, 0)
        self._change(block, num_bytes)
        self._change(block, -num_bytes)

    def name(self, tensor: Tensor, kind: Kind) -> None:
        """Set the kind of memory (such as activations) as which the memory block of a tensor counts."""
        self._block(tensor.untyped_storage()).kind = kind

    @contextmanager
    def follow_resizes(self) -> Iterator[None]:
        """Record when the size of a memory block changes, while the ``with`` block runs.

        FSDP keeps the tensors that receive gathered parameters, and frees and reallocates only their memory.
        """
        resize = UntypedStorage.resize_

        def resized(storage: UntypedStorage, num_bytes: int) -> UntypedStorage:
            block = self._blocks.get(storage._cdata)
            resize(storage, num_bytes)
            if block is not None:
                block.kind = "gathered"
                self._change(block, storage.nbytes() - block.num_bytes)
            return storage

        with mock.patch.object(UntypedStorage, "resize_", resized):
            yield

    @contextmanager
    def within(self, kind: Kind) -> Iterator[None]:
        """Count memory that is allocated while the ``with`` block runs as memory of this kind, such as activations."""
        before, self.now = self.now, kind
        try:
            yield
        finally:
            self.now = before

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Leave memory that is allocated while the ``with`` block runs out of all counts, even after the block.

        It is used for memory that is not on the device, such as activations offloaded to the host.
        """
        with self.within(_ELSEWHERE):
            yield

    def peak(self) -> HeldBytes:
        """Return the bytes of each kind of memory, such as activations, at the moment when their sum was highest."""
        held = highest = 0
        moment = 0
        for index, (_, change) in enumerate(self._changes, start=1):
            held += change
            if held > highest:
                highest, moment = held, index
        kinds = dict.fromkeys(("parameters", "gathered", "gradients", "optimizer", "activations"), 0.0)
        for block, change in self._changes[:moment]:
            kinds[block.kind] += change
        return HeldBytes(**{f"{kind}_bytes": num_bytes for kind, num_bytes in kinds.items()})

    def _block(self, storage: UntypedStorage) -> _Block:
        address = storage._cdata
        block = self._blocks.get(address)
        if block is None:
            block = self._blocks[address] = _Block(self.now, 0)
            block.reference = weakref.ref(storage, lambda _: self._release(address))
            self._change(block, storage.nbytes())
        return block

    def _release(self, address: int) -> None:
        block = self._blocks.pop(address)
        self._change(block, -block.num_bytes)

    def _change(self, block: _Block, num_bytes: int) -> None:
        if num_bytes and block.kind != _ELSEWHERE:
            block.num_bytes += num_bytes
            self._changes.append((block, num_bytes))


_LOCAL = (Tensor, nn.Parameter, FakeTensor)
"""Types of local tensors; operations on other types, such as DTensor, call operations on local tensors in turn."""


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch types no mode
    """A torch dispatch mode that passes every operation in its ``with`` block to ``allocations`` and ``op_counter``.

    Args:
        on_cpu: True if the job runs on CPUs, so that gloo executes its collectives.
    """

    def __init__(self, *, on_cpu: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor its making
        self._on_cpu = on_cpu
        self.allocations = Allocations()
        self.op_counter = OpCounter()
        self._paused = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(kind not in _LOCAL for kind in types):
            return NotImplemented
        named = dict(kwargs or {})
        out = func(*args, **named)
        if not self._paused:
            for leaf in tree_leaves(out):
                if isinstance(leaf, FakeTensor):
                    self.allocations.record(leaf)
            if self._on_cpu:
                self.allocations.hold_for_a_moment(bytes_staged_by_gloo(func, args, out))
            self.op_counter.add(func, args, named, out)
        return out

    def start_counting(self) -> None:
        """Set the counts of operations to zero, because the operations so far belong to no step.

        Held memory still counts.
        """
        self.op_counter = OpCounter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count no operations while the ``with`` block runs, because a real rank would not execute them."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1


@contextmanager
def tracked(*, on_cpu: bool) -> Iterator[Tracker]:
    """Count the operations and the memory of the rank while the ``with`` block runs.

    To find the shape of a result, DTensor runs the operation once on tensors of the full, undivided size. These runs
    are not counted.

    Args:
        on_cpu: True if the job runs on CPUs, so that gloo executes its collectives.
    """
    tracker = Tracker(on_cpu=on_cpu)
    propagate: Callable[..., Any] = ShardingPropagator._propagate_tensor_meta_non_cached

    def unseen(*args: Any) -> Any:
        with tracker.paused():
            return propagate(*args)

    with (
        mock.patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen),
        tracker.allocations.follow_resizes(),
        tracker,
    ):
        yield tracker
