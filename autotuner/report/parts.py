"""Parts of a step and of a rank's memory in words: their names, their limits and their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import numpy as np

from autotuner.core.choices import (
    ContextExchange,
    GradientClip,
    GradientSync,
    OptimizerKernel,
    P2PTransport,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import BF16_ON_CORES, Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import StepTime
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stages import follows_signs
from autotuner.core.units import format_bytes, format_count, format_rate, format_seconds
from autotuner.costmodel.memory.weights import Sharding, state_bytes
from autotuner.costmodel.shared.stages import load_of_rank
from autotuner.report.links import link_in_words
from autotuner.report.words import likely, listed, percent, plain
from autotuner.search.explain.step_parts import ACTIVITY_WORDS, COMPUTED, PASSES, Limit, StepPart, StepParts

PART_WORDS: Mapping[str, str] = {
    "matrix_s": "matrix products",
    "attention_s": "attention",
    "pointwise_s": "memory traffic",
    "host_s": "kernel launches",
    "recompute_s": "recomputation",
    "offload_s": "activation offload",
    "tensor_communication_s": "tensor communication",
    "context_communication_s": "context communication",
    "expert_communication_s": "expert communication",
    "pipeline_communication_s": "pipeline communication",
    "data_communication_s": "data communication",
    "bubble_s": "pipeline bubble",
    "optimizer_s": "optimizer",
    BF16_ON_CORES: "products in bf16",
    "parameters_bytes": "parameters",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer states",
    "activations_bytes": "activations",
    "logits_bytes": "logits",
    "buffers_bytes": "buffers",
    "allowance_bytes": "allowance",
}
"""Words for each part of ``StepTime`` and ``Memory``, and for each factor of a calibration."""

_WORTHWHILE = 0.01
"""Smallest share of the step that is mentioned for a part that changes, or for recomputation."""


# ------------------------------------------------------------------ parts of a step
def part_name(part: StepPart) -> str:
    """Return the name of a part of a step: ``tensor and data collectives``."""
    every = [*part.predicted]
    if not every:
        return "anything else"
    if len(every) == 1 or PASSES.issuperset(every):
        return ACTIVITY_WORDS[every[0]]
    if PASSES.isdisjoint(every):
        return f"{listed(every)} collectives"
    return "forward and backward, with what interrupts them"


def part_limit(part: StepPart, step: StepParts, layout: Layout) -> str:
    """Describe the cause of the duration of one part of a step, such as compute or bandwidth.

    For a forward pass, the text names the kinds of work and the limit of the largest kind. For any other part, it names
    the limit of each kind of work in the part.

    Args:
        part: The part of the step.
        step: The whole step.
        layout: The layout whose step it is.
    """
    seconds = part.predicted
    if not seconds:
        return "measured only: the cost model does not predict this part"
    if "forward" in seconds:
        return _kinds_of_work(step.predicted, part.limits[0], layout)
    said = []
    if "backward" in seconds:
        has_weights = any(one.predicted.get("weight") for one in step.parts)
        said.append("the same work for gradients of inputs" + ("" if has_weights else " and weights"))
    if seconds.get("weight"):
        said.append("gradients of weights, which the schedule computes while a rank would otherwise wait")
    for limit in part.limits:
        is_beside = limit.part == "recompute_s" and "backward" in seconds
        of_it = f"{format_seconds(seconds['recompute'])} of it predicted for " if is_beside else ""
        said.append(of_it + limit_in_words(limit, layout))
    return "; ".join(said)


def _kinds_of_work(predicted: StepTime, limit: Limit, layout: Layout) -> str:
    """Return what the computation consists of, the largest kind first with its limit."""
    seconds = {name: float(getattr(predicted, name)) for name in COMPUTED}
    falling = sorted((name for name in COMPUTED if seconds[name] > 0), key=lambda name: -seconds[name])
    kinds = ", ".join(f"{PART_WORDS[name]} {percent(seconds[name] / sum(seconds.values()))}" for name in falling)
    return f"{kinds}; most by {limit_in_words(limit, layout)}"


def loss_in_words(step: StepParts) -> str:
    """Describe, in sentences, the share of a step that computes, and the largest other parts of the step.

    The text uses measured times if the step was measured under the profiler. Times of phases without the profiler are
    not enough, because the time of a pass then includes waiting and communication within the pass.
    """
    is_measured = step.measured_s is not None
    seconds = {
        part_name(part): (part.kind, (part.measured_s if is_measured else part.predicted_s) or 0.0)
        for part in step.parts
    }
    whole_s = sum(each_s for _, each_s in seconds.values())
    lost = {name: s for name, (kind, s) in seconds.items() if kind not in ("forward", "backward", "weight")}
    said = f"{likely(1 - sum(lost.values()) / whole_s)} of the step computes."
    recompute_s = step.predicted.recompute_s
    if is_measured and recompute_s >= _WORTHWHILE * step.predicted_s:
        share = percent(recompute_s / step.predicted_s)
        said += f" Of that, recomputation is predicted to be {format_seconds(recompute_s)} ({share})."
    largest = sorted((name for name in lost if lost[name] > 0), key=lambda name: -lost[name])[:2]
    if not largest:
        return said
    first, *second = (f"{name}, {format_seconds(lost[name])}" for name in largest)
    then = f", then {second[0]}" if second else ""
    return f"{said} The largest part of the rest is {first} ({percent(lost[largest[0]] / whole_s)}){then}."


def moved_in_words(before: StepTime, after: StepTime) -> str:
    """Describe which part of a step shrinks most and which grows most from ``before`` to ``after``.

    The changes are shares of the total time of the step ``before``.
    """
    shifts = {f.name: (getattr(after, f.name) - getattr(before, f.name)) / before.total_s for f in fields(StepTime)}
    least, most = min(shifts, key=shifts.__getitem__), max(shifts, key=shifts.__getitem__)
    texts = []
    if shifts[least] <= -_WORTHWHILE:
        texts.append(f"removes {percent(-shifts[least])} {PART_WORDS[least]}")
    if shifts[most] >= _WORTHWHILE:
        texts.append(f"adds {percent(shifts[most])} {PART_WORDS[most]}")
    return " and ".join(texts) or "changes little"


# ------------------------------------------------------------------ limits of parts
def limit_in_words(limit: Limit, layout: Layout) -> str:
    """Describe, as a sentence without a full stop, what limits a part of a step.

    Args:
        limit: The limit, with the name of the part.
        layout: The layout whose step it is.
    """
    return _LIMITS[limit.part](limit, layout)


def _rate(limit: Limit, unit: str = "B/s") -> str:
    assert limit.rate is not None, "it is limited by a rate"
    return format_rate(limit.rate, unit)


def _matrix(limit: Limit, layout: Layout) -> str:
    peak = _rate(limit, "FLOP/s")
    return f"the rate at which {limit.device} multiplies matrices in {layout.precision}; its dense peak is {peak}"


def _pointwise(limit: Limit, layout: Layout) -> str:
    norms = "norms" if layout.fused_norm or layout.compiled else "unfused norms"
    how = ", each compiled to one kernel" if layout.compiled else ""
    return (
        f"memory bandwidth, {_rate(limit)}: {norms}, activation functions, sums and the loss read and write "
        f"their tensors{how}"
    )


def _recompute(limit: Limit, layout: Layout) -> str:
    names = f"recomputation ({' and '.join(policy.value for policy in limit.recomputed)}) runs"
    again = _AGAIN.get(limit.recomputed, names)
    every = f" on one layer in {layout.recompute_every}" if layout.recompute_every > 1 else ""
    return f"recompute {layout.recompute}: {again} again in the backward pass{every}, to save memory"


_AGAIN: Mapping[tuple[RecomputePolicy, ...], str] = {
    (): "the forward pass runs",
    (RecomputePolicy.ALL_BUT_PRODUCTS,): "all but matrix products runs",
    (RecomputePolicy.CORE_ATTN,): "the attention cores run",
}


def _offload(limit: Limit, layout: Layout) -> str:
    what = "all that a layer saves" if layout.recompute == Recompute.NONE else "each layer's input"
    return (
        f"the link to the host, {_rate(limit)}: {what} is copied to the host and back, which takes longer than the "
        "layer computes"
    )


def _over(limit: Limit) -> str:
    """Return the slowest link inside the groups of an axis, and the part of a described network that limits it."""
    return limit.link if limit.link == limit.limiting_link else f"{limit.link}, limited by {limit.limiting_link}"


def _tensor(limit: Limit, layout: Layout) -> str:
    cut_up = (
        "in parts that overlap with matrix products; the first part of each collective has no product to overlap with"
    )
    how = cut_up if layout.async_tensor_parallel else "while the next matrix product waits"
    return f"collectives of {limit.num_ranks} tensor ranks over {_over(limit)}, {how}"


_EXCHANGES: Mapping[ContextExchange, str] = {
    ContextExchange.RING: "keys and values sent around a ring, as far as attention does not hide the time, among",
    ContextExchange.ALL_GATHER: "keys and values gathered before attention among",
    ContextExchange.ALL_TO_ALL: "heads exchanged for parts of the sequence and back among",
}


def _pipeline(limit: Limit, layout: Layout) -> str:
    sent = (
        f"hidden states sent between {layout.num_stages} stages over {_over(limit)}, as far as no other work hides "
        "the time"
    )
    if not limit.slow_links:
        return sent
    delegated = layout.p2p_transport == P2PTransport.DELEGATED
    how = (
        "delegates (helper processes) send the data, and no rank waits until it is sent"
        if delegated
        else "a rank that sends over it waits"
    )
    plans = layout.pipeline_schedule == PipelineSchedule.ADAPTIVE
    ahead = (
        "the schedule runs more forward passes ahead"
        if plans
        else f"schedule {plain(layout.pipeline_schedule)} does not adapt to it"
    )
    return f"{sent}; {', '.join(map(link_in_words, limit.slow_links))}: {how}, and {ahead}"


def _data(limit: Limit, layout: Layout) -> str:
    over, inner = _over(limit), layout.data_parallel_shard_degree
    if layout.gradient_sync != GradientSync.FULL:
        inside = f"; the {inner} shards of each replica sum all gradients" if inner > 1 else ""
        sent = _SENT[layout.gradient_sync](layout)
        return f"{sent} of {limit.num_ranks} replicas over {over}, after the backward pass{inside}"
    what = "gradients" if layout.shard_level == ShardLevel.NONE else "gradients and parameters"
    what = f"fp32 {what}" if layout.fp32_gradient_reduce else what
    whose = "data and context ranks" if layout.context_parallel_degree > 1 else "replicas"
    waits = layout.gradient_clip == GradientClip.PRE
    hidden = "after the norm of the whole gradient is known" if waits else "without the time that computation hides"
    return f"{what} of {limit.num_ranks} {whose} over {over}, {hidden}"


_SENT: Mapping[GradientSync, Callable[[Layout], str]] = {
    GradientSync.DEMO: lambda x: f"the {x.sync_top_k} largest cosine components of {x.sync_chunk} momentum elements",
    GradientSync.RANDOM: lambda x: f"one momentum element of {x.sync_sparsity}",
    GradientSync.STRIDING: lambda x: f"one momentum element of {x.sync_sparsity}",
    GradientSync.DILOCO: lambda x: f"parameters, every {x.sync_period} steps,",
}
"""Words for the data that each lossy gradient exchange sends."""


def _bubble(limit: Limit, layout: Layout) -> str:
    stages = f"{layout.num_stages} stages on {layout.pipeline_parallel_degree} pipeline ranks"
    batches = f"{limit.num_micro_batches} micro-batches ({plain(layout.pipeline_schedule)})"
    return f"{stages} are filled and emptied before and after {batches}"


def _optimizer(limit: Limit, layout: Layout) -> str:
    shards = layout.data_parallel_shard_degree
    held = "its weights" if shards == 1 else f"1/{shards} of its weights"
    rank = f"memory bandwidth, {_rate(limit)}: a rank reads and writes"
    if follows_signs(layout):
        return f"{rank} {held}, and moves them by the signs of the exchanged momentum"
    times = "" if layout.optimizer_kernel == OptimizerKernel.FUSED else ", one kernel for each operation"
    return f"{rank} AdamW's states of {held}{times}"


_LIMITS: Mapping[str, Callable[[Limit, Layout], str]] = {
    "matrix_s": _matrix,
    "attention_s": lambda limit, x: (
        f"the {plain(x.attention_kernel)} attention kernel on sequences of {limit.seq_len} tokens; the time "
        "grows with the square of their length"
    ),
    "pointwise_s": _pointwise,
    "host_s": lambda _, x: (
        f"the host: with micro-batch size {x.micro_batch_size}, some kernels take less time than their launch"
    ),
    "recompute_s": _recompute,
    "offload_s": _offload,
    "tensor_communication_s": _tensor,
    "context_communication_s": lambda limit, x: (
        f"{_EXCHANGES[x.context_exchange]} {limit.num_ranks} context ranks over {_over(limit)}"
    ),
    "expert_communication_s": lambda limit, _: (
        f"tokens sent to their experts on {limit.num_ranks} expert ranks over {_over(limit)}, and back"
    ),
    "pipeline_communication_s": _pipeline,
    "data_communication_s": _data,
    "bubble_s": _bubble,
    "optimizer_s": _optimizer,
}


# ------------------------------------------------------------------ where memory comes from
def source_in_words(part: str, layout: Layout, job: Job) -> str:
    """Describe why a part of a rank's memory is as large as it is.

    Args:
        part: Name of a field of ``Memory``.
        layout: The layout of the rank.
        job: The job that the layout trains.
    """
    return _SOURCES[part](layout, job)


def _parameters(layout: Layout, job: Job) -> str:
    size = f"{format_count(job.model.num_parameters)} × {_bytes(_sharding(layout, job).parameter_bytes)}"
    split = f"{size} / {_split(layout)}" if _split(layout) else size
    if layout.shard_level == ShardLevel.PARAMETERS:
        return f"{split}, each shared by {_ranks(layout, job)}"
    return f"{split}, whole on every data-parallel rank" if layout.data_parallel_degree > 1 else split


def _gradients(layout: Layout, job: Job) -> str:
    sharding = _sharding(layout, job)
    each = _bytes(sharding.summed_bytes)
    whose = "for each weight of the rank" if sharding.whole_gradients[0] else f"each, shared by {_ranks(layout, job)}"
    twice = ", twice: buckets, and sums of earlier micro-batches" if sharding.gradient_copies[0] > 1 else ""
    return f"{each} {whose}{twice}; 0 if the peak of memory is before the first backward pass"


def _states(layout: Layout, job: Job) -> str:
    master = 0 if layout.precision == Precision.FP32 else 4
    state = float(state_bytes(LayoutColumns.from_layouts([layout]), job)[0])
    steps, remembers = _remembers(layout, job)
    what = f"{steps}: {master + state:.0f} bytes a weight, {remembers}"
    what += " and an fp32 master" if master else ""
    return what if layout.shard_level == ShardLevel.NONE else f"{what}, shared by {_ranks(layout, job)}"


def _remembers(layout: Layout, job: Job) -> tuple[str, str]:
    """Return the name of the optimizer, and the values that it and the gradient exchange store for each weight."""
    if follows_signs(layout):
        return "sign descent", "an fp32 momentum"
    moments = f"two {job.workload.optimizer_state_precision} moments"
    if layout.gradient_sync == GradientSync.FULL:
        return "AdamW", moments
    kept = "anchor" if layout.gradient_sync == GradientSync.DILOCO else "momentum"
    return "AdamW", f"{moments}, the {kept} of the {layout.gradient_sync} exchange"


def _activations(layout: Layout, job: Job) -> str:
    load = load_of_rank(LayoutColumns.from_layouts([layout]), job, np.array([0]))
    in_flight = f"{float(load.micro_batches_in_flight[0]):.3g} micro-batch(es) in flight on rank 0"
    kept = {
        Recompute.NONE: "all that the backward pass reads",
        Recompute.SELECTIVE: "what selective recomputation keeps",
        Recompute.FULL: "only the inputs of layers, and one layer that is recomputed",
    }[layout.recompute]
    elsewhere = ", most of it in the host's memory" if layout.offload_activations else ""
    return f"{in_flight}, {layout.micro_batch_size} × {job.workload.seq_len:,} tokens each: {kept}{elsewhere}"


def _logits(layout: Layout, job: Job) -> str:
    tokens = (
        f"{layout.micro_batch_size} × {job.workload.seq_len:,} tokens × {job.model.vocab_size:,} vocabulary entries"
    )
    split = layout.tensor_parallel_degree > 1
    how = f" / tp {layout.tensor_parallel_degree}" if split and layout.loss_parallel else ""
    held = ", of every micro-batch" if layout.pipeline_schedule == PipelineSchedule.GPIPE else ""
    where = ", where the loss is" if layout.pipeline_parallel_degree > 1 else ""
    return f"{tokens}{how}, and their softmax and gradients{held}{where}"


def _buffers(layout: Layout, job: Job) -> str:
    parts = []
    if layout.shard_level == ShardLevel.PARAMETERS:
        stays = "two layers of" if layout.reshard_after_forward else "all"
        parts.append(f"{stays} gathered weights")
    if layout.shard_level >= ShardLevel.GRADIENTS:
        parts.append("gradients that are being sent")
    if layout.pipeline_parallel_degree > 1 and job.stack.keeps_receive_buffers:
        count = job.workload.num_micro_batches(layout)
        parts.append(f"receive buffers for {count} micro-batches")
    parts.append("memory that the optimizer's step needs beyond the peak of the forward and backward passes")
    return ", ".join(parts)


def _allowance(_: Layout, job: Job) -> str:
    if job.cluster.accelerator.kind == "cpu":
        return "none: on CPU cores, only the bytes of tensors count as memory"
    share = f"{100 * job.stack.activation_overhead:.3g} % of the activations"
    return (
        f"{format_bytes(job.stack.allowance_bytes)} of context and workspaces, and {share}: a reserve, not a prediction"
    )


def _sharding(layout: Layout, job: Job) -> Sharding:
    return Sharding.of(LayoutColumns.from_layouts([layout]), job)


def _ranks(layout: Layout, job: Job) -> str:
    sharding = _sharding(layout, job)
    dense, expert = float(sharding.dense_ranks[0]), float(sharding.expert_ranks[0])
    return f"{dense:.4g} ranks" if dense == expert else f"{dense:.4g} ranks, the weights of experts by {expert:.4g}"


def _split(layout: Layout) -> str:
    degrees = ("tp", layout.tensor_parallel_degree), ("pp", layout.pipeline_parallel_degree)
    factors = [f"{name} {degree}" for name, degree in degrees if degree > 1]
    product = f"({' × '.join(factors)})" if len(factors) > 1 else "".join(factors)
    if layout.expert_parallel_degree > 1:
        experts = f"experts also / ep {layout.expert_parallel_degree}"
        return f"{product}, {experts}" if product else f"ep {layout.expert_parallel_degree} for the experts"
    return product


def _bytes(column: object) -> str:
    return f"{float(np.asarray(column)[0]):.3g} bytes"


_SOURCES: Mapping[str, Callable[[Layout, Job], str]] = {
    "parameters_bytes": _parameters,
    "gradients_bytes": _gradients,
    "optimizer_bytes": _states,
    "activations_bytes": _activations,
    "logits_bytes": _logits,
    "buffers_bytes": _buffers,
    "allowance_bytes": _allowance,
}
