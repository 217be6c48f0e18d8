"""Background: collectives that run while the rank goes on computing, one after the other as they were asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.profiler import record_function
from torch.futures import Future

from trials.measurement.recording import WAIT
from trials.runtime.pending import Pending


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
