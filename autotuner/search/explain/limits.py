"""What limits each part of a step, and where each part of memory comes from: sentences with the layout's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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
from autotuner.core.placement import Spread, pipeline_crosses, replicate_spreads
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stages import follows_signs
from autotuner.core.units import format_bytes, format_count, format_rate
from autotuner.costmodel.memory.weights import Sharding, state_bytes
from autotuner.costmodel.stages import load_of_rank
from autotuner.search.explain.communication import routes
from autotuner.search.text.links import link_in_words

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
"""What a sentence calls each part of ``StepTime`` and ``Memory``, and what a calibration has a factor for."""


def limit_of(part: str, layout: Layout, job: Job) -> str:
    """Why that part of a step or of a rank's memory is as large as it is; a field of ``StepTime`` or ``Memory``."""
    return _LIMITS[part](layout, job)


def _matrix(layout: Layout, job: Job) -> str:
    accelerator = job.cluster.accelerator
    peak = format_rate(accelerator.peak_flop_per_s(layout.precision), "FLOP/s")
    return f"the rate at which {accelerator.name} multiplies matrices in {layout.precision}; its dense peak is {peak}"


def _attention(layout: Layout, job: Job) -> str:
    kernel = str(layout.attention_kernel).replace("_", " ")
    return f"the {kernel} attention kernel on sequences of {job.workload.seq_len}; grows with their square"


def _bandwidth(job: Job) -> str:
    return f"memory bandwidth, {format_rate(job.cluster.accelerator.memory_bandwidth_bytes_per_s, 'B/s')}"


def _pointwise(layout: Layout, job: Job) -> str:
    norms = "norms" if layout.fused_norm or layout.compiled else "unfused norms"
    how = ", each compiled to one kernel" if layout.compiled else ""
    return f"{_bandwidth(job)}: {norms}, activations, sums and the loss read and write their tensors{how}"


def _recompute(layout: Layout, job: Job) -> str:
    every = f" on one layer in {layout.recompute_every}" if layout.recompute_every > 1 else ""
    return f"recompute {layout.recompute}: {_again(layout, job)} again in the backward pass{every}, to save memory"


def _again(layout: Layout, job: Job) -> str:
    if layout.recompute == Recompute.FULL:
        return "the forward pass runs"
    policies = job.stack.selective_recompute
    if policies == (RecomputePolicy.ALL_BUT_PRODUCTS,):
        return "all but matrix products runs"
    if policies == (RecomputePolicy.CORE_ATTN,):
        return "the attention cores run"
    return f"what {' and '.join(policy.value for policy in policies)} names runs"


def _offload(layout: Layout, job: Job) -> str:
    rate = format_rate(job.cluster.accelerator.host_bandwidth_bytes_per_s, "B/s")
    what = "all that a layer saves" if layout.recompute == Recompute.NONE else "each layer's input"
    return f"the link to the host, {rate}: {what} goes there and comes back, in longer than the layer takes"


def _over(layout: Layout, job: Job, axis: str, spread: Spread) -> str:
    """The slowest link inside the groups of an axis, and what limits them on a described network."""
    link = job.cluster.link_for(spread.num_ranks, spread.stride).name
    found = next((route.limiting_link for route in routes(layout, job) if route.axis == axis), link)
    return link if found == link else f"{link}, limited by {found}"


def _tensor(layout: Layout, job: Job) -> str:
    ranks = layout.tensor_parallel_degree
    link = _over(layout, job, "tensor", Spread(ranks, 1))
    how = "cut up under" if layout.async_tensor_parallel else "between"
    waits = "; the first part of each finds none" if layout.async_tensor_parallel else " that wait for them"
    return f"collectives of {ranks} tensor ranks over {link}, {how} matrix products{waits}"


def _context(layout: Layout, job: Job) -> str:
    ranks = layout.context_parallel_degree
    link = _over(layout, job, "context", Spread(ranks, layout.tensor_parallel_degree))
    return f"{_EXCHANGES[layout.context_exchange]} {ranks} context ranks over {link}"


