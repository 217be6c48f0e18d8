"""Prediction: step time and memory of a layout, with intervals.

A prediction describes one layout, or many layouts with a column for each number: ``StepTime[Floats]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import reduce
from operator import add
from typing import Generic, Literal

from typing_extensions import TypeVar

from autotuner.core.measurement import ResourceCost
from autotuner.core.value import Count, CountFromZero, NonNegative, Positive, Share, derived, value

Number = TypeVar("Number", default=float)
"""A number of one layout, or a column of floats for many layouts."""
Index = TypeVar("Index", default=int)
"""A whole number of one layout, or a column of whole numbers for many layouts."""
Flag = TypeVar("Flag", default=bool)
"""A truth value of one layout, or a column of truth values for many layouts."""


@value
class TrialEstimate:
    """An estimate of a trial's layout at full size, computed from all proxy trials of its sweep so far.

    A proxy trial is a small trial that stands for the full-size layout.
    """

    full_size: FullSizeEstimate
    """Estimated step time and memory of the whole job, with their intervals, and the parts of a step that were
    measured."""
    tokens_per_s: Positive
    """Token rate of the whole job, at the expected step time."""
    mfu: Positive
    """Model FLOP of a step at the expected step time, divided by the reference peak of all ranks of the job."""
    num_trial_ranks: Count
    """Number of ranks that the trial ran on."""
    num_ranks: Count
    """Number of ranks of the job."""
    is_simulated: bool = False
    """True if the trial was simulated, so that nothing ran."""
    resource_cost: ResourceCost | None = None
    """Cost, energy and complexity of the whole job; None in records older than this field."""

    @property
    @derived
    def step_time_s(self) -> float:
        """The expected seconds of a step of the full-size layout."""
        return self.full_size.step_time_s

    @property
    def step_time_error_s(self) -> float:
        """Half the width of the 95 % interval of the step time, without the errors that all trials of the sweep share.

        Shared errors are left out, because they do not change the order of the trials.
        """
        return self.full_size.order_error_s

    @property
    def relative_error(self) -> float:
        """Half-width e of the 80 % interval of the step time t. The interval goes from t / (1 + e) to t * (1 + e)."""
        return self.full_size.relative_error

    @property
    def source(self) -> Literal["estimated"]:
        """The word that tells where the numbers come from: ``estimated``."""
        return "estimated"

    @property
    def highest_peak_bytes(self) -> float:
        """The estimated peak memory in bytes of the rank that uses the most memory."""
        return self.full_size.peak_bytes


@value
class StepTime(Generic[Number]):
    """The seconds of one optimizer step by part. Only time that no other work hides counts."""

    matrix_s: Number
    """Time of matrix products on the slowest pipeline rank, forward and backward, including the output projection."""
    attention_s: Number
    """Time of the attention cores: scores, softmax, and their product with the values."""
    pointwise_s: Number
    """Time of operations between products that mainly move memory: norms, activations, rotations, sums, the loss."""
    host_s: Number
    """Time of waiting for the host to launch kernels that run for less time than their launch takes."""
    recompute_s: Number
    """Time of forward computation that the backward pass repeats (recomputation)."""
    offload_s: Number
    """Time of copies of activations to the host and back that is not hidden by computation."""
    tensor_communication_s: Number
    """Time of the exposed collectives of the tensor group."""
    context_communication_s: Number
    """Time of the exposed exchange of keys and values, or of heads, in the context group."""
    expert_communication_s: Number
    """Time of the exposed all-to-all of the expert group."""
    pipeline_communication_s: Number
    """Time of the exposed sends between pipeline stages."""
    data_communication_s: Number
    """Time of the exposed collectives of gradients and parameters in the data-parallel group."""
    bubble_s: Number
    """Idle time of the pipeline schedule (the bubble)."""
    optimizer_s: Number
    """Time of the optimizer's step."""

    @property
    def total_s(self) -> Number:
        """The seconds of the whole step: the sum of all parts."""
        parts: list[Number] = [getattr(self, f.name) for f in fields(self)]
        return _sum(parts)


@value
class Memory(Generic[Number, Index]):
    """The peak memory of one rank on the worst pipeline stage, in bytes by part."""

    parameters_bytes: Number
    gradients_bytes: Number
    optimizer_bytes: Number
    activations_bytes: Number
    """Activations that are saved for the backward pass of all micro-batches in flight, and temporary tensors of
    recomputation."""
    logits_bytes: Number
    """Output of the vocabulary projection, its softmax and its gradient, if the stage holds the projection."""
    buffers_bytes: Number
    """Communication buffers (gathered parameters, reduction buckets, receive buffers), and the memory of the
    optimizer's step beyond the peak of the backward pass."""
    allowance_bytes: Number
    """Memory that formulas do not count: the device context, workspaces of libraries, and fragmentation."""
    worst_rank: Index

    @property
    def total_bytes(self) -> Number:
        """The peak memory in bytes: the sum of all parts."""
        parts: list[Number] = [getattr(self, f.name) for f in fields(self) if f.name.endswith("_bytes")]
        return _sum(parts)


