"""What one rank exchanges with the others of its groups in a step, and how long it waits for that.

The bytes are counted by the same laws as the seconds: they are the seconds that links of one byte per second would
take, beside which all computation is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import CollectiveKind, Link, MeasuredCollective
from autotuner.costmodel.layer.model_work import PartWorks
from autotuner.costmodel.micro_batch import hidden_bytes, hidden_split
from autotuner.costmodel.pipeline.rank_load import critical_ranks, load_of_rank, num_micro_batches
from autotuner.costmodel.step.data_parallel import data_communication_s
from autotuner.costmodel.step.rank_step import RankStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What a rank exchanges in one group in one step.

    Attributes:
        sent_bytes: Bytes that pass its link; of an all-reduce ``2 (n - 1) / n`` of what is summed.
        exposed_s: Seconds in which it waits for that; what computation hides does not count. Of the pipeline what sends
            add to the step.
    """

    sent_bytes: float
    exposed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """By group; nothing where a rank is alone in one."""

    tensor: Exchange
    context: Exchange
    expert: Exchange
    pipeline: Exchange
    data: Exchange


def exchanges(layout: Layout, job: Job, pipeline_rank: int) -> Exchanges:
    """What each rank of one pipeline rank exchanges in a step of a legal layout."""
    counted, spent = (_seconds(layout, one, pipeline_rank) for one in (_counting(layout, job), job))
    factors = {name: _factor(job, f"{name}_communication_s") for name in spent}
    found = {
        name: Exchange(sent_bytes=counted[name], exposed_s=factors[name] * spent[name])
        for name in ("tensor", "context", "expert", "data")
    }
    sent = Exchange(
        sent_bytes=_sent_bytes(layout, job, pipeline_rank), exposed_s=factors["pipeline"] * spent["pipeline"]
    )
    return Exchanges(pipeline=sent, **found)


def _seconds(layout: Layout, job: Job, pipeline_rank: int) -> dict[str, float]:
    x = LayoutColumns.from_layouts([layout])
    load = load_of_rank(x, job, np.array([pipeline_rank]))
    step = RankStep.of(x, job, (load,), PartWorks.of(x, job))
    slowest = RankStep.of(x, job, critical_ranks(x, job), PartWorks.of(x, job))  # whose sends lengthen the step
    found = {
        "tensor": step.step_time.tensor_communication_s,
        "context": step.step_time.context_communication_s,
        "expert": step.step_time.expert_communication_s,
        "pipeline": slowest.step_time.pipeline_communication_s,
        "data": data_communication_s(x, job, step.window),
    }
    return {name: max(0.0, float(seconds[0])) for name, seconds in found.items()}


def _counting(layout: Layout, job: Job) -> Job:
    """The job on links of one byte per second, and nothing else that would take time beside them."""
    link = Link(
        name="one byte per second",
        bandwidth_bytes_per_s=1.0,
        latency_s=0.0,
        measured=tuple(_lines(_group_sizes(layout))),
    )
    accelerator = replace(job.cluster.accelerator, core=None)
    cluster = replace(
        job.cluster, accelerator=accelerator, intra_node_link=link, inter_node_link=link, oversubscription=1.0
    )
    return replace(job, cluster=cluster, calibration=None)


def _group_sizes(layout: Layout) -> list[int]:
    """How many ranks any group may have; in the order of size, from 2 on."""
    degrees = (
        *(layout.tensor_parallel_degree, layout.context_parallel_degree, layout.expert_parallel_degree),
        *(layout.data_parallel_shard_degree, layout.data_parallel_replicate_degree, layout.pipeline_parallel_degree),
    )
    products = {1}
    for degree in degrees:
        products |= {degree * product for product in products}
    quotients = {product // degree for product in products for degree in degrees if product % degree == 0}
    return sorted({size for size in products | quotients if 1 < size <= layout.world_size})


def _lines(sizes: Iterable[int]) -> Iterable[MeasuredCollective]:
    for num_ranks in sizes:
        for kind in get_args(CollectiveKind):
            passed = {"send": 1.0, "all_reduce": 2 * (num_ranks - 1) / num_ranks}
            share = passed.get(kind, (num_ranks - 1) / num_ranks)
            yield MeasuredCollective(kind=kind, num_ranks=num_ranks, start_s=0.0, s_per_byte=share)


def _sent_bytes(layout: Layout, job: Job, pipeline_rank: int) -> float:
    """Hidden states to the stage behind and their gradients to the one before, of every micro-batch and stage."""
    ranks, chunks = layout.pipeline_parallel_degree, layout.virtual_stages_per_rank
    if ranks == 1:
        return 0.0
    x = LayoutColumns.from_layouts([layout])
    once = float((hidden_bytes(x, job) / hidden_split(x) * num_micro_batches(x, job))[0])
    ends = (pipeline_rank == 0) + (pipeline_rank == ranks - 1)
    return once * (2 * chunks - ends)


def _factor(job: Job, part: str) -> float:
    return 1.0 if job.calibration is None else job.calibration.of(part)
