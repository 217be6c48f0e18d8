"""Time of one micro-batch's passes on one rank: a roofline per part of the model.

Matrix multiplications run at a share of the dense peak, everything between them at a share of the memory bandwidth,
and each kernel costs a launch. Collectives inside the passes (tensor, context and expert groups) are timed here too,
since they sit between the multiplications and nothing hides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from autotuner.costmodel import collectives, flops
from autotuner.costmodel.columns import Booleans, Choices, Floats, Integers, LayoutColumns
from autotuner.domain.choice import AttentionKernel, Choice, Precision, Recompute
from autotuner.domain.cluster import Accelerator
from autotuner.domain.legality import Job

__all__ = ["Work", "element_bytes", "input_work", "layer_work", "optimizer_s", "output_work", "tokens_per_pass"]

GEMM_EFFICIENCY: Mapping[str, Mapping[Choice, float]] = {
    "cuda": {Precision.FP32: 0.85, Precision.BF16: 0.79, Precision.FP8: 0.55},
    "rocm": {Precision.FP32: 0.5, Precision.BF16: 0.5, Precision.FP8: 0.5},
    "cpu": {Precision.FP32: 0.95, Precision.BF16: 0.95},
}
"""Share of the dense peak that matrix multiplications reach.

cuda: median over m, n, k >= 2048 of the GEMM timings in ai-dynamo/aiconfigurator (2026-11): bf16 0.85 on A100, 0.79 on
H100, 0.77 on H200; fp8 0.53 on H100, 0.59 on H200; fp32 is set to A100's bf16. rocm: the best shape found for bf16 on
MI300X, 668 of 1,307 TFLOP/s (stas00/ml-engineering, MAMF table), for all formats. cpu: 96 of 103 GFLOP/s, measured for
n = 1,536 against n = 256, whose rate is the peak.
"""

ATTENTION_EFFICIENCY: Mapping[str, Mapping[Choice, float]] = {
    "cuda": {AttentionKernel.MATH: 0.4, AttentionKernel.EFFICIENT: 0.3, AttentionKernel.FLASH: 0.5},
    "rocm": {AttentionKernel.MATH: 0.4, AttentionKernel.EFFICIENT: 0.3, AttentionKernel.FLASH: 0.3},
    "cpu": {AttentionKernel.MATH: 0.15, AttentionKernel.FLASH: 0.2},
}
"""Share of the dense peak of the scores' and values' products, of the FLOP that the kernel really computes.

cuda: FlashAttention-2 (arXiv 2307.08691, figures 4 to 7, causal, head dimension 128, 2k to 8k): about 0.6 of an A100
and 0.35 of an H100, 0.3 for xformers' kernel; batched products of standard attention 0.4. rocm: as on H100. cpu:
measured with PyTorch's kernels in fp32, 1,024 tokens, head dimension 32, forward and backward (2026-11).
"""

SUSTAINED = {"cuda": 0.88, "rocm": 0.88, "cpu": 1.0}
"""Share of their benchmark rate that matrix multiplications keep over a training step, when power limits the clock.

Fit to whole training steps: with it, the median of predicted over measured step time is 1.05 for table 5 of arXiv
2205.05198 (A100, 8 rows), 0.84 for torchtitan's A100 rows (8) and 0.93 for the Llama-3.1-8B bf16 rows of NVIDIA's
dgxc-benchmarking (H100, 15). rocm is set to cuda's; a CPU's peak is measured warm.
"""

BANDWIDTH_EFFICIENCY = 0.85
"""Share of the stated memory bandwidth of streaming kernels: 1.74 of 2.04 TB/s for BabelStream's triad on an A100."""

KERNELS_PER_LAYER = 16
"""Forward kernels of a dense layer: 7 products, 2 norms, 2 rotations, attention, 2 for the gate, 2 residual sums."""

KERNELS_PER_ROUTING = 12
"""More of them in a sparse layer: router, softmax, top-k, sort, counts, permute and back, scale, sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Seconds that one micro-batch keeps a rank busy with some part of the model, forward and backward together.

    Attributes:
        compute_s: Forward and backward, nothing recomputed.
        weight_gradient_s: The share of ``compute_s`` that a zero-bubble schedule may do later.
        backward_s: The share of ``compute_s`` and ``recompute_s`` after the loss; data-parallel reductions hide in it.
    """

    compute_s: Floats
    recompute_s: Floats
    tensor_s: Floats
    context_s: Floats
    expert_s: Floats
    weight_gradient_s: Floats
    backward_s: Floats

    @property
    def total_s(self) -> Floats:
        """Computation, recomputation and the collectives between."""
        return self.compute_s + self.recompute_s + self.tensor_s + self.context_s + self.expert_s

    def __add__(self, other: Work) -> Work:
        return Work(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Work)})

    def __sub__(self, other: Work) -> Work:
        return self + other * -1

    def __mul__(self, count: Floats | Integers | Booleans | float) -> Work:
        return Work(**{f.name: getattr(self, f.name) * count for f in fields(Work)})

    def where(self, condition: Booleans, other: Work) -> Work:
        """This where the condition holds, the other elsewhere."""
        return Work(
            **{f.name: np.where(condition, getattr(self, f.name), getattr(other, f.name)) for f in fields(Work)}
        )


