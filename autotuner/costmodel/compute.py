"""Time of one micro-batch's passes on one rank, by part of the model.

Matrix products and attention cores take what the laws of ``gemm`` and ``attention`` say of their shapes, slowed by the
clock that the device sustains; what lies between them moves memory; kernels shorter than a launch wait for the host.
Collectives inside the passes (tensor, context and expert groups) are timed here too, since they sit between the
products and nothing hides them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from autotuner.catalog.kernels import kernels_for
from autotuner.costmodel import collectives
from autotuner.costmodel.attention import AttentionShape, attention_s
from autotuner.costmodel.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.costmodel.gemm import gemm_s, quantise_s
from autotuner.costmodel.work import Work
from autotuner.domain.choice import Precision, Recompute
from autotuner.domain.kernel_law import AttentionLaw, GemmLaw
from autotuner.domain.legality import Job

__all__ = [
    "input_work",
    "layer_work",
    "logits_split",
    "optimizer_s",
    "output_work",
    "stream_rate",
    "tokens_per_pass",
]

KERNELS_PER_LAYER = 16
"""Forward kernels of a dense layer: 7 products, 2 norms, 2 rotations, attention, 2 for the gate, 2 residual sums."""

KERNELS_PER_ROUTING = 12
"""More of them in a sparse layer: router, softmax, top-k, sort, counts, permute and back, scale, sum."""

LAUNCHES_PER_COLLECTIVE = 3
"""What issuing a collective costs the host, in kernel launches: checks, events on two streams, the kernel."""

BANDWIDTH_EFFICIENCY = 0.85
"""Share of the stated memory bandwidth of streaming kernels: 1.74 of 2.04 TB/s for BabelStream's triad on an A100."""


def tokens_per_pass(x: LayoutColumns, job: Job) -> Floats:
    """Tokens of one micro-batch on one rank: the context group splits them, the tensor group sees them all."""
    return x.micro_batch_size * (float(job.workload.seq_len) / x.context_parallel_degree)


def stream_rate(job: Job) -> float:
    """Bytes per second of kernels that only move memory."""
    return BANDWIDTH_EFFICIENCY * job.cluster.accelerator.memory_bandwidth_bytes_per_s


def layer_work(x: LayoutColumns, job: Job, *, sparse: bool, sends_cross: bool = False) -> Work:
    """One layer, with its attention, its feed-forward block and the collectives of both.

    Args:
        x: Layouts.
        job: The job.
        sparse: A layer with experts.
        sends_cross: Pipeline sends cross nodes meanwhile.
    """
    products = _layer_products_s(x, job, sparse=sparse)
    attention, attention_backward = _attention_s(x, job)
    pointwise = _pointwise_s(x, job, sparse=sparse)
    tensor_s = _tensor_s(x, job)
    backward = products.backward_s + attention_backward + 2 * pointwise
    launches_s = _launches_s(x, job, sparse=sparse, sends_cross=sends_cross)
    host = _host_s(job, launches_s, products.forward_s + attention + pointwise + tensor_s)
    host_backward = _host_s(job, launches_s, backward + tensor_s)
    forward_s = products.forward_s + attention + pointwise + host
    full = x.recompute == Recompute.FULL
    recompute_s = np.where(full, forward_s, np.where(x.recompute == Recompute.SELECTIVE, attention, 0.0))
    passes = 2.0 + full  # of the collectives: forward, backward, forward again
    hidden_s = np.minimum(tensor_s, products.weight_gradient_s) if job.stack.hides_tensor_backward else 0.0
    gather_s, dispatch_s = _key_value_gather_s(x, job), _dispatch_s(x, job) if sparse else 0.0
    return Work.of(
        len(x),
        matrix_s=products.forward_s + products.backward_s,
        attention_s=attention + attention_backward,
        pointwise_s=3 * pointwise,
        host_s=host + host_backward,
        recompute_s=recompute_s,
        tensor_s=passes * tensor_s - hidden_s,
        context_s=(1 + passes) * gather_s,
        expert_s=passes * dispatch_s,
        forward_s=forward_s + tensor_s + gather_s + dispatch_s,
        weight_gradient_s=products.weight_gradient_s,
        backward_s=backward + host_backward + recompute_s,
    )


