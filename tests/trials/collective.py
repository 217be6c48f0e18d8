"""A collective that notes who waits for it."""

from __future__ import annotations

from torch import Tensor
from torch.futures import Future


class Noted:
    """A ``Pending`` whose future is complete from the beginning, as gloo's is before the collective is over."""

    def __init__(self, result: Tensor) -> None:
        self.was_awaited = False
        self._future: Future[list[Tensor]] = Future()
        self._future.set_result([result])

    def wait(self) -> None:
        self.was_awaited = True

    def get_future(self) -> Future[list[Tensor]]:
        return self._future
