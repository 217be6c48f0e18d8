"""SearchSpace: the values of each option that a sweep may try, and those it tries by default.

Default values that do not depend on the job are declared with the option (``searched`` in ``layout``). Values that
depend on other options of the layout (shards inside a node, stages of a rank, stages with fewer layers) are computed by
``search.space``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from autotuner.core.choices import (
    MOMENTUM_SYNCS,
    AttentionKernel,
    BatchBalance,
    CollectiveHierarchy,
    Fp8Recipe,
    GradientSync,
    P2PTransport,
    PayloadPrecision,
    PipelineSchedule,
    Precision,
    RankOrder,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.option import Kind
from autotuner.core.placement import hop_crosses

Space = TypeVar("Space")

_DERIVED = "data_parallel_replicate_degree"
"""Name of the degree that has no axis. It is computed: the ranks that the other degrees leave."""


def _with_axes(cls: type[Space]) -> type[Space]:
    """Make the class a dataclass with one field per option.

    The default of a field is the set of values that a sweep tries by default.
    """
    cls.__annotations__ = {}
    for name, spec in OPTIONS.items():
        if name != _DERIVED:
            values: Any = tuple.__class_getitem__((type(spec.default), ...))
            may_be_all = spec.kind is Kind.DEGREE or spec.searched is None
            cls.__annotations__[name] = values | None if may_be_all else values
            setattr(cls, name, spec.searched)
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@_with_axes
class SearchSpace:
    """The values that a search tries for each option of a layout; None means every legal value.

    Every option of ``Layout`` has an axis, except the replicate degree: it gets the ranks that the other degrees leave.
    Options that are rarely changed (schedules, kernels, precision) have few values by default; a caller may name more.

    Example:
        >>> space = SearchSpace(tensor_parallel_degree=(1, 2, 4))
        >>> space.values("tensor_parallel_degree")
        (1, 2, 4)
    """

    if TYPE_CHECKING:  # the fields are the options, which a type checker cannot know

        def __init__(self, **axes: tuple[int, ...] | None) -> None: ...

    def __post_init__(self) -> None:
        for axis in fields(self):  # type: ignore[arg-type]  # a dataclass at run time
            values, lowest, highest = self.values(axis.name), OPTIONS[axis.name].lowest, OPTIONS[axis.name].highest
            if values is None:
                continue
            if not values:
                raise InvalidInput(axis.name, [], "must name at least one value, or be left out")
            if len(set(values)) != len(values):
                raise InvalidInput(axis.name, list(values), "must name each value once")
            if min(values) < lowest:
                raise InvalidInput(
                    axis.name,
                    list(values),
                    f"every value must be {lowest} or more",
                    [*dict.fromkeys(max(one, lowest) for one in values)],
                )
            if highest is not None and max(values) > highest:
                raise InvalidInput(
                    axis.name,
                    list(values),
                    f"every value must be {highest} or less",
                    [*dict.fromkeys(min(one, highest) for one in values)],
                )

    def values(self, name: str) -> tuple[int, ...] | None:
        """Return the values to try for the option with this name; None means every legal value."""
        found: tuple[int, ...] | None = getattr(self, name)
        return found

    def with_axes(self, **axes: tuple[int, ...] | None) -> SearchSpace:
        """Return the space with other values for the named options. None means every legal value."""
        return replace(self, **axes)  # type: ignore[type-var]  # a dataclass at run time


Values = tuple[int, ...]

_LOSSY = (*MOMENTUM_SYNCS, GradientSync.DILOCO)

_RUNGS: Mapping[str, tuple[tuple[GradientSync, ...], Values]] = {
    "sync_top_k": ((GradientSync.DEMO,), (2, 4, 8)),
    "sync_sparsity": ((GradientSync.RANDOM, GradientSync.STRIDING), (4, 16)),
    "sync_period": ((GradientSync.DILOCO,), (4, 16, 64)),
    "sync_sign": (MOMENTUM_SYNCS, (True, False)),
    "payload_precision": (_LOSSY, tuple(PayloadPrecision)),
}
"""Details of exchanges, each with the exchanges that have it and the values that a sweep tries: 2 to 8 of 64 components
(arXiv 2411.19870 sends 1 to 32, arXiv 2502.06728 sends 4), one element of 4 and 16 (arXiv 2502.06728 tries 2 to 32), 4
to 64 steps (arXiv 2311.08105 averages every 50 to 2,000 in runs a thousand times as long). There are few values because
each is combined with all layouts. The layout that sends least is fastest and is tried first. If the convergence gate
rejects a layout, it also rejects every layout that sends less."""


def exchange_ladder(named: Mapping[str, Values | None]) -> dict[str, Values]:
    """Return default values to try for each detail of a lossy exchange that the caller left open.

    In a lossy exchange, replicas send less than their gradients. Only the exchanges that the caller named count. For
    example, a caller who names DiLoCo but no period gets default periods to try.

    Args:
        named: Axes of the search space that the caller named, with the values to try.
    """
    exchanges = named.get("gradient_sync") or ()
    return {
        detail: values
        for detail, (of, values) in _RUNGS.items()
        if detail not in named and any(exchange in of for exchange in exchanges)
    }


_FEWEST_CONTEXT_TOKENS = 4096
"""Smallest number of tokens of a sequence on one context rank. Megatron Bridge's recipes split 8,192 tokens over 2
ranks at most (github.com/NVIDIA-NeMo/Megatron-Bridge, performance recipes of Llama 3, 2025-11)."""

_DEEPEST_ROTATED = 8
"""Largest number of pipeline ranks for which a sweep tries stage rotations by default."""

_MOST_PLACED = 32
"""Largest number of ranks of a cluster for which a sweep varies the placement by default. With more ranks, the space
would be far larger."""

_SEVERAL_QUEUE_PAIRS = 4
"""Number of queue pairs that a sweep tries beside the default. It is an assumption: operators of networks with hashed
routes use 2 to 8, and more pairs need more state in the network adapters."""

_BEST_LAST = OPTIONS["attention_kernel"].plainest_first
"""Attention kernels by their speed, the fastest last."""

_USUAL_RECIPES = (Fp8Recipe.TENSORWISE, Fp8Recipe.MXFP8)

_CUDNN_HEADS = range(8, 129, 8)
"""Head dimensions for which torch uses cuDNN's kernel, as in the rules of the trial job."""

