"""StepParts: predicted and measured parts of a step's time under common names, so that they can be compared.

A prediction distinguishes kinds of work and groups of ranks; a profiler distinguishes passes and kinds of collectives.
Both have forward and backward passes. Collectives are matched by which group calls which kind (``_CALLS``). If two
groups call the same kind, its measured time cannot be divided, and both groups form one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from autotuner.core.choices import ContextExchange, GradientSync, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import Breakdown, PhaseTimes
from autotuner.core.placement import pipeline_crosses, replicate_spreads
from autotuner.core.prediction import StepTime
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.value import derived
from autotuner.costmodel.details import pass_shares
from autotuner.search.explain.communication import routes

PartKind = Literal["forward", "backward", "weight", "recompute", "communication", "idle", "optimizer", "other"]
"""Kind of a part, for colours of charts and for sums."""

Activity = Literal[
    "forward", "backward", "weight", "recompute", "tensor", "context", "expert", "data", "pipeline", "idle", "optimizer"
]
"""Smallest activities that a prediction distinguishes."""

_ACTIVITIES: Mapping[Activity, tuple[PartKind, str, str]] = {
    "forward": ("forward", "forward", ""),
    "backward": ("backward", "backward", ""),
    "weight": ("weight", "weight gradients", ""),
    "recompute": ("recompute", "recomputation", "recompute_s"),
    "tensor": ("communication", "tensor collectives", "tensor_communication_s"),
    "context": ("communication", "context collectives", "context_communication_s"),
    "expert": ("communication", "expert collectives", "expert_communication_s"),
    "data": ("communication", "data collectives", "data_communication_s"),
    "pipeline": ("communication", "pipeline sends", "pipeline_communication_s"),
    "idle": ("idle", "pipeline idle", "bubble_s"),
    "optimizer": ("optimizer", "optimizer", "optimizer_s"),
}
"""Activities in the order of a chart, each with its kind, its name, and its field of ``StepTime``, if there is one."""

ACTIVITY_WORDS = {activity: words for activity, (_, words, _) in _ACTIVITIES.items()}

PASSES: frozenset[Activity] = frozenset(("forward", "backward", "weight", "recompute"))
COMPUTED = ("matrix_s", "attention_s", "pointwise_s", "host_s")
_IN_PASSES = (*COMPUTED, "recompute_s", "offload_s")
"""Fields of ``StepTime`` that belong to forward and backward passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """A part of a step's time, such as a pass or the optimizer: as predicted, and, if known, as measured."""

    kind: PartKind
    predicted: Mapping[Activity, float]
    """Predicted seconds of each activity in this part, which a measurement cannot separate; empty if no formula of the
    cost model explains the part."""
    measured_s: float | None
    """Measured time; None if nothing was measured, or the step was not divided."""
    limits: tuple[Limit, ...] = ()
    """Resources that limit the part: for a pass, the resource of its largest kind of work; otherwise one for each
    activity that takes time."""

    @property
    @derived
    def predicted_s(self) -> float | None:
        """Predicted seconds of the part, summed over its activities; None if the cost model has no formula for it."""
        return sum(self.predicted.values()) if self.predicted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """All parts of a step's time in a fixed order: as predicted, and, if known, as measured."""

    parts: tuple[StepPart, ...]
    """Parts that take time in the prediction or in the measurement."""
    predicted: StepTime
    """Predicted step time. It has recomputation as a part of its own, which a measurement counts in the backward
    pass."""
    measured_s: float | None
    """Sum of the measured parts, which is the time of the step that was divided and not the median of the timed steps.
    None if no step was divided."""
    rank: int | None
    """Rank whose step was profiled; None if no step was profiled, or if each phase has the time of its slowest rank."""

    @property
    @derived
    def predicted_s(self) -> float:
        """Predicted seconds of the whole step: the sum of its parts."""
        return self.predicted.total_s


