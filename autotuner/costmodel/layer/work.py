"""Work: how long one micro-batch keeps a rank busy with a part of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from autotuner.core.columns import Floats
from autotuner.costmodel.layer.passes import Passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Seconds that one micro-batch keeps a rank busy with some part of the model, forward and backward together.

    The first nine make up the total; the others say of parts of it when they happen.

    Attributes:
        matrix_s: Matrix products, nothing recomputed; as are the next three.
        attention_s: Attention cores.
        pointwise_s: What moves memory between them.
        host_s: Waiting for the host to launch kernels shorter than a launch.
        recompute_s: Computation that is done again.
        offload_s: Copies to the host and back that nothing hides.
        tensor_s: Collectives of the tensor group that nothing hides.
        context_s: Collectives of the context group that nothing hides.
        expert_s: Collectives of the expert group that nothing hides.
        forward_s: Part of the total before the loss, with its collectives.
        weight_gradient_s: Part of ``matrix_s`` that a zero-bubble schedule may do later.
        backward_s: Computation and recomputation after the loss; data-parallel reductions hide in it.
    """

    matrix_s: Floats
    attention_s: Floats
    pointwise_s: Floats
    host_s: Floats
    recompute_s: Floats
    offload_s: Floats
    tensor_s: Floats
    context_s: Floats
    expert_s: Floats
    forward_s: Floats
    weight_gradient_s: Floats
    backward_s: Floats

    @classmethod
    def nothing(cls, size: int) -> Work:
        """No work, for ``size`` layouts; ``dataclasses.replace`` puts in the parts that there are."""
        return cls(**dict.fromkeys(_PARTS, np.zeros(size)))

    @property
    def compute_s(self) -> Floats:
        """Forward and backward without recomputation and collectives."""
        return self.matrix_s + self.attention_s + self.pointwise_s + self.host_s

    @property
    def total_s(self) -> Floats:
        """Computation, recomputation and the collectives between."""
        # in order, so that a row's total does not depend on how many rows there are
        collectives_last = self.compute_s + self.recompute_s + self.offload_s
        return collectives_last + self.tensor_s + self.context_s + self.expert_s

    def __add__(self, other: Work) -> Work:
        return self._with(other, np.add)

    def __sub__(self, other: Work) -> Work:
        return self._with(other, np.subtract)

    def __mul__(self, count: npt.NDArray[Any] | float) -> Work:
        return self._each(lambda seconds: seconds * count)

    def passes(self) -> Passes:
        """These seconds, collectives included, by pass: what a schedule sees."""
        rest_s = self.total_s - self.forward_s - self.weight_gradient_s
        return Passes(forward_s=self.forward_s, input_s=rest_s, weight_s=self.weight_gradient_s)

    def beside(self, other: Work) -> Work:
        """The works of both tables, one after the other."""
        return self._with(other, lambda mine, theirs: np.concatenate([mine, theirs]))

    def take(self, index: Any) -> Work:
        """The works of some layouts, in the order of the index."""
        return self._each(lambda seconds: seconds[index])

    def _each(self, change: Callable[[Floats], Floats]) -> Work:
        return Work(**{name: change(getattr(self, name)) for name in _PARTS})

    def _with(self, other: Work, joined: Callable[[Floats, Floats], Floats]) -> Work:
        return Work(**{name: joined(getattr(self, name), getattr(other, name)) for name in _PARTS})


_PARTS = tuple(f.name for f in fields(Work))