_EXCHANGES: Mapping[ContextExchange, str] = {
    ContextExchange.RING: "keys and values sent round, as far as attention does not hide it, among",
    ContextExchange.ALL_GATHER: "keys and values gathered before attention among",
    ContextExchange.ALL_TO_ALL: "heads exchanged for sequence and back among",
}


def _expert(layout: Layout, job: Job) -> str:
    ranks = layout.expert_parallel_degree
    link = _over(layout, job, "expert", Spread(ranks, 1))
    return f"tokens sent to their experts on {ranks} expert ranks over {link}, and back"


def _pipeline(layout: Layout, job: Job) -> str:
    link = _over(layout, job, "pipeline", Spread(layout.pipeline_parallel_degree, layout.pipeline_stride))
    sent = f"hidden states sent between {layout.num_stages} stages over {link}, where no other work hides it"
    return "; ".join((sent, *_borne(layout, job)))


def _borne(layout: Layout, job: Job) -> Iterator[str]:
    """Which links between stages are slow, and how the layout bears them."""
    cluster = job.cluster
    ailing = [one for one in cluster.link_health if not one.is_healthy] if layout.pipeline_parallel_degree > 1 else []
    slow = [one for one in ailing if pipeline_crosses(layout, one, cluster)]
    if not slow:
        return
    delegated = layout.p2p_transport == P2PTransport.DELEGATED
    how = "delegates carry what passes, and no rank waits to have sent" if delegated else "who sends over it waits"
    plans = layout.pipeline_schedule == PipelineSchedule.ADAPTIVE
    schedule = str(layout.pipeline_schedule).replace("_", " ")
    ahead = "the plan runs further ahead" if plans else f"{schedule} does not plan for it"
    yield f"{', '.join(map(link_in_words, slow))}: {how}, and {ahead}"


def _lossy_exchange(layout: Layout, job: Job) -> str:
    ranks, inner = layout.data_parallel_replicate_degree, layout.data_parallel_shard_degree
    over = _over(layout, job, "replicate", Spread(ranks, replicate_spreads(layout)[0].stride))
    inside = f"; {inner} shards of each sum everything" if inner > 1 else ""
    return f"{_SENT[layout.gradient_sync](layout)} of {ranks} replicas over {over}, behind the backward pass{inside}"


def _full_exchange(layout: Layout, job: Job) -> str:
    ranks, stride = layout.data_parallel_degree, layout.tensor_parallel_degree * layout.context_parallel_degree
    what = "gradients" if layout.shard_level == ShardLevel.NONE else "gradients and parameters"
    what = f"fp32 {what}" if layout.fp32_gradient_reduce else what
    whose = f"{ranks} replicas"
    if layout.context_parallel_degree > 1:  # these hold the same weights, too
        ranks, stride = ranks * layout.context_parallel_degree, layout.tensor_parallel_degree
        whose = f"{ranks} data and context ranks"
    waits = layout.gradient_clip == GradientClip.PRE
    hidden = "behind the norm of the whole gradient" if waits else "less what computation hides"
    axis = "shard" if layout.data_parallel_replicate_degree == 1 else "replicate"
    return f"{what} of {whose} over {_over(layout, job, axis, Spread(ranks, stride))}, {hidden}"


_SENT: Mapping[GradientSync, Callable[[Layout], str]] = {
    GradientSync.DEMO: lambda x: f"the {x.sync_top_k} largest cosine components of {x.sync_chunk} momentum elements",
    GradientSync.RANDOM: lambda x: f"one momentum element of {x.sync_sparsity}",
    GradientSync.STRIDING: lambda x: f"one momentum element of {x.sync_sparsity}",
    GradientSync.DILOCO: lambda x: f"parameters, every {x.sync_period} steps,",
}
"""What a lossy exchange sends."""


def _bubble(layout: Layout, job: Job) -> str:
    count = job.workload.num_micro_batches(layout)
    schedule = str(layout.pipeline_schedule).replace("_", " ")
    return (
        f"{layout.num_stages} stages on {layout.pipeline_parallel_degree} pipeline ranks fill and drain around "
        f"{count} micro-batches ({schedule})"
    )