def step_parts(
    layout: Layout, job: Job, predicted: StepTime, measured: Breakdown | PhaseTimes | None = None
) -> StepParts:
    """Return the parts of the step time of a legal layout, as predicted and, if given, as measured.

    The cost model predicts one time for all copies of activations to the host and back. One half of this time counts
    for the forward pass, and the other half for the backward pass.

    Args:
        layout: The layout.
        job: The job.
        predicted: Predicted step time of the layout in the job.
        measured: Measured parts of a profiled step, or of timed steps; None: nothing was measured.
    """
    seconds = _seconds(layout, job, predicted)
    measured_s = _fields(measured)
    claims = {name: _measured_as(name, layout, measured) for name in measured_s}
    parts = [
        StepPart(
            kind=next(kind for activity, (kind, _, _) in _ACTIVITIES.items() if activity in activities),
            predicted={activity: s for activity, s in seconds.items() if activity in activities},
            measured_s=sum(s for name, s in measured_s.items() if claims[name] & activities) if measured else None,
            limits=tuple(limit_of(field, layout, job) for field in _limiting(activities, seconds, predicted)),
        )
        for activities in _merged(filter(None, claims.values()))
    ]
    if measured is not None:
        unclaimed_s = sum(s for name, s in measured_s.items() if not claims[name])
        parts.append(StepPart(kind="other", predicted={}, measured_s=unclaimed_s))
    return StepParts(
        parts=tuple(part for part in parts if part.predicted_s or part.measured_s),
        predicted=predicted,
        measured_s=sum(measured_s.values()) if measured is not None else None,
        rank=measured.rank if isinstance(measured, Breakdown) else None,
    )


def measured_fields(layout: Layout, measured: Breakdown | PhaseTimes) -> Mapping[tuple[str, ...], float]:
    """Return the measured seconds of a step, divided among groups of ``StepTime`` fields.

    A measurement cannot tell every field from every other field. Fields that it cannot tell apart are in one group. All
    fields that are computed in forward and backward passes are in one group. Measured time that belongs to no field is
    added to this group. Each field is in one group at most, and the seconds of all groups sum to the measured step.
    """
    measured_s = _fields(measured)
    claims = {name: _measured_as(name, layout, measured) for name in measured_s}
    found: dict[tuple[str, ...], float] = {}
    for activities in _merged([PASSES, *filter(None, claims.values())]):
        own = [field for activity, (_, _, field) in _ACTIVITIES.items() if activity in activities - PASSES]
        together = (*_IN_PASSES, *own) if activities & PASSES else tuple(own)
        found[together] = sum(seconds for name, seconds in measured_s.items() if (claims[name] or PASSES) & activities)
    return found


# ---------------------------------------------------------------- the predicted side
def _seconds(layout: Layout, job: Job, predicted: StepTime) -> dict[Activity, float]:
    shares = pass_shares(layout, job)
    computed_s = sum(getattr(predicted, name) for name in COMPUTED)
    passes: dict[Activity, float] = {
        "forward": shares.forward * computed_s + predicted.offload_s / 2,
        "backward": shares.backward * computed_s + predicted.offload_s / 2,
        "weight": shares.weight * computed_s,
    }
    return passes | {activity: getattr(predicted, field) for activity, (_, _, field) in _ACTIVITIES.items() if field}


# ---------------------------------------------------------------- the measured side
def _fields(measured: Breakdown | PhaseTimes | None) -> dict[str, float]:
    if measured is None:
        return {}
    return {f.name: getattr(measured, f.name) for f in fields(measured) if f.name.endswith("_s")}


def _measured_as(name: str, layout: Layout, measured: Breakdown | PhaseTimes | None) -> frozenset[Activity]:
    """Return the activities that a measured part consists of; none if no formula explains the part."""
    return _of_phases(name, layout) if isinstance(measured, PhaseTimes) else _of_breakdown(name, layout)


def _of_breakdown(name: str, layout: Layout) -> frozenset[Activity]:
    known: dict[str, tuple[Activity, ...]] = {
        "forward_s": ("forward",),
        "backward_s": ("backward", "weight", "recompute"),
        "send_receive_s": ("pipeline",) if layout.pipeline_parallel_degree > 1 else (),
        "pipeline_idle_s": ("idle",) if layout.pipeline_parallel_degree > 1 else (),
        "optimizer_s": ("optimizer",),
    }
    if name in known:
        return frozenset(known[name])
    return frozenset(group for group in _GROUPS if name in _calls(group, layout))


_GROUPS: tuple[Activity, ...] = ("tensor", "context", "expert", "data")


