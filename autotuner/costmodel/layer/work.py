"""Work: how long one micro-batch keeps a rank busy with a part of the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from autotuner.costmodel.columns import Floats
from autotuner.costmodel.pipeline.passes import Passes

__all__ = ["Work"]

_PARTS = (
    "matrix_s",
    "attention_s",
    "pointwise_s",
    "host_s",
    "recompute_s",
    "offload_s",
    "tensor_s",
    "context_s",
    "expert_s",
    "forward_s",
    "weight_gradient_s",
    "backward_s",
)
_NUM_SUMMED = 9
"""The parts that make up the total; the others are shares of these."""


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds that one micro-batch keeps a rank busy with some part of the model, forward and backward together.

    One array of shape (parts, layouts), so that a sum of works is one operation.

    Parts:
        matrix_s: Matrix products, forward and backward, nothing recomputed; as are the next three.
        attention_s: Attention cores.
        pointwise_s: What moves memory between them.
        host_s: Waiting for the host to launch kernels shorter than a launch.
        recompute_s: All of the above that is done again.
        offload_s: Copies to the host and back that nothing hides.
        tensor_s, context_s, expert_s: Collectives between them that nothing hides.
        forward_s: The share of the total before the loss, with its collectives.
        weight_gradient_s: The share of ``matrix_s`` that a zero-bubble schedule may do later.
        backward_s: The share of computation and recomputation after the loss; data-parallel reductions hide in it.
    """

    seconds: Floats

    @classmethod
    def of(cls, size: int, **parts: Floats | float) -> Work:
        """Work of ``size`` layouts from its parts, by name; those not given are zero."""
        seconds = np.zeros((len(_PARTS), size))
        for name, values in parts.items():
            seconds[_PARTS.index(name)] = values
        return cls(seconds)

    def __getattr__(self, name: str) -> Floats:
        if name not in _PARTS:
            raise AttributeError(name)
        row: Floats = self.seconds[_PARTS.index(name)]
        return row

    @property
    def compute_s(self) -> Floats:
        """Forward and backward without recomputation and collectives."""
        return self.matrix_s + self.attention_s + self.pointwise_s + self.host_s

    @property
    def total_s(self) -> Floats:
        """Computation, recomputation and the collectives between."""
        # in order, so that a row's total does not depend on how many rows there are
        total: Floats = reduce(np.add, self.seconds[:_NUM_SUMMED])
        return total

    def __add__(self, other: Work) -> Work:
        return Work(self.seconds + other.seconds)

    def __sub__(self, other: Work) -> Work:
        return Work(self.seconds - other.seconds)

    def __mul__(self, count: npt.NDArray[Any] | float) -> Work:
        return Work(self.seconds * count)

    def passes(self) -> Passes:
        """These seconds, collectives included, by pass: what a schedule sees."""
        rest_s = self.total_s - self.forward_s - self.weight_gradient_s
        return Passes(forward_s=self.forward_s, input_s=rest_s, weight_s=self.weight_gradient_s)

    def beside(self, other: Work) -> Work:
        """The works of both, one after the other."""
        return Work(np.concatenate([self.seconds, other.seconds], axis=1))

    def take(self, index: Any) -> Work:
        """The works of some layouts, in the order of the index."""
        return Work(self.seconds[:, index])
