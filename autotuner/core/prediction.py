"""Prediction: step time and memory of a layout, with intervals.

A prediction and its parts are of one layout, or of many, with a column for each number: ``StepTime[Floats]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import reduce
from operator import add
from typing import Generic, Literal

from typing_extensions import TypeVar

from autotuner.core.measurement import Footprint
from autotuner.core.value import Count, CountFromZero, NonNegative, Positive, Share, derived, value

Number = TypeVar("Number", default=float)
"""A number of one layout, or a column of floats."""
Index = TypeVar("Index", default=int)
"""The same of whole numbers."""
Flag = TypeVar("Flag", default=bool)
"""The same of yes and no."""


@value
class TrialEstimate:
    """What a trial's layout would reach at full size, by all that the trials of its sweep have told so far."""

    full_size: FullSizeEstimate
    """Step time and memory with their intervals; what of them was measured."""
    tokens_per_s: Positive
    """Of the whole job, at the expected step time."""
    mfu: Positive
    """The same, over the reference peak of as many ranks as the job has."""
    num_trial_ranks: Count
    """Ranks that the trial ran on."""
    num_ranks: Count
    """Ranks of the job."""
    is_simulated: bool = False
    """Nothing ran: the trial was simulated."""
    footprint: Footprint | None = None
    """What the whole job takes beside time; None in records older than this field."""

    @property
    @derived
    def step_time_s(self) -> float:
        """Expected seconds of a step at full size."""
        return self.full_size.step_time_s

    @property
    def step_time_error_s(self) -> float:
        """Half the 95 % interval of the step time beside those of its sweep's other trials: what an order rests on."""
        return self.full_size.order_error_s

    @property
    def relative_error(self) -> float:
        """Half-width of the 80 % interval of the step time, as a share of it."""
        return self.full_size.relative_error

    @property
    def source(self) -> Literal["estimated"]:
        """The word for where its figures are from."""
        return "estimated"

    @property
    def highest_peak_bytes(self) -> float:
        """Estimated peak of the fullest rank."""
        return self.full_size.peak_bytes


@value
class StepTime(Generic[Number]):
    """Seconds of one optimizer step on the critical path; only what is not hidden counts."""

    matrix_s: Number
    """Matrix products of the slowest pipeline rank, forward and backward, the vocabulary's included."""
    attention_s: Number
    """Attention cores: scores, softmax, values."""
    pointwise_s: Number
    """What moves memory between them: norms, activations, rotations, sums, the loss."""
    host_s: Number
    """Waiting for the host to launch kernels that are shorter than a launch."""
    recompute_s: Number
    """Forward work of any of these done again in the backward pass."""
    offload_s: Number
    """Copies of activations to the host and back, as far as they take longer than the layers beside them."""
    tensor_communication_s: Number
    """Exposed collectives of the tensor group."""
    context_communication_s: Number
    """Exposed exchange of keys and values, or of heads, in the context group."""
    expert_communication_s: Number
    """Exposed all-to-all of the expert group."""
    pipeline_communication_s: Number
    """Exposed sends between stages."""
    data_communication_s: Number
    """Exposed gradient and parameter collectives of the data group."""
    bubble_s: Number
    """Idle time of the pipeline schedule."""
    optimizer_s: Number
    """The optimizer's own step."""

    @property
    def total_s(self) -> Number:
        """The step time: the sum of all parts."""
        parts: list[Number] = [getattr(self, f.name) for f in fields(self)]
        return _sum(parts)


@value
class Memory(Generic[Number, Index]):
    """Peak bytes of one rank on the worst pipeline stage."""

    parameters_bytes: Number
    gradients_bytes: Number
    optimizer_bytes: Number
    activations_bytes: Number
    """Saved for the backward pass of all micro-batches in flight, and what recomputation works on."""
    logits_bytes: Number
    """Output of the vocabulary projection, its softmax and gradient, where that stage holds them."""
    buffers_bytes: Number
    """Communication (gathered parameters, reduction buckets, receive buffers), and what the optimizer's step needs
    beyond the peak of the backward pass."""
    allowance_bytes: Number
    """What arithmetic does not see: context, workspaces, fragmentation."""
    worst_rank: Index

    @property
    def total_bytes(self) -> Number:
        """The peak: the sum of all parts."""
        parts: list[Number] = [getattr(self, f.name) for f in fields(self) if f.name.endswith("_bytes")]
        return _sum(parts)


def _sum(parts: Sequence[Number]) -> Number:
    """The sum in the order of the parts, so that a row's last digit does not depend on how many rows there are."""
    total: Number = reduce(add, parts)
    return total


