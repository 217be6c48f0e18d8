"""Traffic: bytes that leave nodes in a step of the whole job, by who sends them, in columns.

Collectives are counted as rings, whose every edge carries each byte once per pass; an algorithm that moves the same
bytes in another order loads ports as much, on average. What a node's own links carry counts nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import cast

import numpy as np

from autotuner.core import stages
from autotuner.core.choices import (
    CollectiveHierarchy,
    ContextExchange,
    GradientSync,
    PipelineSchedule,
    Recompute,
    ShardLevel,
)
from autotuner.core.columns import Floats, Integers, LayoutColumns, is_one_of
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.process_groups import (
    context_group,
    exchange_group,
    expert_group,
    expert_shard_group,
    pipeline_group,
    replicate_group,
    shard_group,
    tensor_group,
)
from autotuner.costmodel.links.hops import sent_bytes
from autotuner.costmodel.memory.sharding import gradient_bytes
from autotuner.costmodel.micro_batch import hidden_bytes, tokens_per_pass
from autotuner.costmodel.narrow import gathered_share
from autotuner.costmodel.pipeline.rank_load import num_micro_batches
from autotuner.costmodel.routing import own_copies


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficColumns:
    """Bytes of a step that leave a node, of all nodes together.

    Attributes:
        data_bytes: Gradients that are summed, and parameters that are gathered.
        tensor_bytes: Sums of hidden states.
        context_bytes: Keys, values and their gradients, or heads.
        expert_bytes: Tokens on their way to experts and back.
        pipeline_bytes: Hidden states and their gradients between stages.
    """

    data_bytes: Floats
    tensor_bytes: Floats
    context_bytes: Floats
    expert_bytes: Floats
    pipeline_bytes: Floats

    @classmethod
    def of(cls, x: LayoutColumns, job: Job) -> TrafficColumns:
        """One row per layout."""
        return cls(
            data_bytes=_data_bytes(x, job),
            tensor_bytes=_tensor_bytes(x, job),
            context_bytes=_context_bytes(x, job),
            expert_bytes=_expert_bytes(x, job),
            pipeline_bytes=_pipeline_bytes(x, job),
        )

    @property
    def total_bytes(self) -> Floats:
        """The sum of all parts."""
        total: Floats = reduce(add, (getattr(self, f.name) for f in fields(self)))
        return total


# ---------------------------------------------------------------- of a byte that a collective works on
def _around(group: Group) -> Floats:
    """How often it leaves a node while a ring gathers or scatters it: over one edge of each node."""
    around: Floats = group.num_nodes * (group.num_ranks - 1) / group.num_ranks
    return np.where(group.crosses_nodes, around, 0.0)


def _around_data(x: LayoutColumns, group: Group) -> Floats:
    """The same among data-parallel ranks, where a ring of two levels passes each node's part between nodes alone."""
    two_level = x.collective_hierarchy == CollectiveHierarchy.TWO_LEVEL
    return np.where(two_level & group.crosses_nodes, group.num_nodes - 1.0, _around(group))


def _outside(group: Group) -> Floats:
    """Share of what a rank sends to all ranks of its group alike that goes to other nodes."""
    outside: Floats = (group.num_ranks - group.ranks_per_node) / group.num_ranks
    return np.where(group.crosses_nodes, outside, 0.0)