def _optimizer(layout: Layout, job: Job) -> str:
    shards = layout.data_parallel_shard_degree
    held = "its weights" if shards == 1 else f"1/{shards} of its weights"
    if follows_signs(layout):
        return f"{_bandwidth(job)}: a rank reads and writes {held}, along the signs of what replicas exchanged"
    times = "" if layout.optimizer_kernel == OptimizerKernel.FUSED else ", operation by operation"
    return f"{_bandwidth(job)}: a rank reads and writes AdamW's states of {held}{times}"


# ---------------------------------------------------------------- memory
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
    return f"{each} {whose}{twice}; 0 where memory is fullest before the first backward pass"


def _states(layout: Layout, job: Job) -> str:
    master = 0 if layout.precision == Precision.FP32 else 4
    state = float(state_bytes(LayoutColumns.from_layouts([layout]), job)[0])
    steps, remembers = _remembers(layout, job)
    what = f"{steps}: {master + state:.0f} bytes a weight, {remembers}"
    what += " and an fp32 master" if master else ""
    return what if layout.shard_level == ShardLevel.NONE else f"{what}, shared by {_ranks(layout, job)}"


def _remembers(layout: Layout, job: Job) -> tuple[str, str]:
    """The optimizer, and what it and the exchange between replicas keep of each weight."""
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
        Recompute.FULL: "inputs of layers alone, and one layer rebuilt",
    }[layout.recompute]
    elsewhere = ", most of it in the host's memory" if layout.offload_activations else ""
    return f"{in_flight}, {layout.micro_batch_size} × {job.workload.seq_len:,} tokens each: {kept}{elsewhere}"


def _logits(layout: Layout, job: Job) -> str:
    tokens = f"{layout.micro_batch_size} × {job.workload.seq_len:,} tokens × {job.model.vocab_size:,} words"
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
        parts.append("gradients on their way")
    if layout.pipeline_parallel_degree > 1 and job.stack.keeps_receive_buffers:
        count = job.workload.num_micro_batches(layout)
        parts.append(f"receive buffers for {count} micro-batches")
    parts.append("what the optimizer's step needs beyond the peak of the passes")
    return ", ".join(parts)


def _allowance(_: Layout, job: Job) -> str:
    if job.cluster.accelerator.kind == "cpu":
        return "none: on cores memory means bytes of tensors"
    share = f"{100 * job.stack.activation_overhead:.3g} % of the activations"
    return f"{format_bytes(job.stack.allowance_bytes)} of context and workspaces, and {share}: no law, an allowance"


def _sharding(layout: Layout, job: Job) -> Sharding:
    return Sharding.of(LayoutColumns.from_layouts([layout]), job)


def _ranks(layout: Layout, job: Job) -> str:
    sharding = _sharding(layout, job)
    dense, expert = float(sharding.dense_ranks[0]), float(sharding.expert_ranks[0])
    return f"{dense:.4g} ranks" if dense == expert else f"{dense:.4g} ranks, those of experts by {expert:.4g}"


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


_LIMITS: Mapping[str, Callable[[Layout, Job], str]] = {
    "matrix_s": _matrix,
    "attention_s": _attention,
    "pointwise_s": _pointwise,
    "host_s": lambda x, job: (
        f"the host: at micro-batch {x.micro_batch_size} some kernels are shorter than their launch"
    ),
    "recompute_s": _recompute,
    "offload_s": _offload,
    "tensor_communication_s": _tensor,
    "context_communication_s": _context,
    "expert_communication_s": _expert,
    "pipeline_communication_s": _pipeline,
    "data_communication_s": lambda x, job: (
        _full_exchange if x.gradient_sync == GradientSync.FULL else _lossy_exchange
    )(x, job),
    "bubble_s": _bubble,
    "optimizer_s": _optimizer,
    "parameters_bytes": _parameters,
    "gradients_bytes": _gradients,
    "optimizer_bytes": _states,
    "activations_bytes": _activations,
    "logits_bytes": _logits,
    "buffers_bytes": _buffers,
    "allowance_bytes": _allowance,
}
