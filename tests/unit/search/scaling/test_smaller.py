"""The trial on few accelerators that stands for a layout of a job on many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import PipelineSchedule, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.rules.rule import Reason
from autotuner.core.stages import stage_sizes
from autotuner.core.trial import ScaledTrial
from autotuner.search.scaling.smaller import fewer_layers, scaled
from tests.builders import big_job, h100_cluster, llama_70b

TWO_NODES = h100_cluster(2)

FSDP = Layout(
    data_parallel_shard_degree=16,
    tensor_parallel_degree=4,
    shard_level=ShardLevel.PARAMETERS,
    reshard_after_forward=True,
    micro_batch_size=2,
)
PIPELINE = Layout(
    data_parallel_replicate_degree=4,
    tensor_parallel_degree=4,
    pipeline_parallel_degree=4,
    pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
    virtual_stages_per_rank=5,
    sequence_parallel=True,
)


def trial_of(layout: Layout, job: Job | None = None, **asked: int) -> ScaledTrial:
    found = scaled(job or big_job(), layout, TWO_NODES, most_layers_per_stage=asked.get("layers"))
    assert isinstance(found, ScaledTrial)
    return found


def sparse_job(num_dense_layers: int = 3) -> Job:
    experts = MixtureOfExperts(
        num_experts=64, experts_per_token=4, expert_ffn_size=2048, num_dense_layers=num_dense_layers
    )
    return replace(big_job(), model=llama_70b(num_layers=64, experts=experts))


def test_shards_shrink_and_everything_else_stays() -> None:
    trial = trial_of(FSDP)
    assert trial.layout == replace(FSDP, data_parallel_shard_degree=4)
    assert trial.num_layers == big_job().model.num_layers


def test_a_replica_runs_as_many_micro_batches() -> None:
    job = big_job()
    for layout in (FSDP, PIPELINE):
        trial = trial_of(layout)
        small = trial.job(job, TWO_NODES)
        assert small.workload.num_micro_batches(trial.layout) == job.workload.num_micro_batches(layout)


def test_a_pipeline_keeps_its_stages_and_loses_ranks() -> None:
    trial = trial_of(PIPELINE)
    assert (trial.layout.pipeline_parallel_degree, trial.layout.virtual_stages_per_rank) == (2, 5)
    assert trial.num_layers == 80 // 4 * 2


def test_replicas_stay_at_two_where_the_pipeline_can_give_way() -> None:
    assert trial_of(PIPELINE).layout.data_parallel_replicate_degree == 2


def test_a_trial_keeps_every_rule_on_its_part_of_the_cluster() -> None:
    for layout in (FSDP, PIPELINE):
        trial = trial_of(layout)
        job = trial.job(big_job(), TWO_NODES)
        assert job.cluster.world_size == trial.num_ranks <= 16
        assert not reasons(trial.layout, job)


def test_a_schedule_goes_with_its_last_pipeline_rank() -> None:
    wide = replace(PIPELINE, tensor_parallel_degree=8, context_parallel_degree=2, data_parallel_replicate_degree=1)
    trial = trial_of(wide)
    assert trial.layout.pipeline_parallel_degree == trial.layout.virtual_stages_per_rank == 1
    assert trial.layout.pipeline_schedule is PipelineSchedule.ONE_F_ONE_B
    assert trial.num_layers == 20  # what one rank holds


def test_what_shards_would_share_goes_with_the_last_shard() -> None:
    wide = replace(FSDP, tensor_parallel_degree=8, context_parallel_degree=2, data_parallel_shard_degree=4)
    assert trial_of(wide).layout.shard_level is ShardLevel.PARAMETERS  # context ranks share on
    lone = replace(FSDP, tensor_parallel_degree=8, data_parallel_shard_degree=8)
    found = scaled(big_job(), lone, h100_cluster(1))
    assert isinstance(found, ScaledTrial)
    assert found.layout.shard_level is ShardLevel.NONE
    assert not found.layout.reshard_after_forward


def test_one_expert_group_stays_whole() -> None:
    layout = Layout(data_parallel_shard_degree=64, expert_parallel_degree=8, shard_level=ShardLevel.PARAMETERS)
    trial = trial_of(layout, sparse_job())
    assert trial.layout.expert_parallel_degree == 8
    assert trial.layout.data_parallel_shard_degree == 16


def test_groups_that_outgrow_the_cluster_are_refused_by_name() -> None:
    layout = Layout(
        data_parallel_shard_degree=8,
        tensor_parallel_degree=8,
        expert_parallel_degree=64,
        shard_level=ShardLevel.PARAMETERS,
    )
    found = scaled(sparse_job(), layout, TWO_NODES)
    assert isinstance(found, Reason)
    assert found.field == "expert_parallel_degree"
    assert "8 tensor and 64 expert ranks take 64, and it has 16" in found.message


def test_tensor_groups_larger_than_a_node_are_refused() -> None:
    nodes_of_four = replace(h100_cluster(4), accelerators_per_node=4)
    found = scaled(big_job(), replace(FSDP, tensor_parallel_degree=8, data_parallel_shard_degree=8), nodes_of_four)
    assert isinstance(found, Reason)
    assert found.field == "tensor_parallel_degree"


def test_a_trial_takes_part_of_a_node_or_whole_nodes() -> None:
    three_nodes = replace(h100_cluster(3))
    trial = scaled(big_job(), FSDP, three_nodes)
    assert isinstance(trial, ScaledTrial)
    cluster = trial.job(big_job(), three_nodes).cluster
    assert (cluster.num_nodes, cluster.accelerators_per_node) == (2, 8)


def test_ends_that_give_layers_away_do_so_in_a_shorter_pipeline() -> None:
    layout = replace(
        PIPELINE,
        pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
        virtual_stages_per_rank=1,
        pipeline_parallel_degree=4,
        last_stage_less_layers=1,
    )
    whole = stage_sizes(80, 4, 0, 1)
    trial = trial_of(layout)
    few = stage_sizes(trial.num_layers, 2, 0, 1)
    assert (few[0], few[-1]) == (whole[0], whole[-1])


def test_leading_dense_layers_stay_where_the_first_stage_holds_more() -> None:
    layout = Layout(data_parallel_replicate_degree=8, pipeline_parallel_degree=8)
    trial = trial_of(layout, sparse_job(num_dense_layers=3))
    assert trial.num_dense_layers == 3
    assert trial.job(sparse_job(), TWO_NODES).model.num_sparse_layers == trial.num_layers - 3


def test_without_a_pipeline_dense_layers_keep_their_share() -> None:
    layout = Layout(data_parallel_replicate_degree=64)
    assert trial_of(layout, sparse_job(num_dense_layers=16), layers=16).num_dense_layers == 4


def test_a_rank_may_hold_fewer_layers() -> None:
    trial = trial_of(FSDP, layers=20)
    assert trial.num_layers == 20
    assert not trial.measured_parts


def test_a_whole_model_keeps_its_pipeline() -> None:
    found = scaled(big_job(), PIPELINE, TWO_NODES, whole_model=True)
    assert isinstance(found, ScaledTrial)
    assert found.layout == replace(PIPELINE, data_parallel_replicate_degree=1)
    assert found.num_layers == 80


@pytest.mark.parametrize(("layers", "fewer"), [(20, 10), (5, 2), (2, 1), (1, None)])
def test_layers_are_halved(layers: int, fewer: int | None) -> None:
    assert fewer_layers(big_job(), FSDP, layers) == fewer


def test_every_other_layer_still_recomputes_where_layers_are_left_out() -> None:
    layout = replace(FSDP, recompute=Recompute.FULL, recompute_every=2)
    assert fewer_layers(big_job(), layout, 10) == 6
    assert fewer_layers(big_job(), layout, 2) is None
