"""Overlap: how much of the gradients begins to be reduced while backward passes still run."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class Overlap:
    """Counts bytes by hooks: a reduction overlaps where a later gradient of the step is computed behind its start.

    So that of the bucket that fills last never does, however short it is. What counts is in which order hooks run; on
    a device the same order holds for what they launch.

    Attributes:
        reduced_bytes: Of all gradients whose reduction was started.
        overlapped_bytes: Of those among them that another gradient followed.
    """

    def __init__(self) -> None:
        self.reduced_bytes = 0
        self.overlapped_bytes = 0
        self._begun_bytes = 0
        self._in_backward = False

    @property
    def share(self) -> float | None:
        """Of the bytes reduced those that overlapped; None where nothing was reduced."""
        return self.overlapped_bytes / self.reduced_bytes if self.reduced_bytes else None

    def watch(self, parameters: Iterable[nn.Parameter]) -> None:
        """Hear of every gradient of these parameters."""
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]

    def _on_gradient(self, parameter: Tensor) -> None:
        del parameter
        self.gradient()

    def gradient(self) -> None:
        """A gradient was computed: what began to be reduced before had something to overlap."""
        self.overlapped_bytes += self._begun_bytes
        self._begun_bytes = 0
        self._in_backward = True

    def reduction(self, num_bytes: int) -> None:
        """The reduction of so many bytes of gradients starts."""
        self.reduced_bytes += num_bytes
        self._begun_bytes += num_bytes if self._in_backward else 0

    def end_backward(self) -> None:
        """The last backward pass of a step is done: no gradient of it follows."""
        self._begun_bytes = 0
        self._in_backward = False

    def reset(self) -> None:
        """Count anew, between two steps."""
        self.reduced_bytes = self.overlapped_bytes = self._begun_bytes = 0
