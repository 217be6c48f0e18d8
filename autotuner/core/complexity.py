"""Complexity of a layout: how many unusual things an operator has to understand to run it."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from autotuner.core.choices import (
    AttentionKernel,
    BatchBalance,
    CollectiveAlgorithm,
    ContextExchange,
    GradientClip,
    GradientSync,
    P2PTransport,
    PipelineSchedule,
    Precision,
    RankOrder,
    Recompute,
)
from autotuner.core.layout import OPTIONS, Layout

SETTING = 1.0
"""A setting of the trainer that somebody has to know of when the job is read, moved or taken over."""

METHOD = 2.0
"""A method that somebody has to understand before a job by it is debugged: who waits for whom, and what is where."""

MACHINERY = 3.0
"""Hardware that not every cluster has, processes beside the ranks, or what only a new start of the job can change."""

MATHEMATICS = 4.0
"""Another function is trained: somebody has to gate its loss, and to explain it to those who use the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burden:
    """What some values of an option add to a layout's complexity; the weights are an assumption, and one table.

    Attributes:
        option: Field of ``Layout``.
        weight: What it adds.
        values: Of the option, those that add it; empty: any but its default.
        why: What there is to know, to install or to watch over.
    """

    option: str
    weight: float
    values: tuple[int, ...] = ()
    why: str

    def weighs(self, x: Layout) -> Any:
        """Whether a layout bears it: a bool, or a column of them."""
        value = getattr(x, self.option)
        if not self.values:
            return value != OPTIONS[self.option].default
        return reduce(operator.or_, (value == one for one in self.values))


BURDENS = (
    # ------------------------------------------------------------ which ranks share what
    Burden(option="shard_level", weight=SETTING, why="states are shared out, and have to be gathered to be saved"),
    Burden(option="reshard_after_forward", weight=SETTING, why="weights come and go within a step"),
    Burden(option="tensor_parallel_degree", weight=METHOD, why="each matrix is in parts on several ranks"),
    Burden(option="sequence_parallel", weight=SETTING, why="activations between matrices are in parts too"),
    Burden(option="async_tensor_parallel", weight=METHOD, why="collectives are cut up under the products beside them"),
    Burden(option="context_parallel_degree", weight=METHOD, why="a sequence is in parts on several ranks"),
    Burden(
        option="context_exchange",
        weight=SETTING,
        values=(ContextExchange.ALL_GATHER, ContextExchange.ALL_TO_ALL),
        why="another way to meet in attention than the trainers' first",
    ),
    Burden(option="expert_parallel_degree", weight=METHOD, why="tokens travel to ranks that change from step to step"),
    # ------------------------------------------------------------ pipelines
    Burden(option="pipeline_parallel_degree", weight=METHOD, why="each rank has a part of the layers, and waits"),
    Burden(option="virtual_stages_per_rank", weight=SETTING, why="a rank's layers do not follow each other"),
    Burden(
        option="pipeline_schedule",
        weight=METHOD,
        values=(PipelineSchedule.ZERO_BUBBLE, PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV),
        why="backward passes are cut in two and moved",
    ),
    Burden(
        option="pipeline_schedule",
        weight=MACHINERY,
        values=(PipelineSchedule.ADAPTIVE,),
        why="a controller watches links, and changes the order of passes between steps",
    ),
    Burden(option="extra_slack", weight=SETTING, why="how far a plan runs ahead is set by hand"),
    Burden(
        option="p2p_transport",
        weight=MACHINERY,
        values=(P2PTransport.DELEGATED,),
        why="processes beside each rank send for it, from the host's memory",
    ),
    Burden(option="first_stage_less_layers", weight=SETTING, why="stages are uneven"),
    Burden(option="last_stage_less_layers", weight=SETTING, why="stages are uneven"),
    Burden(
        option="rank_order",
        weight=SETTING,
        values=(RankOrder.REPLICAS_OUTERMOST,),
        why="ranks lie otherwise than trainers number them",
    ),
    Burden(option="stage_rotation", weight=SETTING, why="stages lie otherwise than trainers number them"),
    Burden(option="rank_placement", weight=SETTING, why="the launcher must deal ranks as the layout says"),
    # ------------------------------------------------------------ memory and kernels
    Burden(
        option="recompute",
        weight=SETTING,
        values=(Recompute.SELECTIVE, Recompute.FULL),
        why="layers run twice, and random numbers must repeat",
    ),
    Burden(option="offload_activations", weight=METHOD, why="activations travel to the host and back"),
    Burden(option="compiled", weight=METHOD, why="a compiler stands between the code and what runs"),
    Burden(
        option="attention_kernel",
        weight=SETTING,
        values=(AttentionKernel.FLASH_3, AttentionKernel.CUDNN, AttentionKernel.FLEX),
        why="a package, a library's version or a compiler beyond PyTorch's own kernels",
    ),
    Burden(option="fp32_gradient_reduce", weight=SETTING, why="gradients travel in another format than weights"),
    Burden(
        option="precision",
        weight=MATHEMATICS,
        values=(Precision.FP8, Precision.FP8_EMULATED, Precision.NVFP4),
        why="products are rounded: its loss is to be gated",
    ),
    # ------------------------------------------------------------ batches and the loss
    Burden(
        option="batch_balance",
        weight=SETTING,
        values=tuple(BatchBalance)[1:],
        why="which rank trains which sequence depends on all of the batch",
    ),
    Burden(option="sequence_packing", weight=SETTING, why="sequences share a row behind a mask"),
    Burden(
        option="gradient_sync",
        weight=MATHEMATICS,
        values=tuple(GradientSync)[1:],
        why="replicas differ, and exchange a part: its loss is to be gated",
    ),
    Burden(
        option="gradient_clip",
        weight=MATHEMATICS,
        values=(GradientClip.PRE, GradientClip.BUCKET),
        why="other gradients are clipped: its loss is to be gated",
    ),
    # ------------------------------------------------------------ collectives and the network
    Burden(option="collective_hierarchy", weight=METHOD, why="communicators of nodes and between them, of our own"),
    Burden(
        option="collective_algorithm",
        weight=SETTING,
        values=(CollectiveAlgorithm.RING, CollectiveAlgorithm.TREE),
        why="the library's choice is overruled until the job starts anew",
    ),
    Burden(
        option="collective_algorithm",
        weight=MACHINERY,
        values=(CollectiveAlgorithm.NVLS, CollectiveAlgorithm.COLLNET),
        why="switches that add: NVLink SHARP in a node, or SHARP and its daemons in the network",
    ),
    Burden(
        option="collective_protocol", weight=SETTING, why="the library's choice is overruled until the job starts anew"
    ),
    Burden(
        option="collective_channels", weight=SETTING, why="the library's choice is overruled until the job starts anew"
    ),
    Burden(option="queue_pairs", weight=SETTING, why="a setting of RDMA ports, until the job starts anew"),
    Burden(option="pxn", weight=SETTING, why="what the library does over rails is overruled until the job starts anew"),
)
"""Everything that counts, option by option."""

FREE_OPTIONS = frozenset(OPTIONS) - {burden.option for burden in BURDENS}
"""What adds nothing: numbers that somebody has to choose in any job, and what says more of an option that counts."""


def burdens_of(layout: Layout) -> tuple[Burden, ...]:
    """What makes up the complexity of one layout, in the order of the table."""
    return tuple(burden for burden in BURDENS if burden.weighs(layout))


def complexity(x: Layout) -> Any:
    """Sum of the weights of everything that a layout bears: a number, or a column of them; 0 for plain replicas."""
    return sum(burden.weight * burden.weighs(x) for burden in BURDENS)