def _launches_s(x: LayoutColumns, job: Job, *, sparse: bool, sends_cross: bool) -> Floats:
    """What launching a layer's forward pass costs the host; its backward, which starts in C++, costs as much."""
    kernels = KERNELS_PER_LAYER + (KERNELS_PER_ROUTING if sparse else 0)
    if job.cluster.accelerator.kind == "cpu":
        return np.full(len(x), kernels * job.cluster.accelerator.kernel_launch_s)
    collectives_per_pass = np.where(x.sequence_parallel, 4, 2) * (x.tensor_parallel_degree > 1)
    seconds: Floats = (kernels + LAUNCHES_PER_COLLECTIVE * collectives_per_pass) * job.stack.kernel_launch_s
    if sends_cross:  # two all-reduces, each twice around the ring
        seconds = seconds + 2 * 2 * (x.tensor_parallel_degree - 1) * job.stack.tensor_wait_s
    return seconds


def _host_s(job: Job, launches_s: Floats, device_s: Floats) -> Floats:
    """How long the device waits for launches.

    The host runs ahead of the device, so the longer of the two decides, but not through a whole step: it stops where it
    reads a result, and short kernels lie beside long ones. The power mean makes the corner about as round as vTrain's
    small models show it: passes of 25, 51 and 205 ms under 67 ms of launches took 67, 75 and 205 ms.

    On a CPU the core that launches also computes.
    """
    if job.cluster.accelerator.kind == "cpu":
        return launches_s
    return np.maximum(0.0, np.sqrt(np.sqrt(device_s**4 + launches_s**4)) - device_s)


def output_work(x: LayoutColumns, job: Job) -> Work:
    """Output projection, softmax and cross-entropy; the vocabulary is split over the tensor ranks."""
    tokens, tensor = tokens_per_pass(x, job), x.tensor_parallel_degree
    projection = _Product(inputs=job.model.hidden_size, outputs=job.model.vocab_size / tensor, tokens=tokens)
    products = _products_s(x, job, [projection], in_fp8=False)
    # fp32 logits: written, read for the maximum and the sum, read and written for the gradient; fused: read once less,
    # and all in 16 bits
    logit_bytes = 3 * x.element_bytes if job.stack.fuses_loss else 5 * 4.0
    passes_bytes = logit_bytes * tokens * job.model.vocab_size / logits_split(x, job)
    joined_bytes = x.element_bytes * tokens * job.model.vocab_size * job.stack.gathers_logits
    joined_s = collectives.all_gather_s(joined_bytes, collectives.tensor_group(x, job.cluster)) * (tensor > 1)
    loss_s = job.stack.pointwise_traffic * passes_bytes / stream_rate(job)
    return Work.of(
        len(x),
        matrix_s=products.forward_s + products.backward_s,
        pointwise_s=loss_s,
        tensor_s=_hidden_all_reduce_s(x, job) + joined_s,
        forward_s=products.forward_s + loss_s / 2 + joined_s,
        weight_gradient_s=products.weight_gradient_s,
        backward_s=products.backward_s + loss_s / 2,
    )


def logits_split(x: LayoutColumns, job: Job) -> Integers:
    """Ways in which a micro-batch's logits are split."""
    return np.where(job.stack.gathers_logits, 1, x.tensor_parallel_degree)


def input_work(x: LayoutColumns, job: Job) -> Work:
    """Token lookup and its gradient: memory traffic."""
    moved_bytes = 2 * x.element_bytes * tokens_per_pass(x, job) * job.model.hidden_size
    seconds = moved_bytes / stream_rate(job)
    tensor_s = _hidden_all_reduce_s(x, job)
    return Work.of(len(x), pointwise_s=2 * seconds, tensor_s=tensor_s, forward_s=seconds + tensor_s, backward_s=seconds)


def optimizer_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """AdamW on the elements a rank owns: read and write weight and two moments, read the gradient.

    In mixed precision the gradient is first widened to fp32 and the weight written a second time, in 16 bits.
    """
    moment_bytes = 4 if job.workload.optimizer_state_precision == "fp32" else 2
    widened_bytes = np.where(x.precision == Precision.FP32, 0.0, 2.0 + 4.0 + 2.0)
    moved_bytes = 2 * 4 + 2 * 2 * moment_bytes + 4 + widened_bytes
    seconds: Floats = job.stack.step_overhead_s + num_elements * moved_bytes / stream_rate(job)
    return seconds


# ---------------------------------------------------------------- matrix products
@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """``tokens`` rows through ``count`` matrices of inputs x outputs, each a number or a column."""

    tokens: Floats
    inputs: Floats | float
    outputs: Floats | float
    count: Floats | float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProductTimes:
    forward_s: Floats
    input_gradient_s: Floats
    weight_gradient_s: Floats

    @property
    def backward_s(self) -> Floats:
        return self.input_gradient_s + self.weight_gradient_s