# ---------------------------------------------------------------- of each axis
def _data_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Of dense weights, and of experts among the fewer ranks that hold the same."""
    experts = float(job.model.num_expert_parameters)
    dense_bytes = _exchanged_bytes(x, job, job.model.num_parameters - experts, shard_group(x, job.cluster))
    if not experts:
        return dense_bytes
    group, apart = expert_shard_group(x, job), x.expert_parallel_degree > 1
    together_bytes = _exchanged_bytes(x, job, experts, shard_group(x, job.cluster))
    return dense_bytes + np.where(apart, _exchanged_bytes(x, job, experts, group), together_bytes)


def _exchanged_bytes(x: LayoutColumns, job: Job, elements: float, shard: Group) -> Floats:
    """Of so many elements of the model, which groups of one kind shard and replicas of these sum."""
    gathers, reduces = _num_gathers_and_reduces(x, job)
    summed_bytes = elements * gradient_bytes(x, job)
    gathered_bytes = elements * x.element_bytes * gathered_share(x, job)
    sharded = (gathers * gathered_bytes + reduces * summed_bytes) * _around_data(x, shard)
    everywhere = np.where(x.shard_level == ShardLevel.NONE, 0.0, x.data_parallel_replicate_degree * sharded)
    replicate = replicate_group(x, job.cluster)
    full = 2 * reduces * summed_bytes * _around_data(x, replicate)
    if not x.gradient_sync.any():
        return everywhere + full
    return everywhere + np.where(x.gradient_sync == GradientSync.FULL, full, _lossy_bytes(x, job, elements))


def _lossy_bytes(x: LayoutColumns, job: Job, elements: float) -> Floats:
    """What replicas exchange in the place of gradients, over those edges of their ring that leave a node.

    Context ranks of one replica sum theirs first where nothing is sharded.
    """
    group, one = exchange_group(x, job.cluster), cast("Layout", x)
    edges = np.where(group.crosses_nodes, group.num_nodes, 0)
    sent: Floats = edges * stages.sent_bytes(one, elements, 4.0)
    apart = (x.shard_level == ShardLevel.NONE) & (x.context_parallel_degree > 1)
    summed = 2 * elements * gradient_bytes(x, job) * x.data_parallel_replicate_degree
    return sent + np.where(apart, summed * _around(context_group(x, job.cluster)), 0.0)


def _num_gathers_and_reduces(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """How often a step gathers all parameters and reduces all gradients (``step.data_parallel`` says why)."""
    m, in_pipeline = num_micro_batches(x, job), x.pipeline_parallel_degree > 1
    by_parameters = x.shard_level == ShardLevel.PARAMETERS
    whole = np.where(in_pipeline, np.where(x.reshard_after_forward, m, 1), m * (1 + x.reshard_after_forward))
    gathers = np.where(by_parameters, whole, (x.shard_level > ShardLevel.NONE) * 1.0)
    often = (x.shard_level == ShardLevel.GRADIENTS) | (by_parameters & ~in_pipeline)
    return gathers, np.where(often, m, 1.0)


def _tensor_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Two sums in each pass through a layer, forward and backward, and forward again where it is recomputed."""
    group = tensor_group(x, job.cluster)
    passes = 2.0 + (x.recompute == Recompute.FULL) / x.recompute_every
    num_groups = job.cluster.world_size / group.num_ranks
    summed: Floats = _layer_visits(x, job) * num_groups * 2 * passes * hidden_bytes(x, job)
    return 2 * summed * _around(group)


def _context_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Blocks of keys and values around the ring, then with their gradients, which take one send more; or gathered.

    Or queries, keys, values and outputs, exchanged for heads and back, forward and backward.
    """
    group, model = context_group(x, job.cluster), job.model
    tokens_bytes = x.element_bytes * tokens_per_pass(x, job) / x.tensor_parallel_degree
    block_bytes, others = tokens_bytes * model.key_value_size, group.num_ranks - 1
    edges = np.where(group.crosses_nodes, group.num_nodes / group.num_ranks, 0.0)
    heads_bytes = 2 * tokens_bytes * (model.query_size + model.key_value_size + model.attention_output_size)
    sent: Floats = np.select(
        [x.context_exchange == ContextExchange.RING, x.context_exchange == ContextExchange.ALL_GATHER],
        [edges * (3 * others + 1) * block_bytes, edges * 2 * others * block_bytes],
        default=_outside(group) * heads_bytes,
    )
    return np.where(group.crosses_nodes, _layer_visits(x, job) * job.cluster.world_size * sent, 0.0)


def _expert_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Copies of tokens to the ranks of their experts and answers back, forward and backward."""
    experts = job.model.experts
    if experts is None:
        return np.zeros(len(x))
    group = expert_group(x, job)
    sent_bytes_of_rank = x.element_bytes * job.model.hidden_size * own_copies(x, job, experts)
    visits = _layer_visits(x, job) * job.model.num_sparse_layers / job.model.num_layers
    return visits * job.cluster.world_size * 4 * sent_bytes_of_rank * _outside(group)


def _pipeline_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Hidden states over each link between stages that joins two nodes, and their gradients back.

    With several stages per rank the last rank's hand theirs to the first rank's, but for schedules in a V.
    """
    group, ranks = pipeline_group(x, job.cluster), job.cluster.world_size / x.pipeline_parallel_degree
    in_a_ring = ~is_one_of(x.pipeline_schedule, (PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV))
    turns: Integers = (x.virtual_stages_per_rank - 1) * in_a_ring
    hops = np.where(group.crosses_nodes, x.virtual_stages_per_rank * (group.num_nodes - 1) + turns, 0)
    return hops * ranks * 2 * num_micro_batches(x, job) * sent_bytes(x, job)


def _layer_visits(x: LayoutColumns, job: Job) -> Floats:
    """Layers that a rank computes in a step: those of its stages, for every micro-batch."""
    visits: Floats = num_micro_batches(x, job) * (job.model.num_layers / x.pipeline_parallel_degree)
    return visits
