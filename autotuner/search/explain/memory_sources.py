"""Where each part of a rank's memory comes from, as a sentence with the layout's own numbers in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autotuner.core.choices import GradientSync, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import follows_signs
from autotuner.core.units import format_bytes, format_count
from autotuner.costmodel.memory.weights import Sharding, state_bytes
from autotuner.costmodel.stages import load_of_rank


def source_of_memory(part: str, layout: Layout, job: Job) -> str:
    """Why that part of a rank's memory is as large as it is; ``part`` is a field of ``Memory``."""
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
    return f"{each} {whose}{twice}; 0 where memory is fullest before the first backward pass"


def _optimizer(layout: Layout, job: Job) -> str:
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


def _allowance(layout: Layout, job: Job) -> str:
    del layout
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
    degrees = (
        ("tp", layout.tensor_parallel_degree),
        ("pp", layout.pipeline_parallel_degree),
    )
    factors = [f"{name} {degree}" for name, degree in degrees if degree > 1]
    product = f"({' × '.join(factors)})" if len(factors) > 1 else "".join(factors)
    if layout.expert_parallel_degree > 1:
        experts = f"experts also / ep {layout.expert_parallel_degree}"
        return f"{product}, {experts}" if product else f"ep {layout.expert_parallel_degree} for the experts"
    return product


def _bytes(column: object) -> str:
    value = float(np.asarray(column)[0])
    return f"{value:.3g} bytes"


_SOURCES: Mapping[str, Callable[[Layout, Job], str]] = {
    "parameters_bytes": _parameters,
    "gradients_bytes": _gradients,
    "optimizer_bytes": _optimizer,
    "activations_bytes": _activations,
    "logits_bytes": _logits,
    "buffers_bytes": _buffers,
    "allowance_bytes": _allowance,
}