def _calls(group: Activity, layout: Layout) -> frozenset[str]:
    """Return the kinds of collectives that a group calls in our trial job, without a few small sums.

    Tensor ranks reduce (arXiv 1909.08053), or gather and scatter with sequence parallelism (arXiv 2205.05198), and
    gather logits if the loss needs all of them. Context ranks exchange parts of the sequence, or gather the sequence.
    Expert ranks exchange tokens. Data-parallel ranks reduce gradients, or gather and scatter their shards.
    """
    gathers = ("all_gather_s", "reduce_scatter_s")
    match group:
        case "tensor" if layout.tensor_parallel_degree > 1:
            logits = () if layout.loss_parallel else ("all_gather_s",)
            return frozenset(gathers if layout.sequence_parallel else ("all_reduce_s", *logits))
        case "context" if layout.context_parallel_degree > 1:
            exchanges = layout.context_exchange != ContextExchange.ALL_GATHER
            return frozenset(("all_to_all_s",) if exchanges else gathers)
        case "expert" if layout.expert_parallel_degree > 1:
            return frozenset(("all_to_all_s",))
        case "data" if layout.data_parallel_degree * layout.context_parallel_degree > 1:
            sharded = layout.shard_level is not ShardLevel.NONE
            reduces = not sharded or layout.data_parallel_replicate_degree > 1
            return frozenset((*(gathers if sharded else ()), *(("all_reduce_s",) if reduces else ())))
        case _:
            return frozenset()


def _of_phases(name: str, layout: Layout) -> frozenset[Activity]:
    """Return the activities of a phase of timed steps.

    Everything that interrupts a pass counts as a part of the pass; so do gradients that wait for weights.
    """
    if name == "optimizer_s":
        return frozenset(("optimizer",))
    passes = frozenset(activity for activity in _ACTIVITIES if activity not in ("data", "optimizer"))
    if layout.shard_level >= ShardLevel.GRADIENTS or layout.pipeline_parallel_degree > 1:
        return passes | {"data"}
    return passes if name == "forward_backward_s" else frozenset(("data",))


# ---------------------------------------------------------------- both
def _merged(claims: Iterable[frozenset[Activity]]) -> Sequence[frozenset[Activity]]:
    """Return the sets of activities that no measurement separates, in the order of a chart."""
    parts: list[frozenset[Activity]] = [frozenset((activity,)) for activity in _ACTIVITIES]
    for claim in claims:
        touched = [part for part in parts if part & claim]
        first = parts.index(touched[0])
        parts = [part for part in parts if part not in touched]
        parts.insert(first, frozenset().union(*touched))
    return parts


def _limiting(activities: frozenset[Activity], seconds: Mapping[Activity, float], predicted: StepTime) -> Sequence[str]:
    """Return the fields whose limits apply to a part.

    For a pass this is the field of its largest kind of work.
    """
    if "forward" in activities:
        return (max(COMPUTED, key=lambda name: float(getattr(predicted, name))),)
    own = [(activity, field) for activity, (_, _, field) in _ACTIVITIES.items() if field and activity in activities]
    return [field for activity, field in own if seconds[activity] or len(own) == len(activities) == 1]


Resource = Literal["matrix", "memory", "host", "host_link", "link", "schedule"]
"""Resources: matrix units and memory of an accelerator, the host, the link to the host, links between ranks, and the
schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The resource that limits a part of a step, such as a link, and the numbers that decide how long it takes."""

    part: str
    """Name of the part: a field of ``StepTime``."""
    resource: Resource
    device: str = ""
    """Name of the accelerator, if its rate of matrix products is the limit; otherwise empty."""
    rate: float | None = None
    """Rate that is the limit: FLOP/s of matrix products, bytes/s of memory, or bytes/s of the link to the host."""
    seq_len: int | None = None
    """Number of tokens of a sequence. The time of attention grows with the square of this number."""
    num_micro_batches: int | None = None
    """Number of micro-batches of a pipeline, which is idle before and after them."""
    recomputed: tuple[RecomputePolicy, ...] = ()
    """Activations that selective recomputation computes again."""
    axis: str = ""
    """Axis whose groups of ranks communicate: ``tensor``, ``context``, ``expert``, ``pipeline``, ``shard`` or
    ``replicate``; empty: none do."""
    num_ranks: int | None = None
    """Number of ranks of one group."""
    link: str = ""
    """Name of the slowest link inside a group."""
    limiting_link: str = ""
    """Name of the link that is busy for the longest time on a described network; otherwise the link of the group."""
    slow_links: tuple[LinkHealth, ...] = ()
    """Degraded links between pipeline stages."""


def limit_of(part: str, layout: Layout, job: Job) -> Limit:
    """Return the resource that limits a part of the step of a legal layout.

    Args:
        part: Name of a field of ``StepTime``.
        layout: The layout.
        job: The job.
    """
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
    """Return the axis whose groups take the time, the number of ranks of a group, and the distance between them."""
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
    return axis, layout.data_parallel_degree * context, tensor  # context ranks also hold the same weights
