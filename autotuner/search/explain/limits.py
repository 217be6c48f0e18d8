"""Limit: what a part of a step is limited by, a resource with its rate or the links between groups of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotuner.core.choices import GradientSync, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import pipeline_crosses, replicate_spreads
from autotuner.core.recompute import RecomputePolicy
from autotuner.search.explain.communication import routes

Resource = Literal["matrix", "memory", "host", "host_link", "link", "schedule"]
"""Matrix products and memory of an accelerator, the host, the link to it, links between ranks, the order of passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What limits a part of a step, with the numbers of the job that decide how long it takes."""

    part: str
    """The field of ``StepTime``."""
    resource: Resource
    device: str = ""
    """The accelerator, where it is its rate of matrix products."""
    rate: float | None = None
    """FLOP/s of matrix products, bytes/s of memory and of the link to the host."""
    seq_len: int | None = None
    """Tokens of a sequence, whose square attention grows with."""
    num_micro_batches: int | None = None
    """Of a pipeline, which idles around them."""
    recomputed: tuple[RecomputePolicy, ...] = ()
    """What selective recomputation computes again."""
    axis: str = ""
    """Whose groups of ranks communicate: ``tensor``, ``context``, ``expert``, ``pipeline``, ``shard`` or ``replicate``;
    empty: none do."""
    num_ranks: int | None = None
    """Of one group."""
    link: str = ""
    """The slowest inside a group."""
    limiting_link: str = ""
    """On a described network the one that is busy longest; elsewhere the same."""
    slow_links: tuple[LinkHealth, ...] = ()
    """Those between stages that are not healthy."""


def limit_of(part: str, layout: Layout, job: Job) -> Limit:
    """Return what limits a part of a legal layout's step, a field of ``StepTime``."""
    accelerator, workload = job.cluster.accelerator, job.workload
    match part:
        case "matrix_s":
            rate = accelerator.peak_flop_per_s(layout.precision)
            return Limit(part=part, resource="matrix", device=accelerator.name, rate=rate)
        case "attention_s":
            return Limit(part=part, resource="matrix", seq_len=workload.seq_len)
        case "pointwise_s" | "optimizer_s":
            return Limit(part=part, resource="memory", rate=accelerator.memory_bandwidth_bytes_per_s)
        case "host_s":
            return Limit(part=part, resource="host")
        case "recompute_s":
            again = () if layout.recompute == Recompute.FULL else job.stack.selective_recompute
            return Limit(part=part, resource="matrix", recomputed=again)
        case "offload_s":
            return Limit(part=part, resource="host_link", rate=accelerator.host_bandwidth_bytes_per_s)
        case "bubble_s":
            return Limit(part=part, resource="schedule", num_micro_batches=workload.num_micro_batches(layout))
    return _of_links(part, layout, job)


def _of_links(part: str, layout: Layout, job: Job) -> Limit:
    axis, num_ranks, stride = _group(part, layout)
    link = job.cluster.link_for(num_ranks, stride).name
    slow = (
        (one for one in job.cluster.link_health if not one.is_healthy) if axis == "pipeline" and num_ranks > 1 else ()
    )
    return Limit(
        part=part,
        resource="link",
        axis=axis,
        num_ranks=num_ranks,
        link=link,
        limiting_link=next((route.limiting_link for route in routes(layout, job) if route.axis == axis), link),
        slow_links=tuple(one for one in slow if pipeline_crosses(layout, one, job.cluster)),
    )


def _group(part: str, layout: Layout) -> tuple[str, int, int]:
    """Return the axis whose groups take the time, how many ranks a group has, and how far apart these lie."""
    tensor, context = layout.tensor_parallel_degree, layout.context_parallel_degree
    match part:
        case "tensor_communication_s":
            return "tensor", tensor, 1
        case "context_communication_s":
            return "context", context, tensor
        case "expert_communication_s":
            return "expert", layout.expert_parallel_degree, 1
        case "pipeline_communication_s":
            return "pipeline", layout.pipeline_parallel_degree, layout.pipeline_stride
        case _ if layout.gradient_sync != GradientSync.FULL:
            return "replicate", layout.data_parallel_replicate_degree, replicate_spreads(layout)[0].stride
    axis = "shard" if layout.data_parallel_replicate_degree == 1 else "replicate"
    return axis, layout.data_parallel_degree * context, tensor  # context ranks hold the same weights, too
