"""Sees every operation of a rank: what it returns is held, what it does is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trials.dry_run.allocations import Allocations
from trials.dry_run.op_counter import OpCounter, bytes_staged_by_gloo

_LOCAL = (Tensor, nn.Parameter, FakeTensor)
"""Tensors that are what they seem; others (DTensor and its like) call operations on such as these in their turn."""


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch types no mode
    """Feeds ``allocations`` and ``tally`` with the operations of the block that it is entered for.

    ``on_cpu``: collectives are gloo's.
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
        """What was executed before does not belong to a step; what is held stays."""
        self.op_counter = OpCounter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Where operations do not belong to the rank."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1


@contextmanager
def tracked(*, on_cpu: bool) -> Iterator[Tracker]:
    """Where a tracker sees the rank's own operations, whose job runs on CPUs or on other devices.

    DTensor finds the shape of a result by running the operation once on tensors of the whole, undivided size, which are
    no part of the rank.
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
