"""Communicator: the ranks of a group, which sum and gather tensors during computation."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable
from torch.autograd.profiler import record_function
from torch.futures import Future

WAIT = "trial wait: "
"""Prefix of the name that a wait has in a profile. The name of the collective follows it."""

# torch 2.13 warns of the older names, and 2.11 has no others
_reduce_scatter: Callable[..., Any] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class Pending(Protocol):
    """A collective that was started and may still run in the background, such as a ``torch.distributed.Work``."""

    def wait(self) -> object:
        """Wait until the collective is complete. On a GPU, only make the current stream wait for it.

        Raises:
            RuntimeError: The collective failed.
        """

    def get_future(self) -> Future[list[Tensor]]:
        """Return the future of the collective's result: a list with one tensor."""


def future_of(pending: Pending) -> Future[list[Tensor]]:
    """Return the future of a collective, as a communication hook of DDP must return it.

    The function also makes the backward pass wait for the collective's Work. DDP waits only for futures, but gloo
    completes a future before the collective is over. At the end of the collective, gloo writes into memory of the
    profiler (``AsyncWork::finishWorkGloo``, torch 2.13). If the profiler has stopped by then, this memory may be in use
    for something else.

    Args:
        pending: The collective in progress.
    """

    def wait() -> None:
        pending.wait()

    Variable._execution_engine.queue_callback(wait)  # FSDP2 ends backward passes in this way (torch 2.11 to 2.13)
    return pending.get_future()


class Communicator(Protocol):
    """The collectives of a group of ranks, which run in the background.

    Collectives run in the order in which they were started, in parallel with computation. All ranks must make the same
    calls in the same order, with flat contiguous tensors of equal length.
    """

    size: int
    """Number of ranks in the group."""
    rank: int
    """Number of this process among the ranks of the group."""

    def all_reduce(self, tensor: Tensor) -> Pending:
        """Begin to replace the tensor by its sum over all ranks. The sum is complete after ``wait`` of the result."""

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> Pending:
        """Begin to sum ``whole`` over all ranks and to write this rank's part of the sum into ``part``.

        The part is complete after ``wait`` of the result.
        """

    def all_gather(self, whole: Tensor, part: Tensor) -> Pending:
        """Begin to write the parts of all ranks into ``whole``, in the order of the ranks.

        ``whole`` is complete after ``wait`` of the result.
        """


class TorchCommunicator:
    """A ``Communicator`` that calls torch's own collectives, which the backend runs in the background."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.all_reduce = partial(dist.all_reduce, group=group, async_op=True)
        self.reduce_scatter = partial(_reduce_scatter, group=group, async_op=True)
        self.all_gather = partial(_all_gather, group=group, async_op=True)


class Collectives(Protocol):
    """The collectives of a group of ranks, as calls that return when the result is complete.

    On a GPU, the result is complete for all later work in the same stream.
    """

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over all ranks."""

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """Sum ``whole`` over all ranks and write this rank's part of the sum into ``part``.

        ``whole`` keeps its values.
        """

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """Write the parts of all ranks into ``whole``, in the order of the ranks.

        ``part`` may be a view of a part of ``whole``.
        """


class TorchCollectives:
    """``Collectives`` that call torch's own functions. The backend chooses the algorithm."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.all_reduce = partial(dist.all_reduce, group=group)
        self.reduce_scatter = partial(_reduce_scatter, group=group)
        self.all_gather = partial(_all_gather, group=group)


class BackgroundCommunicator:
    """A ``Communicator`` that runs any ``Collectives`` in the background: in a thread, or on a CUDA stream."""

    def __init__(self, collectives: Collectives, device: torch.device, *, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._collectives = collectives
        self._background = _StreamBackground(device) if device.type == "cuda" else ThreadBackground()

    def all_reduce(self, tensor: Tensor) -> Pending:
        """Begin to replace the tensor by its sum over all ranks. The sum is complete after ``wait`` of the result."""
        return self._background.start("all_reduce", partial(self._collectives.all_reduce, tensor), tensor)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> Pending:
        """Begin to sum ``whole`` over all ranks and to write this rank's part of the sum into ``part``.

        The part is complete after ``wait`` of the result.
        """
        return self._background.start("reduce_scatter", partial(self._collectives.reduce_scatter, part, whole), part)

    def all_gather(self, whole: Tensor, part: Tensor) -> Pending:
        """Begin to write the parts of all ranks into ``whole``, in the order of the ranks.

        ``whole`` is complete after ``wait`` of the result.
        """
        return self._background.start("all_gather", partial(self._collectives.all_gather, whole, part), whole)


class FuturePending:
    """A collective in the background that is complete when a given future is complete.

    Profiles show each wait for the collective under its name.
    """

    def __init__(self, name: str, future: Future[list[Tensor]]) -> None:
        self._name = name
        self._future = future

    def wait(self) -> object:
        """Wait until the collective is complete."""
        with record_function(WAIT + self._name):
            return self._future.wait()

    def get_future(self) -> Future[list[Tensor]]:
        """Return the future of the collective's result: a list with one tensor."""
        return self._future


class ThreadBackground:
    """A thread that runs collectives one after the other, in the order in which they are started.

    The thread does not block other Python code: gloo's calls release the interpreter lock until the bytes have arrived.
    """

    def __init__(self) -> None:
        self._started: queue.SimpleQueue[tuple[Callable[[], object], Tensor, Future[list[Tensor]]]] = (
            queue.SimpleQueue()
        )
        # a daemon, because a rank whose peers are gone ends without waiting for it
        threading.Thread(target=self._work, name="collectives", daemon=True).start()

    def start(self, name: str, run: Callable[[], object], result: Tensor) -> Pending:
        """Run a collective in the thread after the earlier ones, and return it as ``Pending`` at once.

        Args:
            name: Name of the collective in profiles.
            run: Function that runs the collective and returns when it is complete.
            result: Tensor that the collective writes.
        """
        future: Future[list[Tensor]] = Future()
        self._started.put((run, result, future))
        return FuturePending(name, future)

    def _work(self) -> None:
        while True:
            run, result, future = self._started.get()
            try:
                with torch.no_grad():
                    run()
            except Exception as error:  # the error is raised in the thread that waits
                future.set_exception(error)  # type: ignore[arg-type]  # torch takes an exception for a result
            else:
                future.set_result([result])


class _StreamBackground:
    """A CUDA stream that runs collectives in order. NCCL's calls return at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch gives it no types

    def start(self, name: str, run: Callable[[], object], result: Tensor) -> Pending:
        """Start the collective ``run``, which writes ``result``. Profiles show it under the given name."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        future: Future[list[Tensor]] = Future(devices=[self._device])
        with torch.cuda.stream(self._stream), torch.no_grad():
            run()
            result.record_stream(self._stream)
            future.set_result([result])  # waiting for the future means waiting for the stream
        return FuturePending(name, future)
