"""Tests of ``autotuner.costmodel.resource_cost``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import CollectiveHierarchy, GradientSync, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.resource_cost import TrafficColumns
from tests.builders import h100_cluster, tiny_model

REPLICAS = Layout(data_parallel_replicate_degree=16)
SHARDS = Layout(data_parallel_shard_degree=16, shard_level=ShardLevel.PARAMETERS)
STAGES = Layout(pipeline_parallel_degree=2, data_parallel_replicate_degree=8)


def job(num_nodes: int = 2) -> Job:
    workload = Workload(seq_len=64, global_batch_size=32)
    return Job(model=tiny_model(), cluster=h100_cluster(num_nodes), workload=workload)


def traffic(layout: Layout, of: Job) -> TrafficColumns:
    return TrafficColumns.of(LayoutColumns.from_layouts([layout]), of)


@pytest.mark.parametrize("layout", [REPLICAS, STAGES, replace(SHARDS, tensor_parallel_degree=1)], ids=str)
def test_nothing_leaves_a_single_node(layout: Layout) -> None:
    halved = replace(layout, data_parallel_replicate_degree=max(1, layout.data_parallel_replicate_degree // 2))
    halved = replace(halved, data_parallel_shard_degree=max(1, layout.data_parallel_shard_degree // 2))
    assert traffic(halved, job(1)).total_bytes == 0


def test_gradients_of_replicas_leave_each_node_as_around_a_ring() -> None:
    gradients_bytes = 2 * tiny_model().num_parameters
    found = traffic(REPLICAS, job())
    assert found.data_bytes == pytest.approx(2 * 2 * 15 / 16 * gradients_bytes)  # a float product
    assert found.total_bytes == found.data_bytes


def test_two_levels_send_between_nodes_alone_what_nodes_have_summed() -> None:
    flat, two_level = (
        traffic(replace(REPLICAS, collective_hierarchy=one), job()).data_bytes for one in CollectiveHierarchy
    )
    assert two_level / flat == pytest.approx((1 / 2) / (15 / 16))  # a float quotient


def test_sharded_parameters_are_gathered_and_scattered_for_every_micro_batch() -> None:
    parameters_bytes, num_micro_batches = 2 * tiny_model().num_parameters, 2
    passes = num_micro_batches * 2  # one gather and one scatter
    expected_bytes = passes * 2 * 15 / 16 * parameters_bytes
    assert traffic(SHARDS, job()).data_bytes == pytest.approx(expected_bytes)  # a float product
    resharded = traffic(replace(SHARDS, reshard_after_forward=True), job()).data_bytes
    assert resharded == pytest.approx(1.5 * expected_bytes)  # gathered once more


def test_stages_on_two_nodes_send_hidden_states_and_their_gradients_over_one_hop() -> None:
    found, num_micro_batches = traffic(STAGES, job()), 4
    hidden_bytes = 2 * 64 * tiny_model().hidden_size
    assert found.pipeline_bytes == pytest.approx(8 * 2 * num_micro_batches * hidden_bytes)  # a float product
    assert found.data_bytes == 0  # replicas of a stage share a node


def test_what_is_sparse_leaves_as_little_as_is_sent() -> None:
    full, sparse = (
        traffic(replace(REPLICAS, gradient_sync=one, sync_sparsity=16), job()).data_bytes
        for one in (GradientSync.FULL, GradientSync.RANDOM)
    )
    assert sparse / full == pytest.approx(2 / 16)  # one element of 16, in fp32 where gradients are in bf16


def test_rows_of_a_table_are_those_of_its_layouts() -> None:
    table = TrafficColumns.of(LayoutColumns.from_layouts([REPLICAS, SHARDS, STAGES]), job())
    alone = [traffic(layout, job()).total_bytes[0] for layout in (REPLICAS, SHARDS, STAGES)]
    np.testing.assert_array_equal(table.total_bytes, alone)
