"""What trainers of others say of sends between stages and of the places of ranks: nearly nothing.

Megatron numbers its ranks tp-cp-ep-dp-pp, or tp-cp-ep-pp-dp (``--use-tp-pp-dp-mapping``); torchtitan's mesh is pp,
dp_replicate, dp_shard, cp, tp; DeepSpeed's PipeModelDataParallelTopology has the axes pipe, data, model. Which node has
which number is the launcher's choice, so that stages are rotated by the order of a hostfile.
"""

from __future__ import annotations

from autotuner.core.choices import P2PTransport, RankOrder
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.rule import Rule

LAUNCHED = frozenset({"stage_rotation"})
"""What a launch decides, and no configuration."""


def sends_and_places(trainer: str, prefix: str) -> tuple[Rule, ...]:
    """Rules of a trainer whose pipeline ranks send themselves, and stand on nodes as a launcher numbers these.

    Args:
        trainer: As sentences name it.
        prefix: Of the names of its rules.
    """
    return (
        Rule(
            f"{prefix}-sends-inline",
            "p2p_transport",
            lambda x, j: x.p2p_transport != P2PTransport.INLINE,
            lambda x, j: f"pipeline ranks of {trainer} send and receive themselves; it has no delegates",
            lambda x, j: P2PTransport.INLINE.label,
        ),
        Rule(
            f"{prefix}-rotates-whole-nodes",
            "stage_rotation",
            lambda x, j: (x.stage_rotation > 0) & _shares_nodes(x, j),
            lambda x, j: "stages are rotated by the order of nodes in a hostfile, and stages here share nodes",
            lambda x, j: 0,
        ),
    )


def numbers_ranks(trainer: str, prefix: str) -> Rule:
    """The rule of a trainer with one order of axes."""
    return Rule(
        f"{prefix}-keeps-rank-order",
        "rank_order",
        lambda x, j: x.rank_order != RankOrder.STAGES_OUTERMOST,
        lambda x, j: f"{trainer} numbers its ranks with the stages outermost",
        lambda x, j: RankOrder.STAGES_OUTERMOST.label,
    )


def rotation_said(job: Job, layout: Layout) -> tuple[str, ...]:
    """How a launch rotates the stages, as a sentence without a full stop; none where nothing is rotated."""
    if not layout.stage_rotation:
        return ()
    nodes = layout.world_size // layout.pipeline_parallel_degree // job.cluster.accelerators_per_node
    first = layout.stage_rotation * max(1, nodes) % job.cluster.num_nodes
    return (
        f"stage_rotation {layout.stage_rotation} is the order of nodes: the hostfile begins with node {first} of the "
        "cluster, and goes on around its end",
    )


def _shares_nodes(x: Layout, job: Job) -> bool:
    """Whether a stage is no whole number of nodes, or its ranks do not follow one another."""
    per_stage = (
        x.data_parallel_replicate_degree
        * x.data_parallel_shard_degree
        * x.context_parallel_degree
        * x.tensor_parallel_degree
    )
    return (per_stage % job.cluster.accelerators_per_node != 0) | (x.rank_order != RankOrder.STAGES_OUTERMOST)
