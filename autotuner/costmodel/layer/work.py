"""Work: how long one micro-batch keeps a rank busy with a part of the model, and the same by pass."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autotuner.core.columns import Floats
from autotuner.costmodel.table import Additive


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes(Additive):
    """Seconds of one micro-batch's passes through some stages, for many layouts."""

    forward_s: Floats
    """Forward."""
    input_s: Floats
    """Gradients of inputs, with what is computed again for them."""
    weight_s: Floats
    """Gradients of weights, the part that zero-bubble schedules defer."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Additive):
    """Seconds that one micro-batch keeps a rank busy with some part of the model, forward and backward together.

    The first nine make up the total; the others say of parts of it when they happen.
    """

    matrix_s: Floats
    """Matrix products, nothing recomputed; as are the next three."""
    attention_s: Floats
    """Attention cores."""
    pointwise_s: Floats
    """What moves memory between them."""
    host_s: Floats
    """Waiting for the host to launch kernels shorter than a launch."""
    recompute_s: Floats
    """Computation that is done again."""
    offload_s: Floats
    """Copies to the host and back that nothing hides."""
    tensor_s: Floats
    """Collectives of the tensor group that nothing hides."""
    context_s: Floats
    """Collectives of the context group that nothing hides."""
    expert_s: Floats
    """Collectives of the expert group that nothing hides."""
    forward_s: Floats
    """Part of the total before the loss, with its collectives."""
    weight_gradient_s: Floats
    """Part of ``matrix_s`` that a zero-bubble schedule may do later."""
    backward_s: Floats
    """Computation and recomputation after the loss; data-parallel reductions hide in it."""

    @classmethod
    def nothing(cls, size: int) -> Work:
        """No work, for ``size`` layouts; ``dataclasses.replace`` puts in the parts that there are."""
        return cls(**dict.fromkeys((f.name for f in fields(cls)), np.zeros(size)))

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

    def passes(self) -> Passes:
        """These seconds, collectives included, by pass: what a schedule sees."""
        rest_s = self.total_s - self.forward_s - self.weight_gradient_s
        return Passes(forward_s=self.forward_s, input_s=rest_s, weight_s=self.weight_gradient_s)
