"""Which parts of a target's step a small trial runs just so."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.trial import ScaledTrial
from autotuner.search.scaling.smaller import scaled
from tests.builders import big_job, h100_cluster

PIPELINE = Layout(
    data_parallel_shard_degree=8,
    tensor_parallel_degree=4,
    pipeline_parallel_degree=2,
    shard_level=ShardLevel.OPTIMIZER,
)


def measured(layout: Layout, num_nodes: int = 2) -> set[str]:
    trial = scaled(big_job(), layout, h100_cluster(num_nodes))
    assert isinstance(trial, ScaledTrial)
    return set(trial.measured_parts)


def test_what_a_rank_takes_by_itself_is_measured() -> None:
    assert {"matrix_s", "attention_s", "pointwise_s", "recompute_s"} <= measured(PIPELINE)


def test_groups_of_as_many_ranks_are_measured_and_smaller_ones_modelled() -> None:
    found = measured(PIPELINE)
    assert {"tensor_communication_s", "bubble_s"} <= found
    assert not {"data_communication_s", "optimizer_s"} & found


def test_a_shorter_pipeline_waits_otherwise() -> None:
    deep = replace(PIPELINE, pipeline_parallel_degree=4, data_parallel_shard_degree=4)
    found = measured(deep)
    assert "bubble_s" not in found
    assert "matrix_s" in found


def test_stages_that_come_to_lie_in_one_node_send_over_another_link() -> None:
    assert "pipeline_communication_s" in measured(PIPELINE)
    assert "pipeline_communication_s" not in measured(PIPELINE, num_nodes=1)


def test_groups_that_there_are_none_of_are_not_named() -> None:
    assert not {"context_communication_s", "expert_communication_s"} & measured(PIPELINE)


def test_replicas_of_plain_data_parallelism_update_as_much() -> None:
    assert "optimizer_s" in measured(Layout(data_parallel_replicate_degree=64))