def element_bytes(x: LayoutColumns) -> Floats:
    """Bytes of an activation: 4 in fp32, else 2; fp8 multiplies what bf16 stores."""
    return np.where(x.precision == Precision.FP32, 4.0, 2.0)


def tokens_per_pass(x: LayoutColumns, job: Job) -> Floats:
    """Tokens of one micro-batch on one rank: the context group splits them, the tensor group sees them all."""
    return x.micro_batch_size * (float(job.workload.seq_len) / x.context_parallel_degree)


def layer_work(x: LayoutColumns, job: Job, *, sparse: bool) -> Work:
    """One layer, with its attention, its feed-forward block and the collectives of both."""
    matrix_s = _matrix_s(x, job, sparse=sparse)
    attention_s, attention_again = _attention_s(x, job)
    between_s = _between_s(x, job, sparse=sparse)
    forward_s = matrix_s + attention_s + between_s
    backward_s = 2 * matrix_s + attention_again * attention_s + 2 * between_s
    full = x.recompute == Recompute.FULL
    recompute_s = np.where(full, forward_s, np.where(x.recompute == Recompute.SELECTIVE, attention_s, 0.0))
    passes = 2.0 + full  # of the collectives: forward, backward, forward again
    return Work(
        compute_s=forward_s + backward_s,
        recompute_s=recompute_s,
        tensor_s=passes * _tensor_s(x, job),
        context_s=(1 + passes) * _key_value_gather_s(x, job),
        expert_s=passes * _dispatch_s(x, job) if sparse else np.zeros(len(x)),
        weight_gradient_s=matrix_s,
        backward_s=backward_s + recompute_s,
    )


def output_work(x: LayoutColumns, job: Job) -> Work:
    """Output projection, softmax and cross-entropy; the vocabulary is split over the tensor ranks."""
    accelerator = job.cluster.accelerator
    tokens = tokens_per_pass(x, job)
    matrix_s = tokens * flops.output_flop_per_token(job.model) / x.tensor_parallel_degree / _gemm_rate(x, accelerator)
    # fp32 logits: written, read for the maximum and the sum, read and written for the gradient
    passes_bytes = 5 * 4 * tokens * job.model.vocab_size / x.tensor_parallel_degree
    loss_s = passes_bytes / _stream_rate(accelerator)
    return _edge_work(x, job, forward_s=matrix_s + loss_s, backward_s=2 * matrix_s, weight_gradient_s=matrix_s)


def input_work(x: LayoutColumns, job: Job) -> Work:
    """Token lookup and its gradient: memory traffic."""
    moved_bytes = 2 * element_bytes(x) * tokens_per_pass(x, job) * job.model.hidden_size
    seconds = moved_bytes / _stream_rate(job.cluster.accelerator)
    return _edge_work(x, job, forward_s=seconds, backward_s=seconds, weight_gradient_s=np.zeros(len(x)))


def optimizer_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """AdamW on the elements a rank owns: read and write weight and two moments, read the gradient.

    In mixed precision the gradient is first widened to fp32 and the weight written a second time, in 16 bits.
    """
    moment_bytes = 4 if job.workload.optimizer_state_precision == "fp32" else 2
    widened_bytes = np.where(x.precision == Precision.FP32, 0.0, 2.0 + 4.0 + 2.0)
    moved_bytes = 2 * 4 + 2 * 2 * moment_bytes + 4 + widened_bytes
    seconds: Floats = num_elements * moved_bytes / _stream_rate(job.cluster.accelerator)
    return seconds


def _edge_work(x: LayoutColumns, job: Job, *, forward_s: Floats, backward_s: Floats, weight_gradient_s: Floats) -> Work:
    """Work at an end of the model: one all-reduce of the hidden states over the tensor ranks, nothing recomputed."""
    nothing = np.zeros(len(x))
    return Work(
        compute_s=forward_s + backward_s,
        recompute_s=nothing,
        tensor_s=_hidden_all_reduce_s(x, job),
        context_s=nothing,
        expert_s=nothing,
        weight_gradient_s=weight_gradient_s,
        backward_s=backward_s,
    )


