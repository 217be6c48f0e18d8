"""SearchSpace: the values of each option that a sweep may try, and those it tries by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from autotuner.core.choices import (
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
from autotuner.core.option import Kind, Option
from autotuner.core.placement import hop_crosses

Space = TypeVar("Space")

_DERIVED = "data_parallel_replicate_degree"
"""The degree that has no axis: it takes the ranks that the other degrees leave."""


def _with_axes(cls: type[Space]) -> type[Space]:
    """The class as a dataclass with one field for each option, which defaults to what is searched by default."""
    cls.__annotations__ = {}
    for name, one in OPTIONS.items():
        if name != _DERIVED:
            cls.__annotations__[name] = _annotation(one)
            setattr(cls, name, one.searched)
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


def _annotation(one: Option) -> Any:
    values: Any = tuple.__class_getitem__((type(one.default), ...))
    return values | None if one.kind == Kind.DEGREE or one.searched is None else values


@_with_axes
class SearchSpace:
    """Values that each axis may take; None: every value that is legal.

    There is an axis for each field of ``Layout`` but the replicate degree, which takes the ranks that are left. Axes
    that a default leaves narrow (schedules, kernels, precision) hold what is widely run; a caller widens them by name.
    """

    if TYPE_CHECKING:  # the fields are those of OPTIONS, so a checker cannot know them; construction does

        def __init__(self, **axes: tuple[int, ...] | None) -> None: ...

    def __post_init__(self) -> None:
        for axis in fields(self):  # type: ignore[arg-type]  # a dataclass at run time
            values, lowest = self.values(axis.name), OPTIONS[axis.name].lowest
            if values is None:
                continue
            if not values:
                raise InvalidInput(axis.name, [], "must name at least one value, or be left out")
            if len(set(values)) != len(values):
                raise InvalidInput(axis.name, list(values), "must name each value once")
            if min(values) < lowest:
                raise InvalidInput(axis.name, list(values), f"must hold values of {lowest} or more", lowest)

    def values(self, name: str) -> tuple[int, ...] | None:
        """The values of the axis of a field; None: every value that is legal."""
        values: tuple[int, ...] | None = getattr(self, name)
        return values

    def with_axes(self, **axes: tuple[int, ...] | None) -> SearchSpace:
        """The space with other values on the named axes."""
        return replace(self, **axes)  # type: ignore[type-var]  # a dataclass at run time


Values = tuple[int, ...]

_OF_ELEMENTS = (GradientSync.RANDOM, GradientSync.STRIDING)
_OF_MOMENTUM = (GradientSync.DEMO, *_OF_ELEMENTS)
_LOSSY = (*_OF_MOMENTUM, GradientSync.DILOCO)

_RUNGS: Mapping[str, tuple[tuple[GradientSync, ...], Values]] = {
    "sync_top_k": ((GradientSync.DEMO,), (2, 4, 8)),
    "sync_sparsity": (_OF_ELEMENTS, (4, 16)),
    "sync_period": ((GradientSync.DILOCO,), (4, 16, 64)),
    "sync_sign": (_OF_MOMENTUM, (True, False)),
    "payload_precision": (_LOSSY, tuple(PayloadPrecision)),
}
"""Which exchanges a detail is of, and what is tried of it: 2 to 8 of 64 components (arXiv 2411.19870 sends 1 to 32,
arXiv 2502.06728 sends 4), one element of 4 and 16 (arXiv 2502.06728 tries 2 to 32), 4 to 64 steps (arXiv 2311.08105
averages every 50 to 2,000 in runs a thousand times as long). Few, since each is crossed with all layouts: what sends
least is fastest and comes first, and what its gate rejects takes all with it that send less."""


def exchange_ladder(named: Mapping[str, Values | None]) -> dict[str, Values]:
    """Values of every detail that the named exchanges have and nobody named.

    Args:
        named: The axes of the space that somebody named.
    """
    exchanges = named.get("gradient_sync") or ()
    return {
        detail: values
        for detail, (of, values) in _RUNGS.items()
        if detail not in named and any(exchange in of for exchange in exchanges)
    }


_FEWEST_CONTEXT_TOKENS = 4096
"""Tokens of a sequence that a context rank keeps at least: Megatron Bridge's recipes split 8,192 over 2 ranks at most
(github.com/NVIDIA-NeMo/Megatron-Bridge, performance recipes of Llama 3, 2025-11)."""

_DEEPEST_ROTATED = 8
"""Pipeline ranks of those whose rotations are tried."""

_MOST_PLACED = 32
"""Ranks of a cluster whose default space places them otherwise, too: on more it would be several times as large."""

_SEVERAL_QUEUE_PAIRS = 4
"""An assumption: operators of networks that hash set 2 to 8, and more pairs are more state in the adapters."""

_BEST_LAST = OPTIONS["attention_kernel"].plainest_first
"""Kernels by how fast they are, the fastest last."""

_USUAL_RECIPES = (Fp8Recipe.TENSORWISE, Fp8Recipe.MXFP8)

_CUDNN_HEADS = range(8, 129, 8)
"""Heads that torch hands to cuDNN's kernel, as the trial job's rules have it."""


_BALANCING: Mapping[str, tuple[int, ...]] = {
    "batch_balance": (BatchBalance.NONE, BatchBalance.STRATIFIED_SNAKE, BatchBalance.GLOBAL_SORT),
    "sequence_packing": (False, True),
}
"""The least, the usual and the most that balance costs: the others lie between them."""


def default_space(job: Job) -> SearchSpace:
    """What people would try, for a prediction; it needs no devices, so whatever the device and the software offer.

    =============================  =================================================================================
    attention kernel               the fastest that device and software have
    precision                      bf16, and fp8 where device and software multiply it; fp32 on cores and without bf16
    schedules of pipelines         1F1B and interleaved, as far as the software runs them
    scales of fp8                  one per tensor, and those of mxfp8 where the device applies them
    compiled                       on wherever the software compiles: it is never predicted to be slower
    context ranks                  1, 2, 4 ... while each keeps 4,096 tokens of a sequence
    smaller ends of a pipeline     none on cores, whose noise is larger than what a layer takes
    =============================  =================================================================================

    Where links are known not to be alike, pipelines that bear slow ones are tried beside the usual:

    =============================  =================================================================================
    schedules of pipelines         the adaptive one, too, where the software runs it
    sends between stages           inline, and by delegates where the software has them: 4 of them
    rank order                     stages outermost, and replicas, on up to 32 ranks
    rotations of stages            none, and on up to 32 ranks those that leave a link which ails to nobody, in
                                   pipelines of up to 8 ranks
    =============================  =================================================================================

    Where bytes between nodes are dear, what sends fewer of them, or more evenly, is tried beside the usual:

    =============================  =================================================================================
    hierarchy of collectives       flat, and two levels on several nodes of cores or below an oversubscribed tier
    queue pairs                    1, and 4 on a network whose switches choose ways by hashing
    =============================  =================================================================================

    Where sequences differ in length, what balances them is tried beside nothing:

    =============================  =================================================================================
    batch balance                  none; strata and the exchange within nodes of arXiv 2402.02447; a sort of all
    packing                        on and off
    =============================  =================================================================================

    Slack beyond what delays ask for is no faster by prediction, and not tried unless a caller names it.
    """
    usual = _usual_space(job).with_axes(**_network_axes(job))
    usual = usual if job.workload.lengths is None else usual.with_axes(**_BALANCING)
    return usual.with_axes(**slow_link_axes(job)) if _ailing(job) else usual


def _network_axes(job: Job) -> dict[str, tuple[int, ...]]:
    """What is tried where bytes between nodes are dear; placements that deal ranks in turn only if they are named."""
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


def slow_link_axes(job: Job) -> dict[str, tuple[int, ...]]:
    """What is tried where links are known not to be alike."""
    has_delegates = job.stack.name == "torch"
    plans = PipelineSchedule.ADAPTIVE in job.stack.pipeline_schedules
    is_small = job.cluster.world_size <= _MOST_PLACED
    rotations = sorted({0, *(rotation for health in _ailing(job) for rotation in _sparing(job, health))})
    return {
        "pipeline_schedule": (*_schedules(job), *((PipelineSchedule.ADAPTIVE,) if plans else ())),
        "p2p_transport": tuple(P2PTransport) if has_delegates else (P2PTransport.INLINE,),
        "num_delegates": (4,) if has_delegates else (1,),
        "rank_order": tuple(RankOrder) if is_small else (RankOrder.STAGES_OUTERMOST,),
        "stage_rotation": tuple(rotations) if is_small else (0,),
    }


def _ailing(job: Job) -> list[LinkHealth]:
    """The links that are known not to be as the cluster says."""
    return [health for health in job.cluster.link_health if not health.is_healthy]


def _sparing(job: Job, health: LinkHealth) -> Iterator[int]:
    """Rotations after which no stages of some pipeline talk over a link; none of a whole class."""
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
            if len(over) == 1:  # else another hop of it stays
                yield (over[0] + 1) % stages


def _usual_space(job: Job) -> SearchSpace:
    """The space of a job whose links are alike."""
    return SearchSpace(
        attention_kernel=(_kernels(job)[-1],),
        precision=_precisions(job),
        pipeline_schedule=_schedules(job),
        fp8_recipe=_recipes(job),
        compiled=(_compiles(job),),
        context_parallel_degree=_context_degrees(job),
        first_stage_less_layers=_ends(job),
        last_stage_less_layers=_ends(job),
    )


def default_trial_space(job: Job, *, is_gated: bool = True) -> SearchSpace:
    """What a sweep tries: the prediction's space, with whatever only a measurement can rank against its plainer kind.

    Args:
        job: Its trials run PyTorch itself.
        is_gated: A loss gate stands before the first rank of what changes the mathematics; else no fp8 is tried.
    """
    usual = (AttentionKernel.FLASH,) if AttentionKernel.FLASH in _kernels(job) else ()
    formats = tuple(p for p in _precisions(job) if is_gated or p not in OPTIONS["precision"].changes_mathematics)
    return default_space(job).with_axes(
        attention_kernel=tuple(dict.fromkeys((*usual, _kernels(job)[-1]))),
        precision=formats,
        compiled=(False, True) if _compiles(job) else (False,),
    )


def _kernels(job: Job) -> tuple[AttentionKernel, ...]:
    """What device and software both have for the model, the fastest last; the plain kernel is always there."""
    accelerator, stack = job.cluster.accelerator, job.stack
    shared = [k for k in accelerator.attention_kernels if k in stack.attention_kernels and _attends(k, job)]
    if Precision.BF16 not in _formats(job) and accelerator.kind != "cpu":
        return (AttentionKernel.MATH,)  # the one that runs for every model in fp32
    return tuple(sorted(shared, key=_BEST_LAST.index)) or (AttentionKernel.MATH,)


def _attends(kernel: AttentionKernel, job: Job) -> bool:
    return kernel != AttentionKernel.CUDNN or job.model.head_dim in _CUDNN_HEADS


def _formats(job: Job) -> tuple[Precision, ...]:
    return job.cluster.accelerator.precisions


def _precisions(job: Job) -> tuple[Precision, ...]:
    """The formats that are usual on that hardware."""
    if job.cluster.accelerator.kind == "cpu" or Precision.BF16 not in _formats(job):
        return (Precision.FP32,)
    has_fp8 = Precision.FP8 in _formats(job) and job.stack.multiplies_fp8
    return (Precision.BF16, Precision.FP8) if has_fp8 else (Precision.BF16,)


def _recipes(job: Job) -> tuple[Fp8Recipe, ...]:
    return tuple(r for r in _USUAL_RECIPES if r in job.cluster.accelerator.fp8_recipes) or (Fp8Recipe.TENSORWISE,)


def _schedules(job: Job) -> tuple[int, ...]:
    usual = OPTIONS["pipeline_schedule"].searched or ()
    return tuple(one for one in usual if one in job.stack.pipeline_schedules) or (PipelineSchedule.ONE_F_ONE_B,)


def _compiles(job: Job) -> bool:
    """Whether layers are compiled; on cores that takes longer than the steps of a trial."""
    return job.stack.compiles and job.cluster.accelerator.kind != "cpu"


def _ends(job: Job) -> tuple[int, ...] | None:
    """Layers less on an end of a pipeline; None: what suits it."""
    return (0,) if job.cluster.accelerator.kind == "cpu" else None


def _context_degrees(job: Job) -> tuple[int, ...]:
    most = min(job.workload.seq_len // _FEWEST_CONTEXT_TOKENS, job.cluster.world_size)
    return tuple(1 << power for power in range(max(1, most).bit_length()))