_BALANCING: Mapping[str, tuple[int, ...]] = {
    "batch_balance": (BatchBalance.NONE, BatchBalance.STRATIFIED_SNAKE, BatchBalance.GLOBAL_SORT),
    "sequence_packing": (False, True),
}
"""Balances that a sweep tries by default: the cheapest, the usual and the most expensive one. The cost of the others
lies between them."""


def default_space(job: Job) -> SearchSpace:
    """Return the default search space of predictions: the values that people would usually try.

    Predictions run nothing, so the devices need not exist.

    =============================  =================================================================================
    attention kernel               the fastest one that the device and the software support
    precision                      bf16, and fp8 where device and software multiply it; fp32 on cores and without bf16
    schedules of pipelines         1F1B and interleaved, if the software supports them
    scales of fp8                  one scale per tensor, and mxfp8 scales if the device itself applies them
    compiled                       on if the software can compile, because it is never predicted to be slower
    context ranks                  1, 2, 4 ... as long as each rank keeps 4,096 tokens of a sequence
    smaller ends of a pipeline     none on CPU cores, because noise there is larger than the time of a layer
    =============================  =================================================================================

    If some links are known to be slow, options with which pipelines suffer less from them are added:

    =============================  =================================================================================
    schedules of pipelines         also the adaptive one, if the software supports it
    sends between stages           by the rank itself, and by 4 helper processes if the software supports them
    rank order                     stages outermost, and on up to 32 ranks also replicas outermost
    rotations of stages            none, and on up to 32 ranks those that leave a degraded link unused, in
                                   pipelines of up to 8 ranks
    =============================  =================================================================================

    If bytes between nodes are expensive, options that send fewer of them, or send them more evenly, are added:

    =============================  =================================================================================
    hierarchy of collectives       flat; two levels on several CPU nodes, or below an oversubscribed switch
    queue pairs                    1, and 4 on a network whose switches choose paths by hashing
    =============================  =================================================================================

    If sequences differ in length, options that balance the work of ranks are added:

    =============================  =================================================================================
    batch balance                  none; strata with an exchange inside nodes (arXiv 2402.02447); a global sort
    packing                        on and off
    =============================  =================================================================================

    Slack is the number of forward passes that the adaptive schedule runs ahead. More slack than link delays need is not
    predicted to be faster, so that it is tried only if a caller names it.
    """
    is_cpu = job.cluster.accelerator.kind == "cpu"
    recipes = tuple(one for one in _USUAL_RECIPES if one in job.cluster.accelerator.fp8_recipes)
    longest = max(1, min(job.workload.seq_len // _FEWEST_CONTEXT_TOKENS, job.cluster.world_size))
    ends = (0,) if is_cpu else None
    usual = SearchSpace(
        attention_kernel=(_kernels(job)[-1],),
        precision=_precisions(job),
        pipeline_schedule=_schedules(job),
        fp8_recipe=recipes or (Fp8Recipe.TENSORWISE,),
        compiled=(_compiles(job),),
        context_parallel_degree=tuple(1 << power for power in range(longest.bit_length())),
        first_stage_less_layers=ends,
        last_stage_less_layers=ends,
        **_network_axes(job),
        **({} if job.workload.lengths is None else _BALANCING),
    )
    return usual.with_axes(**_slow_link_axes(job)) if _degraded(job) else usual


def _network_axes(job: Job) -> dict[str, tuple[int, ...]]:
    """Return the axes that a sweep varies if data between nodes is expensive.

    Cyclic placements are tried only if the caller names them.
    """
    cluster, network = job.cluster, job.cluster.network
    if cluster.world_size <= cluster.accelerators_per_domain:
        return {}
    is_thin = network is not None and any(tier.oversubscription > 1 for tier in network.tiers)
    has_levels = cluster.accelerators_per_node > 1 and (is_thin or cluster.accelerator.kind == "cpu")
    hashes = network is not None and not network.adapts_routes and cluster.accelerator.kind != "cpu"
    return {
        "collective_hierarchy": tuple(CollectiveHierarchy) if has_levels else (CollectiveHierarchy.FLAT,),
        "queue_pairs": (1, _SEVERAL_QUEUE_PAIRS) if hashes else (1,),
    }


def _slow_link_axes(job: Job) -> dict[str, tuple[int, ...]]:
    """Return the axes that a sweep varies if some links are known to be slower than others."""
    has_delegates = job.stack.name == "torch"
    plans = PipelineSchedule.ADAPTIVE in job.stack.pipeline_schedules
    is_small = job.cluster.world_size <= _MOST_PLACED
    rotations = sorted({0, *(rotation for health in _degraded(job) for rotation in _sparing(job, health))})
    return {
        "pipeline_schedule": (*_schedules(job), *((PipelineSchedule.ADAPTIVE,) if plans else ())),
        "p2p_transport": tuple(P2PTransport) if has_delegates else (P2PTransport.INLINE,),
        "num_delegates": (4,) if has_delegates else (1,),
        "rank_order": tuple(RankOrder) if is_small else (RankOrder.STAGES_OUTERMOST,),
        "stage_rotation": tuple(rotations) if is_small else (0,),
    }


def _degraded(job: Job) -> list[LinkHealth]:
    """Return the states of the links that are known to be slower than the cluster's description."""
    return [health for health in job.cluster.link_health if not health.is_healthy]


def _sparing(job: Job, health: LinkHealth) -> Iterator[int]:
    """Yield the stage rotations with which no pipeline uses a slow link.

    There are none if the whole class of links is slow.
    """
    world = job.cluster.world_size
    if health.ends is None:
        return
    for stages in range(2, 1 + _DEEPEST_ROTATED):
        for replicas in (one for one in range(1, 1 + world // stages) if world % (stages * one) == 0):
            order = RankOrder.REPLICAS_OUTERMOST if replicas > 1 else RankOrder.STAGES_OUTERMOST
            layout = Layout(
                tensor_parallel_degree=world // (stages * replicas),
                data_parallel_replicate_degree=replicas,
                pipeline_parallel_degree=stages,
                rank_order=order,
            )
            over = [hop for hop in range(stages) if hop_crosses(layout, hop, health, job.cluster)]
            if len(over) == 1:  # otherwise another hop still uses the link
                yield (over[0] + 1) % stages


def default_trial_space(job: Job, *, is_gated: bool = True) -> SearchSpace:
    """Return the default space of a sweep: the space of predictions, plus options that only measurements can rank.

    Args:
        job: Job of the sweep. Its trials must run PyTorch itself.
        is_gated: Whether a convergence gate (a short training) checks layouts that are not numerically equivalent.
            Without the gate no fp8 is tried.
    """
    usual = (AttentionKernel.FLASH,) if AttentionKernel.FLASH in _kernels(job) else ()
    formats = tuple(p for p in _precisions(job) if is_gated or p not in OPTIONS["precision"].not_equivalent)
    return default_space(job).with_axes(
        attention_kernel=tuple(dict.fromkeys((*usual, _kernels(job)[-1]))),
        precision=formats,
        compiled=(False, True) if _compiles(job) else (False,),
    )


def _kernels(job: Job) -> tuple[AttentionKernel, ...]:
    """Return the attention kernels that device and software have for the model, the fastest last.

    The plain kernel is returned if there is no other.
    """
    accelerator, stack = job.cluster.accelerator, job.stack
    shared = [k for k in accelerator.attention_kernels if k in stack.attention_kernels]
    if job.model.head_dim not in _CUDNN_HEADS:
        shared = [k for k in shared if k != AttentionKernel.CUDNN]
    if Precision.BF16 not in accelerator.precisions and accelerator.kind != "cpu":
        return (AttentionKernel.MATH,)  # the kernel that runs for every model in fp32
    return tuple(sorted(shared, key=_BEST_LAST.index)) or (AttentionKernel.MATH,)


def _precisions(job: Job) -> tuple[Precision, ...]:
    """Return the number formats that are usual on the hardware."""
    accelerator = job.cluster.accelerator
    if accelerator.kind == "cpu" or Precision.BF16 not in accelerator.precisions:
        return (Precision.FP32,)
    has_fp8 = Precision.FP8 in accelerator.precisions and job.stack.multiplies_fp8
    return (Precision.BF16, Precision.FP8) if has_fp8 else (Precision.BF16,)


def _schedules(job: Job) -> tuple[int, ...]:
    usual = OPTIONS["pipeline_schedule"].searched or ()
    return tuple(one for one in usual if one in job.stack.pipeline_schedules) or (PipelineSchedule.ONE_F_ONE_B,)


def _compiles(job: Job) -> bool:
    """Return True if layers are compiled by default.

    On CPU cores they are not, because compiling takes longer than the steps of a trial.
    """
    return job.stack.compiles and job.cluster.accelerator.kind != "cpu"