@value
class Prediction(Generic[Number, Index, Flag]):
    """The cost model's answer for one layout, or for many. Never a measurement."""

    step_time: StepTime[Number]
    memory: Memory[Number, Index]
    tokens_per_s: Number
    """Whole job."""
    mfu: Number
    """Model FLOP over what the accelerator's reference peak could do in that time (``Accelerator``)."""
    hfu: Number
    """Hardware FLOP, recomputation counted, over the same."""
    fits: Flag
    """The predicted peak is within the accelerator's memory."""
    fit_probability: Number
    """How likely the measured peak is to be within it, 0..1."""
    relative_error: Number
    """Half-width e of the 80 % interval of the step time, which is total / (1 + e) .. total * (1 + e)."""
    validated: Flag
    """Runs of this kind of model and everything that the layout has were measured with this stack on this device, and
    compared."""
    never_compared: tuple[str, ...]
    """Names of what it has that was compared with no measured run, on whatever stack and device; of many layouts a
    column of such tuples."""
    precision_utilization: Number
    """Model FLOP over what the dense peak of the layout's own precision could do, 0 where that is not known; never
    ranked by."""
    robust_step_s: Number | None = None
    """Mean step time under the fault trace of its sweep; None without one."""
    robust_mfu: Number | None = None
    """MFU at that step time."""
    imbalance: Number | None = None
    """What the rank with most tokens computes above the mean, as a share of it; None where all sequences are as
    long."""
    padding_waste: Number | None = None
    """Padding as a share of real tokens; None there, too."""

    @property
    @derived
    def step_time_s(self) -> Number:
        """Sum of the parts of ``step_time``."""
        return self.step_time.total_s

    @property
    @derived
    def peak_bytes(self) -> Number:
        """Sum of the parts of ``memory``: one rank, worst stage."""
        return self.memory.total_bytes

    @property
    def highest_mfu(self: Prediction) -> float | None:
        """The MFU of a step at the peak of the layout's own precision, which no interval passes; None: not known."""
        return self.mfu / self.precision_utilization if self.precision_utilization else None

    @property
    def expected_mfu(self: Prediction) -> float:
        """What a run reaches on average: its MFU if it fits, nothing if it does not."""
        return self.mfu * self.fit_probability


_95_OF_80 = 1.9600 / 1.2816
"""Standard deviations from the median to an end of a 95 % interval of a normal distribution, over those of 80 %."""


@value
class FullSizeEstimate:
    """Step time and peak of a layout at full size, as proxy trials correct the model's prediction."""

    step_time_s: Positive
    """Expected seconds of a step: the median of what is believed."""
    relative_error: NonNegative
    """Half-width e of the 80 % interval, which is step_time_s / (1 + e) .. step_time_s * (1 + e), as that of a
    ``Prediction``."""
    peak_bytes: Positive
    """Expected peak of the fullest rank, what no allocator sees counted as in ``Memory``."""
    fit_probability: Share
    """How likely the peak is to be within the accelerator's memory, 0..1."""
    num_proxy_trials: CountFromZero
    """Proxy trials that told something of the step time."""
    measured_parts: tuple[str, ...] = ()
    """Parts of ``StepTime`` that a proxy trial of this very layout ran just as they are here."""
    modelled_parts: tuple[str, ...] = ()
    """The other parts that the step has: the model's word, corrected by what all trials teach."""
    measured_share: Share = 0.0
    """Share of the step in measured parts, by the model's breakdown, 0..1."""
    own_error: float | None = None
    """Half-width as ``relative_error``, of what is uncertain beside layouts that were estimated with it: errors that
    all share do not change their order. None where it was not told."""

    @property
    def order_error_s(self) -> float:
        """Half the 95 % interval of the step time beside those of the layouts that were estimated with it."""
        own = self.relative_error if self.own_error is None else self.own_error
        reach = float((1 + own) ** _95_OF_80)
        return self.step_time_s * (reach - 1 / reach) / 2

    @property
    def interval_80_s(self) -> tuple[float, float]:
        """Where the step time of the layout itself would lie in four of five cases."""
        return self.step_time_s / (1 + self.relative_error), self.step_time_s * (1 + self.relative_error)

    @property
    def interval_95_s(self) -> tuple[float, float]:
        """Where it would lie in nineteen of twenty."""
        reach = (1 + self.relative_error) ** _95_OF_80
        return self.step_time_s / reach, self.step_time_s * reach