def _sum(parts: Sequence[Number]) -> Number:
    """Return the sum in the order of the parts, so that a row's last digit does not depend on other rows."""
    total: Number = reduce(add, parts)
    return total


@value
class Prediction(Generic[Number, Index, Flag]):
    """The cost model's prediction for one layout, or for many layouts as columns. It is never a measurement."""

    step_time: StepTime[Number]
    memory: Memory[Number, Index]
    tokens_per_s: Number
    """Tokens per second of the whole job."""
    mfu: Number
    """Model FLOP of a step divided by the FLOP that the accelerators' reference peaks allow in that time
    (``Accelerator``)."""
    hfu: Number
    """Hardware FLOP, including recomputation, divided by the same denominator as ``mfu``."""
    fits: Flag
    """True if the predicted peak is within the accelerator's memory."""
    fit_probability: Number
    """Probability that the measured peak is within the accelerator's memory, 0..1."""
    relative_error: Number
    """Half-width e of the 80 % interval of the step time. The interval is total / (1 + e) .. total * (1 + e)."""
    validated: Flag
    """True if predictions for this kind of model, all options of the layout, this stack and this device were compared
    with measured runs."""
    never_compared: tuple[str, ...]
    """Names of the layout's properties for which no prediction was ever compared with a measured run, on any stack and
    device. For many layouts, a column of such tuples."""
    precision_utilization: Number
    """Model FLOP divided by the FLOP that the dense peak of the layout's own precision allows; 0 if that peak is not
    known. Layouts are never ranked by this figure."""
    robust_step_s: Number | None = None
    """Mean step time under the fault trace of the sweep; None without a trace."""
    robust_mfu: Number | None = None
    """MFU at ``robust_step_s``."""
    imbalance: Number | None = None
    """Work of the rank with most tokens above the mean of the ranks, as a share of the mean; None if all sequences have
    the same length."""
    padding_waste: Number | None = None
    """Number of padding tokens divided by the number of real tokens; None if all sequences have the same length."""

    @property
    @derived
    def step_time_s(self) -> Number:
        """The predicted seconds of one step: the sum of the parts of ``step_time``."""
        return self.step_time.total_s

    @property
    @derived
    def peak_bytes(self) -> Number:
        """The predicted peak memory in bytes of one rank on the worst stage: the sum of the parts of ``memory``."""
        return self.memory.total_bytes

    @property
    def highest_mfu(self: Prediction) -> float | None:
        """The MFU of a step that reaches the peak of the layout's own precision; None if this peak is not known.

        No interval of the MFU can go above it.
        """
        return self.mfu / self.precision_utilization if self.precision_utilization else None

    @property
    def expected_mfu(self: Prediction) -> float:
        """The predicted MFU times the probability that the layout fits in memory."""
        return self.mfu * self.fit_probability


_95_OF_80 = 1.9600 / 1.2816
"""Width of a 95 % interval of a normal distribution divided by the width of its 80 % interval."""


@value
class FullSizeEstimate:
    """The step time and peak memory of a full-size layout: the model's prediction, corrected by proxy trials.

    A proxy trial is a small trial that stands for the full-size layout.
    """

    step_time_s: Positive
    """Expected seconds of a step (the median of the posterior)."""
    relative_error: NonNegative
    """Half-width e of the 80 % interval of the step time, which is step_time_s / (1 + e) .. step_time_s * (1 + e), as
    in ``Prediction``."""
    peak_bytes: Positive
    """Expected peak bytes of the rank with most memory, including the allowance of ``Memory``."""
    fit_probability: Share
    """Probability that the peak is within the accelerator's memory, 0..1."""
    num_proxy_trials: CountFromZero
    """Number of proxy trials that inform the estimate of the step time."""
    measured_parts: tuple[str, ...] = ()
    """Parts of ``StepTime`` that a proxy trial of this layout ran exactly as they are at full size."""
    modelled_parts: tuple[str, ...] = ()
    """Other parts of the step, which the cost model predicts and all trials correct."""
    measured_share: Share = 0.0
    """Share of the step time in the measured parts, by the cost model's breakdown, 0..1."""
    own_error: float | None = None
    """Half-width, as ``relative_error``, of the uncertainty that this layout does not share with other layouts that
    were estimated together. Shared errors do not change the order of layouts. None if it was not recorded."""

    @property
    def order_error_s(self) -> float:
        """Half the width of the 95 % interval of the step time, without errors that estimates of one search share.

        Layouts that are estimated together share these errors, so that the errors do not change the order of the
        layouts.
        """
        own = self.relative_error if self.own_error is None else self.own_error
        reach = float((1 + own) ** _95_OF_80)
        return self.step_time_s * (reach - 1 / reach) / 2

    @property
    def interval_80_s(self) -> tuple[float, float]:
        """The lower and the upper end of the 80 % interval of the step time, in seconds."""
        return self.step_time_s / (1 + self.relative_error), self.step_time_s * (1 + self.relative_error)

    @property
    def interval_95_s(self) -> tuple[float, float]:
        """The lower and the upper end of the 95 % interval of the step time, in seconds."""
        reach = (1 + self.relative_error) ** _95_OF_80
        return self.step_time_s / reach, self.step_time_s * reach
