"""Lossy exchanges between replicas: wire, kernels, and nothing hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import GradientSync, PayloadPrecision, RankOrder, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import payload_bytes, sent_bytes
from autotuner.core.workload import Workload
from autotuner.costmodel.communication.collectives import all_gather_s, all_reduce_s
from autotuner.costmodel.communication.layout_groups import exchange_group
from autotuner.costmodel.details import exchanges
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.step.lossy_exchange import exchange_wire_s, lossy_exchange_s
from tests.builders import cpu_layout, h100_cluster, llama_70b, tiny_job

LOSSY = tuple(one for one in GradientSync if one != GradientSync.FULL)
HSDP = Layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)
SHARD = 1e8
"""Elements of a rank."""


def on_nodes(num_nodes: int, bandwidth_bytes_per_s: float = 50e9) -> Job:
    """A small model on nodes that this bandwidth connects, per accelerator."""
    cluster = h100_cluster(num_nodes)
    link = replace(cluster.inter_node_link, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    return Job(
        model=llama_70b(num_layers=8, hidden_size=1024, num_heads=8, num_kv_heads=8, ffn_size=2048),
        cluster=replace(cluster, inter_node_link=link),
        workload=Workload(seq_len=512, global_batch_size=16 * num_nodes),
    )


def num_elements(job: Job) -> int:
    """The model's, but for its last norm, which the cost model leaves out."""
    return job.model.num_parameters - job.model.hidden_size


def with_sync(sync: GradientSync, layout: Layout = HSDP) -> Layout:
    return replace(layout, gradient_sync=sync)


def seconds(layout: Layout, job: Job, num_elements: float = SHARD) -> float:
    return float(lossy_exchange_s(LayoutColumns.from_layouts([layout]), job, np.array([num_elements]))[0])


def wire_s(layout: Layout, job: Job, num_elements: float = SHARD) -> float:
    return float(exchange_wire_s(LayoutColumns.from_layouts([layout]), job, np.array([num_elements]))[0])


def test_a_lossy_exchange_counts_as_an_average_step_that_gathers_or_reduces_what_it_sends() -> None:
    assert seconds(HSDP, on_nodes(2)) == 0.0
    often, seldom = (replace(with_sync(GradientSync.DILOCO), sync_period=period) for period in (1, 32))
    assert seconds(often, on_nodes(2)) == pytest.approx(32 * seconds(seldom, on_nodes(2)), rel=1e-12)  # one rounding
    job, x = on_nodes(4), LayoutColumns.from_layouts([replace(HSDP, data_parallel_replicate_degree=4)])
    group = exchange_group(x, job.cluster)
    for sync in LOSSY:
        layout = with_sync(sync, x.row(0))
        one_bytes = np.array([payload_bytes(layout, SHARD, 4.0)])
        if sync == GradientSync.DILOCO:
            one_bytes = 16 * one_bytes  # of the step in which it exchanges
        expected = all_gather_s(4 * one_bytes, group) if sync == GradientSync.DEMO else all_reduce_s(one_bytes, group)
        assert wire_s(layout, job) == pytest.approx(float(expected[0]), rel=1e-12)  # rounded in another order


@pytest.mark.parametrize("sync", LOSSY)
def test_a_narrow_payload_is_on_the_wire_for_less_long(sync: GradientSync) -> None:
    narrow = replace(with_sync(sync), payload_precision=PayloadPrecision.BF16)
    assert wire_s(narrow, on_nodes(2)) < wire_s(with_sync(sync), on_nodes(2))


def test_a_larger_chunk_costs_longer_products_and_comparing_more_than_drawing() -> None:
    # At one rate: four times the chunk, four times the components.
    small = replace(with_sync(GradientSync.DEMO), sync_chunk=512, sync_top_k=32)
    large = replace(small, sync_chunk=2048, sync_top_k=128)
    job = on_nodes(2)
    assert wire_s(large, job) == wire_s(small, job)
    assert seconds(large, job) > seconds(small, job)
    # Where the wire is nothing: DeMo's transforms and top-k cost more than the other exchanges do.
    job, layout = tiny_job(2), cpu_layout(data_parallel_replicate_degree=2)
    kernels = {
        sync: seconds(with_sync(sync, layout), job, 1e6) - wire_s(with_sync(sync, layout), job, 1e6)
        for sync in (GradientSync.DEMO, GradientSync.RANDOM, GradientSync.STRIDING)
    }
    assert kernels[GradientSync.DEMO] > 3 * kernels[GradientSync.RANDOM] > 3 * kernels[GradientSync.STRIDING]


