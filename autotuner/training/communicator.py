"""Communicator: ranks that sum and gather together while they compute."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.profiler import record_function
from torch.futures import Future

from autotuner.training.pending import Pending

WAIT = "trial wait: "
"""Prefix of the name that a wait has in a profile; the name of the collective follows."""

# Collectives: what ranks of a group do together, and torch's own way to do it.

# torch 2.13 warns of the older names, and 2.11 has no others
_reduce_scatter: Callable[..., object] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather: Callable[..., object] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class Collectives(Protocol):
    """Sums and gathers among the ranks of a group, each done when the call returns (on a GPU: in its stream's order).

    Every rank of the group makes the same calls in the same order, with flat contiguous tensors of the same length.
    """

    def all_reduce(self, tensor: Tensor) -> None:
        """Put the sum over all ranks in the tensor's place."""

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """Put this rank's of equal parts of the sum over all ranks into ``part``; ``whole`` stays."""

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """Put the parts of all ranks, in their order, into ``whole``, which ``part`` may be a piece of."""


class TorchCollectives:
    """Those of torch's backend, which chooses the way of the bytes."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        dist.all_reduce(tensor, group=self._group)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """See ``Collectives``."""
        _reduce_scatter(part, whole, group=self._group)

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """See ``Collectives``."""
        _all_gather(whole, part, group=self._group)


# Background: collectives that run while the rank goes on computing, one after the other as they were asked for.


class Background(Protocol):
    """Runs what it is given in the order in which it is given it."""

    def start(self, name: str, run: Callable[[], None], result: Tensor) -> Pending:
        """Let ``run``, a collective that recordings know by its name, write ``result``."""


class Promised:
    """A ``Pending`` whose future somebody keeps; a recording of the step shows who waits for what."""

    def __init__(self, name: str, future: Future[list[Tensor]]) -> None:
        self._name = name
        self._future = future

    def wait(self) -> object:
        """See ``Pending``."""
        with record_function(WAIT + self._name):
            return self._future.wait()

    def get_future(self) -> Future[list[Tensor]]:
        """See ``Pending``."""
        return self._future


class ThreadBackground:
    """A thread of its own: gloo's calls return when the bytes are there, and give way to Python meanwhile."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], None], Tensor, Future[list[Tensor]]]] = queue.SimpleQueue()
        # nobody waits for it at the end of a rank whose peers are gone
        threading.Thread(target=self._work, name="collectives", daemon=True).start()

    def start(self, name: str, run: Callable[[], None], result: Tensor) -> Pending:
        """See ``Background``."""
        future: Future[list[Tensor]] = Future()
        self._asked.put((run, result, future))
        return Promised(name, future)

    def _work(self) -> None:
        while True:
            run, result, future = self._asked.get()
            try:
                with torch.no_grad():
                    run()
            except Exception as error:  # it is raised where somebody waits
                future.set_exception(error)  # type: ignore[arg-type]  # torch takes an exception for a result
            else:
                future.set_result([result])


class StreamBackground:
    """A stream of its own: NCCL's calls return at once, and the device keeps their order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch gives it no types

    def start(self, name: str, run: Callable[[], None], result: Tensor) -> Pending:
        """See ``Background``."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        future: Future[list[Tensor]] = Future(devices=[self._device])
        with torch.cuda.stream(self._stream), torch.no_grad():
            run()
            result.record_stream(self._stream)
            future.set_result([result])  # what waits for it waits for the stream
        return Promised(name, future)


def background_of(device: torch.device) -> Background:
    """A new one for a device."""
    return StreamBackground(device) if device.type == "cuda" else ThreadBackground()


# torch 2.13 warns of the older names, and 2.11 has no others
_communicator_reduce_scatter: Callable[..., dist.Work] = getattr(
    dist, "reduce_scatter_single", dist.reduce_scatter_tensor
)
_communicator_all_gather: Callable[..., dist.Work] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class Communicator(Protocol):
    """The ranks of a group; what they begin together runs in the order in which they begin it.

    Attributes:
        size: How many they are.
        rank: Which of them this process is.
    """

    @property
    def size(self) -> int:
        """See above."""

    @property
    def rank(self) -> int:
        """See above."""

    def all_reduce(self, tensor: Tensor) -> Pending:
        """Begin to put the sum over all ranks in the tensor's place."""

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> Pending:
        """Begin to put this rank's of equal parts of the sum over all ranks into ``part``."""

    def all_gather(self, whole: Tensor, part: Tensor) -> Pending:
        """Begin to put the parts of all ranks into ``whole``."""


class TorchCommunicator:
    """A ``Communicator`` by torch's own collectives, each begun by its backend."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def all_reduce(self, tensor: Tensor) -> Pending:
        """See ``Communicator``."""
        pending: Pending = dist.all_reduce(tensor, group=self._group, async_op=True)
        return pending

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> Pending:
        """See ``Communicator``."""
        return _communicator_reduce_scatter(part, whole, group=self._group, async_op=True)

    def all_gather(self, whole: Tensor, part: Tensor) -> Pending:
        """See ``Communicator``."""
        return _communicator_all_gather(whole, part, group=self._group, async_op=True)


class BackgroundCommunicator:
    """A ``Communicator`` by any ``Collectives``, of a rank of so many."""

    def __init__(self, collectives: Collectives, background: Background, *, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._collectives = collectives
        self._background = background

    def all_reduce(self, tensor: Tensor) -> Pending:
        """See ``Communicator``."""
        return self._background.start("all_reduce", partial(self._collectives.all_reduce, tensor), tensor)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> Pending:
        """See ``Communicator``."""
        return self._background.start("reduce_scatter", partial(self._collectives.reduce_scatter, part, whole), part)

    def all_gather(self, whole: Tensor, part: Tensor) -> Pending:
        """See ``Communicator``."""
        return self._background.start("all_gather", partial(self._collectives.all_gather, whole, part), whole)
