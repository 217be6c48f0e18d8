"""What the cost model answers: breakdowns whose parts sum to their total."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Memory", "Prediction", "StepTime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step on the critical path; only what is not hidden counts.

    Attributes:
        matrix_s: Matrix products of the slowest pipeline rank, forward and backward, the vocabulary's included.
        attention_s: Attention cores: scores, softmax, values.
        pointwise_s: What moves memory between them: norms, activations, rotations, sums, the loss.
        host_s: Waiting for the host to launch kernels that are shorter than a launch.
        recompute_s: Forward work of any of these done again in the backward pass.
        offload_s: Copies of activations to the host and back, as far as they take longer than the layers beside them.
        tensor_communication_s: Exposed collectives of the tensor group.
        context_communication_s: Exposed exchange of keys and values, or of heads, in the context group.
        expert_communication_s: Exposed all-to-all of the expert group.
        pipeline_communication_s: Exposed sends between stages.
        data_communication_s: Exposed gradient and parameter collectives of the data group.
        bubble_s: Idle time of the pipeline schedule.
        optimizer_s: The optimizer's own step.
    """

    matrix_s: float
    attention_s: float
    pointwise_s: float
    host_s: float
    recompute_s: float
    offload_s: float = 0.0  # records older than this field offloaded nothing
    tensor_communication_s: float
    context_communication_s: float
    expert_communication_s: float
    pipeline_communication_s: float
    data_communication_s: float
    bubble_s: float
    optimizer_s: float

    @property
    def total_s(self) -> float:
        """The step time: the sum of all parts."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Peak bytes of one rank on the worst pipeline stage.

    Attributes:
        activations_bytes: Saved for the backward pass of all micro-batches in flight, and what recomputation works on.
        logits_bytes: Output of the vocabulary projection, its softmax and gradient, where that stage holds them.
        buffers_bytes: Communication (gathered parameters, reduction buckets, receive buffers), and what the
            optimizer's step needs beyond the peak of the backward pass.
        allowance_bytes: What arithmetic does not see: context, workspaces, fragmentation.
    """

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    logits_bytes: float
    buffers_bytes: float
    allowance_bytes: float
    worst_stage: int

    @property
    def total_bytes(self) -> float:
        """The peak: the sum of all parts."""
        return float(sum(getattr(self, f.name) for f in fields(self) if f.name.endswith("_bytes")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The cost model's answer for one layout. Never a measurement.

    Attributes:
        tokens_per_s: Whole job.
        mfu: Model FLOP over what the accelerator's reference peak could do in that time (``Accelerator``).
        hfu: Hardware FLOP, recomputation counted, over the same.
        precision_utilization: Model FLOP over what the dense peak of the layout's own precision could do; never ranked
            by. None in records older than this field.
        fits: The predicted peak is within the accelerator's memory.
        fit_probability: How likely the measured peak is to be within it, 0..1; None in records older than this field.
        relative_error: Half-width e of the 80 % interval of the step time, which is total / (1 + e) .. total * (1 + e);
            None in records older than this field.
        validated: Runs of this kind of model and everything that the layout has were measured with this stack on this
            device, and compared.
        never_compared: Names of what it has that was compared with no measured run, on whatever stack and device.
        robust_step_s: Mean step time under the fault trace of its sweep; None without one.
        robust_mfu: MFU at that step time.
        imbalance: What the rank with most tokens computes above the mean, as a share of it; None where all sequences
            are as long.
        padding_waste: Padding as a share of real tokens; None there, too.
    """

    step_time: StepTime
    memory: Memory
    tokens_per_s: float
    mfu: float
    hfu: float
    fits: bool
    fit_probability: float | None = None
    relative_error: float | None = None
    validated: bool = False
    never_compared: tuple[str, ...] = ()
    precision_utilization: float | None = None
    robust_step_s: float | None = None
    robust_mfu: float | None = None
    imbalance: float | None = None
    padding_waste: float | None = None

    @property
    def expected_mfu(self) -> float:
        """What a run reaches on average: its MFU if it fits, nothing if it does not."""
        return self.mfu * (float(self.fits) if self.fit_probability is None else self.fit_probability)
