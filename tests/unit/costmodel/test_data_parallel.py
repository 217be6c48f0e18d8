"""Gradients of replicas: buckets and the format that they are summed in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.predict import predict
from autotuner.domain.choice import PipelineSchedule, ShardLevel
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.workload import Workload
from tests.builders import h100_cluster, llama_70b
from tests.unit.costmodel.works import with_stack

REPLICAS = Layout(data_parallel_replicate_degree=8)


def small_job(**stack: float | bool) -> Job:
    job = Job(
        model=llama_70b(num_layers=2),
        cluster=h100_cluster(1),
        workload=Workload(seq_len=4096, global_batch_size=8),
    )
    return with_stack(job, **stack)


def exposed_s(layout: Layout, job: Job | None = None) -> float:
    step = predict(LayoutColumns.from_layouts([layout]), job or small_job(overlaps_data_parallel=1.0)).step_time
    return float(step.data_communication_s[0])


def test_the_best_bucket_is_neither_small_nor_all() -> None:
    """Small ones start a collective too often; one for all gradients starts when nothing is left to hide under."""
    small, medium, whole = (exposed_s(replace(REPLICAS, gradient_bucket_bytes=2**n)) for n in (16, 26, 40))
    assert medium < small
    assert medium < whole


def test_a_stack_that_reduces_layer_by_layer_has_no_buckets() -> None:
    small, whole = (
        exposed_s(replace(REPLICAS, gradient_bucket_bytes=2**n), small_job(fills_buckets=False)) for n in (16, 40)
    )
    assert small == whole


def test_schedules_of_several_stages_per_rank_reduce_stage_by_stage() -> None:
    layout = Layout(
        data_parallel_replicate_degree=4,
        pipeline_parallel_degree=2,
        virtual_stages_per_rank=2,
        pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
    )
    job = replace(small_job(), model=llama_70b(num_layers=8))
    few, many = (exposed_s(replace(layout, virtual_stages_per_rank=v), job) for v in (2, 4))
    assert few != many
    assert exposed_s(replace(layout, gradient_bucket_bytes=2**16), job) == few


@pytest.mark.parametrize("shard_level", list(ShardLevel))
def test_gradients_summed_in_fp32_travel_twice_as_wide(shard_level: ShardLevel) -> None:
    sharded = shard_level != ShardLevel.NONE
    layout = replace(
        REPLICAS,
        shard_level=shard_level,
        data_parallel_shard_degree=8 if sharded else 1,
        data_parallel_replicate_degree=1 if sharded else 8,
    )
    wide = replace(layout, fp32_gradient_reduce=True)
    assert exposed_s(wide) > exposed_s(layout)
    sizes = predict(LayoutColumns.from_layouts([layout, wide]), small_job()).memory
    assert sizes.gradients_bytes[1] == 2 * sizes.gradients_bytes[0]