@pytest.mark.parametrize("num_nodes", [16, 32, 64])
def test_demo_is_slower_than_full_once_replicas_are_as_many_as_its_rate_allows(num_nodes: int) -> None:
    """1/16 of all components, numbered with a byte: 16 x 8 / 5 replicas, and before that for latency alone."""
    job = on_nodes(num_nodes, 1e9)
    layout = replace(HSDP, data_parallel_replicate_degree=num_nodes)
    demo = with_sync(GradientSync.DEMO, layout)
    full_s = float(
        all_reduce_s(np.array([4.0 * SHARD]), exchange_group(LayoutColumns.from_layouts([layout]), job.cluster))[0]
    )
    assert (wire_s(demo, job) > full_s) == (num_nodes >= 16 * 8 / 5)
    assert sent_bytes(demo, SHARD, 4.0) / sent_bytes(layout, SHARD, 4.0) == num_nodes * (4 + 1) / (16 * 8)


def test_on_64_nodes_random_steps_are_faster_than_full_ones_and_those_of_demo_are_not() -> None:
    """One rank per node, a network of 10 Gbit/s, as in the measurements of arXiv 2502.06728."""
    cluster = h100_cluster(64, accelerators_per_node=1)
    link = replace(cluster.inter_node_link, bandwidth_bytes_per_s=1.25e9)
    base = on_nodes(64)
    job = replace(base, cluster=replace(cluster, inter_node_link=link))
    layout = Layout(data_parallel_replicate_degree=64, fp32_gradient_reduce=True)
    table = predict(
        LayoutColumns.from_layouts(
            with_sync(sync, layout) for sync in (GradientSync.FULL, GradientSync.RANDOM, GradientSync.DEMO)
        ),
        job,
    )
    full_s, random_s, demo_s = table.step_time.total_s
    assert random_s < full_s < demo_s


@pytest.mark.parametrize("sync", LOSSY)
def test_nothing_of_a_lossy_exchange_is_hidden(sync: GradientSync) -> None:
    """Beyond what its shards do inside a node it adds all that it takes, however long the backward pass is."""
    job, layout = on_nodes(2, 1e9), Layout(data_parallel_replicate_degree=16)
    predicted = predict_one(with_sync(sync, layout), job)
    held = num_elements(job)
    assert predicted.step_time.data_communication_s == pytest.approx(
        seconds(with_sync(sync, layout), job, held), rel=1e-9
    )  # summed in another order


@pytest.mark.parametrize("sync", LOSSY)
def test_context_ranks_of_a_replica_still_sum_their_gradients(sync: GradientSync) -> None:
    job = on_nodes(2, 1e9)
    alone = Layout(data_parallel_replicate_degree=16, gradient_sync=sync)
    joined = replace(alone, data_parallel_replicate_degree=8, context_parallel_degree=2)
    sends = exchanges(joined, job, 0).data.sent_bytes
    summed = 2 * num_elements(job)  # 2 (n - 1) / n of bf16 between two
    assert sends == pytest.approx(
        sent_bytes(joined, num_elements(job), 2.0) + summed, rel=1e-6
    )  # computation stands beside the bytes
    assert exchanges(alone, job, 0).data.sent_bytes == pytest.approx(
        sent_bytes(alone, num_elements(job), 2.0), rel=1e-6
    )


def test_shards_exchange_inside_their_replica_and_close_replicas_without_the_network() -> None:
    # What goes between nodes is what differs.
    job = on_nodes(2)
    inside = replace(HSDP, data_parallel_replicate_degree=1)
    one_node = replace(job, cluster=h100_cluster(1), workload=replace(job.workload, global_batch_size=16))
    lossy = predict_one(with_sync(GradientSync.RANDOM), job).step_time.data_communication_s
    of_shards = predict_one(inside, one_node).step_time.data_communication_s
    added = seconds(with_sync(GradientSync.RANDOM), job, num_elements(job) / 8)
    assert lossy == pytest.approx(of_shards + added, rel=1e-9)  # summed in another order
    job = on_nodes(2, 1e9)
    layout = Layout(data_parallel_replicate_degree=8, pipeline_parallel_degree=2, gradient_sync=GradientSync.RANDOM)
    apart = replace(layout, rank_order=RankOrder.REPLICAS_OUTERMOST)
    assert wire_s(layout, job) < wire_s(apart, job)
