"""Work: the time of one micro-batch on a rank, by part of a step and by pass."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autotuner.core.columns import Floats
from autotuner.costmodel.shared.table import Additive


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes(Additive):
    """Seconds of one micro-batch's passes through some pipeline stages, with one row per layout."""

    forward_s: Floats
    """Time of the forward pass."""
    input_s: Floats
    """Time for the gradients of inputs, including recomputation."""
    weight_s: Floats
    """Time for the gradients of weights, which zero-bubble schedules defer."""

    @property
    def backward_s(self) -> Floats:
        """The seconds of the whole backward pass: gradients of inputs and of weights."""
        return self.input_s + self.weight_s

    @property
    def total_s(self) -> Floats:
        """The seconds of the forward and the backward pass together. The backward pass includes recomputation."""
        return self.forward_s + self.input_s + self.weight_s

    def with_sends(self, send_s: Floats) -> Passes:
        """Return the passes with ``send_s`` seconds added to each forward pass and to each input gradient.

        Use it if a rank cannot compute while it sends: the pass then lasts until its result is sent.
        """
        return Passes(forward_s=self.forward_s + send_s, input_s=self.input_s + send_s, weight_s=self.weight_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Additive):
    """Seconds for which one micro-batch keeps a rank busy in some part of the model, in both passes together.

    The first nine fields sum to the total. The last three fields are parts of this total: the time before the loss, the
    weight gradients that a schedule may defer, and the time after the loss.
    """

    matrix_s: Floats
    """Time of matrix products, without recomputation."""
    attention_s: Floats
    """Time of attention cores, without recomputation."""
    pointwise_s: Floats
    """Time of operations between products that mainly move memory, without recomputation."""
    host_s: Floats
    """Time of waiting for the host, where kernels are shorter than their launch. Recomputation is not included."""
    recompute_s: Floats
    """Time of repeated computation."""
    offload_s: Floats
    """Time of copies to the host and back that computation does not hide."""
    tensor_s: Floats
    """Time of exposed collectives of the tensor group."""
    context_s: Floats
    """Time of exposed collectives of the context group."""
    expert_s: Floats
    """Time of exposed collectives of the expert group."""
    forward_s: Floats
    """Part of the total time before the loss, with its collectives."""
    weight_gradient_s: Floats
    """Part of ``matrix_s`` that a zero-bubble schedule may defer."""
    backward_s: Floats
    """Time of computation and recomputation after the loss, during which data-parallel reductions can be hidden."""

    @classmethod
    def nothing(cls, size: int) -> Work:
        """Return work of zero seconds for ``size`` layouts. Use ``dataclasses.replace`` to set some of its times."""
        return cls(**dict.fromkeys((f.name for f in fields(cls)), np.zeros(size)))

    @property
    def compute_s(self) -> Floats:
        """The seconds of a micro-batch's computation in both passes, without recomputation, copies, collectives."""
        return self.matrix_s + self.attention_s + self.pointwise_s + self.host_s

    @property
    def total_s(self) -> Floats:
        """The seconds of a micro-batch's computation, recomputation, exposed copies and exposed collectives."""
        # in order, so that a row's total does not depend on how many rows there are
        collectives_last = self.compute_s + self.recompute_s + self.offload_s
        return collectives_last + self.tensor_s + self.context_s + self.expert_s

    def passes(self) -> Passes:
        """Return the total seconds, divided into forward, input-gradient and weight-gradient passes.

        The passes include recomputation and exposed collectives.
        """
        rest_s = self.total_s - self.forward_s - self.weight_gradient_s
        return Passes(forward_s=self.forward_s, input_s=rest_s, weight_s=self.weight_gradient_s)