# ---------------------------------------------------------------- computation
def _matrix_s(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    flop = tokens_per_pass(x, job) * flops.layer_matrix_flop_per_token(job.model, sparse=sparse)
    return flop / x.tensor_parallel_degree / _gemm_rate(x, job.cluster.accelerator)


def _attention_s(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """Forward seconds of the attention core, and how many times as long its backward takes.

    Flash and efficient kernels skip the masked half and compute the scores again in their backward, 5 products instead
    of 4 (arXiv 2307.08691, section 3.1); the math kernel does neither, and moves the scores through memory: written,
    read and written by the softmax, read.
    """
    accelerator = job.cluster.accelerator
    tokens = tokens_per_pass(x, job) / x.tensor_parallel_degree
    math = x.attention_kernel == AttentionKernel.MATH
    flop = tokens * flops.attention_flop_per_token(job.model, job.workload.seq_len) * np.where(math, 1.0, 0.5)
    efficiency = _column(ATTENTION_EFFICIENCY[accelerator.kind], x.attention_kernel)
    # fp8 attention is not widely run: its scores are bf16
    peak = np.where(x.precision == Precision.FP32, accelerator.fp32_flop_per_s, accelerator.bf16_flop_per_s)
    scores_bytes = 4 * element_bytes(x) * tokens * job.model.num_heads * job.workload.seq_len
    seconds = flop / (efficiency * peak) + np.where(math, scores_bytes / _stream_rate(accelerator), 0.0)
    return seconds, np.where(math, 2.0, 2.5)


def _between_s(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """Forward seconds of norms, residual sums, rotations and activations, and of all kernel launches.

    Elements read and written per token: each norm 2 h, each residual sum 3 h, the rotation twice its operand, the
    activation its inputs and its output. Sequence parallelism splits what the tensor ranks otherwise repeat
    (arXiv 2205.05198, section 4.2.2).
    """
    model, accelerator = job.model, job.cluster.accelerator
    tensor = x.tensor_parallel_degree
    hidden = (2 * 2 + 2 * 3) * model.hidden_size / np.where(x.sequence_parallel, tensor, 1)
    rotated = 2 * (model.query_size + model.key_value_size / 2) / tensor
    width = model.ffn_size
    if sparse and model.experts:
        active = model.experts.experts_per_token + model.experts.num_shared_experts
        width = active * model.experts.expert_ffn_size
        hidden = hidden + 4 * model.experts.experts_per_token * model.hidden_size / tensor  # permute and back
    activated = (3 if model.gated_mlp else 2) * width / tensor
    moved_bytes = element_bytes(x) * tokens_per_pass(x, job) * (hidden + rotated + activated)
    launches = KERNELS_PER_LAYER + (KERNELS_PER_ROUTING if sparse else 0)
    return moved_bytes / _stream_rate(accelerator) + launches * accelerator.kernel_launch_s


def _gemm_rate(x: LayoutColumns, accelerator: Accelerator) -> Floats:
    """FLOP per second of matrix multiplications in each layout's precision."""
    share = {p: GEMM_EFFICIENCY[accelerator.kind][p] * SUSTAINED[accelerator.kind] for p in accelerator.precisions}
    return _column({p: accelerator.peak_flop_per_s(p) * share[p] for p in accelerator.precisions}, x.precision)


def _column(values: Mapping[Choice, float], choices: Choices) -> Floats:
    """The value of each row's choice; no number for a choice that the hardware does not have."""
    table = np.full(1 + max(values), np.nan)
    for member, value in values.items():
        table[member] = value
    return table[choices]


def _stream_rate(accelerator: Accelerator) -> float:
    return BANDWIDTH_EFFICIENCY * accelerator.memory_bandwidth_bytes_per_s


# ---------------------------------------------------------------- collectives inside the passes
def _hidden_all_reduce_s(x: LayoutColumns, job: Job) -> Floats:
    """One all-reduce of a micro-batch's hidden states over the tensor ranks."""
    hidden_bytes = element_bytes(x) * tokens_per_pass(x, job) * job.model.hidden_size
    return collectives.all_reduce_s(hidden_bytes, collectives.tensor_group(x, job.cluster))


def _tensor_s(x: LayoutColumns, job: Job) -> Floats:
    """One pass through a layer: an all-reduce after attention and one after the feed-forward block.

    With sequence parallelism each becomes a reduce-scatter and an all-gather, which take as long (arXiv 2205.05198,
    section 4.2.2).
    """
    return 2 * _hidden_all_reduce_s(x, job)


def _key_value_gather_s(x: LayoutColumns, job: Job) -> Floats:
    """All-gather of a layer's keys and values over the context ranks; their gradients go back the same way."""
    sequence_tokens = x.micro_batch_size * float(job.workload.seq_len)
    full_bytes = element_bytes(x) * sequence_tokens * job.model.key_value_size / x.tensor_parallel_degree
    return collectives.all_gather_s(full_bytes, collectives.context_group(x, job.cluster))


def _dispatch_s(x: LayoutColumns, job: Job) -> Floats:
    """Two all-to-alls of a pass through a sparse layer: tokens to their experts and back, each sent top-k times."""
    if job.model.experts is None:
        return np.zeros(len(x))
    tokens = tokens_per_pass(x, job) / x.tensor_parallel_degree * job.model.experts.experts_per_token
    sent_bytes = element_bytes(x) * tokens * job.model.hidden_size
    return 2 * collectives.all_to_all_s(sent_bytes, collectives.expert_group(x, job.cluster))
