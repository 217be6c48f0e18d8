"""What NCCL would take for the collectives of a layout."""

from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import ShardLevel
from autotuner.core.layout import Layout
from autotuner.search.explain.nccl_ways import nccl_ways
from tests.builders import big_job, tiny_job

A100_JOB = replace(big_job(8), cluster=load_cluster("a100:64"))


def test_each_axis_of_several_ranks_is_told_by_size() -> None:
    layout = Layout(
        tensor_parallel_degree=8,
        data_parallel_replicate_degree=2,
        data_parallel_shard_degree=4,
        shard_level=ShardLevel.PARAMETERS,
    )
    found = {ways.axis: ways for ways in nccl_ways(layout, A100_JOB)}
    assert [(name, ways.num_ranks, ways.num_nodes) for name, ways in found.items()] == [
        ("tensor", 8, 1),
        ("shard", 4, 4),
        ("replicate", 2, 2),
    ]
    assert "ring LL below 4.19 MB" in found["tensor"].sentence
    assert found["shard"].sentence.endswith("for gathers and reduce-scatters")


def test_trees_are_told_between_many_nodes() -> None:
    (ways,) = nccl_ways(Layout(data_parallel_replicate_degree=64), A100_JOB)
    assert "tree LL128 below" in ways.sentence
    assert ways.sentence.endswith("ring Simple above for all-reduces")


def test_on_cores_there_is_no_nccl() -> None:
    assert nccl_ways(Layout(data_parallel_replicate_degree=2), tiny_job()) == ()