_SHAPE_FIELDS = (
    "tensor_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
    "micro_batch_size",
    "precision",
)
"""All that the shapes of a layer's products depend on, and the format that they are in."""


def _layer_products(x: LayoutColumns, job: Job, *, sparse: bool) -> Iterator[_Product]:
    """The matrices of a layer as each rank multiplies them; a gate and its input are one product, twice as wide."""
    model, tensor, tokens = job.model, x.tensor_parallel_degree, tokens_per_pass(x, job)
    hidden = model.hidden_size
    output_elements = model.attention_output_size * hidden
    projected = (model.attention_matrix_parameters - output_elements) / hidden
    yield _Product(tokens=tokens, inputs=hidden, outputs=projected / tensor)
    yield _Product(tokens=tokens, inputs=model.attention_output_size / tensor, outputs=hidden)
    wide = 2 if model.gated_mlp else 1
    if not (sparse and model.experts):
        yield _Product(tokens=tokens, inputs=hidden, outputs=wide * model.ffn_size / tensor)
        yield _Product(tokens=tokens, inputs=model.ffn_size / tensor, outputs=hidden)
        return
    experts, ranks = model.experts, x.expert_parallel_degree
    width = experts.expert_ffn_size / np.where(ranks > 1, 1, tensor)
    # a tensor rank sends its part of the tokens to the expert ranks and gets those that chose its experts
    routed = tokens * experts.experts_per_token * ranks / np.where(ranks > 1, tensor, 1) / experts.num_experts
    local = experts.num_experts / ranks
    yield _Product(tokens=tokens, inputs=hidden, outputs=experts.num_experts)
    yield _Product(tokens=routed, inputs=hidden, outputs=wide * width, count=local)
    yield _Product(tokens=routed, inputs=width, outputs=hidden, count=local)
    if experts.num_shared_experts:
        shared = experts.num_shared_experts * experts.expert_ffn_size / tensor
        yield _Product(tokens=tokens, inputs=hidden, outputs=wide * shared)
        yield _Product(tokens=tokens, inputs=shared, outputs=hidden)


def _layer_products_s(x: LayoutColumns, job: Job, *, sparse: bool) -> _ProductTimes:
    """Seconds of a layer's products, timed once for each combination of what their shapes depend on."""
    few, which = x.distinct(*_SHAPE_FIELDS)
    times = _products_s(few, job, list(_layer_products(few, job, sparse=sparse)))
    return _ProductTimes(**{f.name: getattr(times, f.name)[which] for f in fields(times)})


def _products_s(x: LayoutColumns, job: Job, products: list[_Product], *, in_fp8: bool = True) -> _ProductTimes:
    """Seconds of all products of one pass, forward, and backward by gradient."""
    laws = kernels_for(job.cluster.accelerator).gemm
    if not in_fp8 and Precision.BF16 in laws:
        laws = {precision: laws[Precision.BF16 if precision == Precision.FP8 else precision] for precision in laws}
    sustained = job.cluster.accelerator.sustained_share / job.stack.matrix_slowdown
    total = np.zeros((3, len(x)))
    for rows, law in _by_precision(x, laws):
        for product in products:
            tokens, inputs, outputs, count = (
                np.broadcast_to(size, len(x))[rows]
                for size in (product.tokens, product.inputs, product.outputs, product.count)
            )
            convert_s = quantise_s(tokens * (inputs + outputs) * count / 2, law)
            for number, (m, n, k) in enumerate(
                ((tokens, outputs, inputs), (tokens, inputs, outputs), (inputs, outputs, tokens))
            ):
                total[number, rows] += gemm_s(m, n, k, law, count=count) / sustained + convert_s
    return _ProductTimes(forward_s=total[0], input_gradient_s=total[1], weight_gradient_s=total[2])


Law = TypeVar("Law", GemmLaw, AttentionLaw)


def _by_precision(x: LayoutColumns, laws: Mapping[Precision, Law]) -> Iterator[tuple[Booleans, Law]]:
    """Which rows each law is for; rows whose format the hardware lacks are for none."""
    for precision, law in laws.items():
        rows: Booleans = x.precision == precision
        if rows.any():
            yield rows, law


