"""Seconds of the passes of a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from autotuner.core.columns import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Seconds of one micro-batch's passes through some stages, for many layouts.

    Attributes:
        forward_s: Forward.
        input_s: Gradients of inputs, with what is computed again for them.
        weight_s: Gradients of weights, the part that zero-bubble schedules defer.
    """

    forward_s: Floats
    input_s: Floats
    weight_s: Floats

    @property
    def backward_s(self) -> Floats:
        """Both gradients."""
        return self.input_s + self.weight_s

    @property
    def total_s(self) -> Floats:
        """Forward and backward."""
        return self.forward_s + self.input_s + self.weight_s

    def with_sends(self, send_s: Floats) -> Passes:
        """With a send that stands in the way of computation after each forward and each input gradient."""
        return Passes(forward_s=self.forward_s + send_s, input_s=self.input_s + send_s, weight_s=self.weight_s)

    def __add__(self, other: Passes) -> Passes:
        return Passes(
            forward_s=self.forward_s + other.forward_s,
            input_s=self.input_s + other.input_s,
            weight_s=self.weight_s + other.weight_s,
        )

    def __sub__(self, other: Passes) -> Passes:
        return Passes(
            forward_s=self.forward_s - other.forward_s,
            input_s=self.input_s - other.input_s,
            weight_s=self.weight_s - other.weight_s,
        )

    def __mul__(self, count: npt.NDArray[Any] | float) -> Passes:
        return Passes(forward_s=self.forward_s * count, input_s=self.input_s * count, weight_s=self.weight_s * count)

    def take(self, index: Any) -> Passes:
        """The passes of some layouts, in the order of the index."""
        return Passes(forward_s=self.forward_s[index], input_s=self.input_s[index], weight_s=self.weight_s[index])
