"""Counts what operations do: FLOP, bytes moved, collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from autotuner.core.dry_run import CollectiveCount, OperationCounts

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
"""What torch's libraries of collectives call them, and what we do."""

_LIBRARIES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")

_MOVES_NOTHING = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_local_scalar_dense"}
)
"""Operations that return memory as it is."""


class OpCounter:
    """Adds up operations as they are executed on local tensors."""

    def __init__(self) -> None:
        self._flop = 0
        self._moved_bytes = 0
        self._num_operations = 0
        self._calls: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """One operation was executed."""
        name = func._opname
        if func.namespace in _LIBRARIES:
            self._add_collective(name, args, out)
        elif not func.is_view and name not in _MOVES_NOTHING:
            self._num_operations += 1
            self._moved_bytes += _num_bytes((args, kwargs)) + _num_bytes(out)
            self._flop += _flop(func, args, kwargs, out)

    def counts(self) -> OperationCounts:
        """What was added since the beginning."""
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
        """The whole tensors are the larger side: what an all-gather gives, what a reduce-scatter takes."""
        kind = _COLLECTIVES.get(name)
        if kind is not None:  # waiting for one is none
            self._calls[kind] += 1
            self._bytes[kind] += _whole_bytes(args, out)


def bytes_staged_by_gloo(func: Any, args: tuple[Any, ...], out: Any) -> int:
    """Bytes that gloo holds beside an operation's own tensors while it runs (torch 2.13, two ranks, measured).

    It gathers into a second whole tensor, and reduces a copy of what it scatters; others it does in place.
    """
    is_staged = func.namespace in _LIBRARIES and _COLLECTIVES.get(func._opname) in ("all_gather", "reduce_scatter")
    return _whole_bytes(args, out) if is_staged else 0


def _whole_bytes(args: tuple[Any, ...], out: Any) -> int:
    return max(_num_bytes(side) for side in (*args, out))


def _num_bytes(tree: Any) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _flop(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> int:
    """By torch's own formulas, and ours where it has none."""
    packet = func._overloadpacket
    if packet in _CPU_ATTENTION:
        return _attention_flop(*_CPU_ATTENTION[packet], args)
    formula = flop_registry.get(packet)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


_CPU_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (2, 0),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (5, 1),
}
"""Matrix products over all pairs of tokens, and where the queries stand among the arguments.

The CPU's flash kernel is missing in torch's formulas; as for CUDA's, its backward computes the scores again.
"""


def _attention_flop(num_products: int, first: int, args: tuple[Any, ...]) -> int:
    """Full attention, causal or not, as torch counts it for the other kernels."""
    query_BHSE, key_BKTE = args[first], args[first + 1]
    return int(num_products * 2 * query_BHSE.numel() * key_BKTE.shape[2])