# ---------------------------------------------------------------- between the products
def _attention_s(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """Forward and backward seconds of the attention core."""
    model, tensor, seq_len = job.model, x.tensor_parallel_degree, float(job.workload.seq_len)
    sustained = job.cluster.accelerator.sustained_share
    forward_s, backward_s = np.zeros(len(x)), np.zeros(len(x))
    for rows, law in _by_precision(x, kernels_for(job.cluster.accelerator).attention):
        shape = AttentionShape(
            batch=x.micro_batch_size[rows],
            num_heads=model.num_heads / tensor[rows],
            num_kv_heads=model.num_kv_heads / tensor[rows],
            head_dim=model.query_size / model.num_heads,
            query_len=seq_len / x.context_parallel_degree[rows],
            key_len=seq_len,
        )
        forward, backward = attention_s(shape, x.attention_kernel[rows], law)
        forward_s[rows], backward_s[rows] = forward / sustained, backward / sustained
    return forward_s, backward_s


def _pointwise_s(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """Forward seconds of norms, residual sums, rotations and activations; a backward takes twice as long.

    Elements read and written per token: each norm 2 h, each residual sum 3 h, the rotation twice its operand, the
    activation its inputs and its output. Sequence parallelism splits what the tensor ranks otherwise repeat
    (arXiv 2205.05198, section 4.2.2). The stack says how much more than that it moves.
    """
    model, stack, tensor = job.model, job.stack, x.tensor_parallel_degree
    norms = 2 * (2 + np.where(x.fused_norm, 0.0, stack.unfused_norm_traffic))
    hidden = (norms + 2 * 3) * model.hidden_size / np.where(x.sequence_parallel, tensor, 1)
    rotated = 2 * (model.query_size + model.key_value_size / 2) / tensor
    width = model.ffn_size
    if sparse and model.experts:
        active = model.experts.experts_per_token + model.experts.num_shared_experts
        width = active * model.experts.expert_ffn_size
        hidden = hidden + 4 * model.experts.experts_per_token * model.hidden_size / tensor  # permute and back
    activated = (3 if model.gated_mlp else 2) * width / tensor
    moved_bytes = x.element_bytes * tokens_per_pass(x, job) * (hidden + rotated + activated)
    seconds: Floats = stack.pointwise_traffic * moved_bytes / stream_rate(job)
    return seconds


# ---------------------------------------------------------------- collectives inside the passes
def _hidden_all_reduce_s(x: LayoutColumns, job: Job) -> Floats:
    """One all-reduce of a micro-batch's hidden states over the tensor ranks."""
    hidden_bytes = x.element_bytes * tokens_per_pass(x, job) * job.model.hidden_size
    return collectives.all_reduce_s(hidden_bytes, collectives.tensor_group(x, job.cluster))


def _tensor_s(x: LayoutColumns, job: Job) -> Floats:
    """One pass through a layer: an all-reduce after attention and one after the feed-forward block.

    With sequence parallelism each becomes a reduce-scatter and an all-gather (arXiv 2205.05198, section 4.2.2).
    """
    hidden_bytes = x.element_bytes * tokens_per_pass(x, job) * job.model.hidden_size
    group = collectives.tensor_group(x, job.cluster)
    whole_s = collectives.all_reduce_s(hidden_bytes, group)
    split_s = collectives.reduce_scatter_s(hidden_bytes, group) + collectives.all_gather_s(hidden_bytes, group)
    return 2 * np.where(x.sequence_parallel, split_s, whole_s)


def _key_value_gather_s(x: LayoutColumns, job: Job) -> Floats:
    """All-gather of a layer's keys and values over the context ranks; their gradients go back the same way."""
    sequence_tokens = x.micro_batch_size * float(job.workload.seq_len)
    full_bytes = x.element_bytes * sequence_tokens * job.model.key_value_size / x.tensor_parallel_degree
    return collectives.all_gather_s(full_bytes, collectives.context_group(x, job.cluster))


def _dispatch_s(x: LayoutColumns, job: Job) -> Floats:
    """Two all-to-alls of a pass through a sparse layer: tokens to their experts and back, each sent top-k times."""
    if job.model.experts is None:
        return np.zeros(len(x))
    tokens = tokens_per_pass(x, job) / x.tensor_parallel_degree * job.model.experts.experts_per_token
    sent_bytes = x.element_bytes * tokens * job.model.hidden_size
    return 2 * collectives.all_to_all_s(sent_bytes, collectives.expert_group(x, job.cluster))
