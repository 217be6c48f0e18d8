from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.models import load_model
from autotuner.core.choices import ContextExchange, GradientClip, GradientSync, PipelineSchedule, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.costmodel.details import PassShares, exchanges, overlapped_share, pass_shares, stage_memory
from autotuner.costmodel.predict import predict, predict_one
from autotuner.search.space.legal import legal_layouts
from tests.builders import big_job, cpu_layout, tiny_job

# ---------------------------------------------------------------- Tests of `autotuner.costmodel.details`
PIPELINE = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, sequence_parallel=True)


@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b", "deepseek-v3"])
def test_the_fullest_stage_is_that_of_the_prediction(name: str) -> None:
    job = replace(big_job(), model=load_model(name))
    layouts = legal_layouts(job)
    some = layouts.take(np.linspace(0, len(layouts) - 1, 300).astype(int))
    for row, predicted_bytes in enumerate(predict(some, job).memory.total_bytes):
        fullest = max(stage_memory(some.row(row), job), key=lambda memory: memory.total_bytes)
        assert fullest.total_bytes == pytest.approx(predicted_bytes, rel=1e-9)  # the same parts in another order


def test_the_last_stage_holds_logits_and_the_first_most_activations_but_in_a_v() -> None:
    stages = stage_memory(PIPELINE, big_job())
    assert [memory.worst_stage for memory in stages] == list(range(8))
    assert [memory.logits_bytes > 0 for memory in stages] == [False] * 7 + [True]
    kept = [memory.activations_bytes for memory in stages[:7]]
    assert kept == sorted(kept, reverse=True)
    layout = replace(PIPELINE, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)
    stages = stage_memory(layout, big_job())
    assert [memory.logits_bytes > 0 for memory in stages] == [True] + [False] * 7
    layout = Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8, sequence_parallel=True)
    (only,) = stage_memory(layout, big_job())
    assert only == predict_one(layout, big_job()).memory


LAYOUT = Layout.parse("zero2 tp4 cp2 pp4 sp")
JOB = big_job()
TOKENS = JOB.workload.seq_len // 2
HIDDEN_BYTES = 2 * TOKENS * JOB.model.hidden_size
MICRO_BATCHES = 512


def test_a_rank_sends_three_quarters_of_its_states_to_its_peers_and_all_to_its_neighbours() -> None:
    layers = JOB.model.num_layers // 4
    passed = 3 / 4 * HIDDEN_BYTES * 4 * 2  # two sums a pass, each scattered and gathered; forward and backward
    found = exchanges(LAYOUT, JOB, 1).tensor.sent_bytes
    assert found == pytest.approx(layers * MICRO_BATCHES * passed, rel=1e-9)  # computation stands beside the bytes
    sent = [exchanges(LAYOUT, JOB, rank).pipeline.sent_bytes for rank in range(4)]
    one_way = MICRO_BATCHES * HIDDEN_BYTES / 4
    assert sent == [one_way, 2 * one_way, 2 * one_way, one_way]


def test_groups_exchange_in_every_pass_and_wait_as_the_slowest_rank_is_predicted_to() -> None:
    again = exchanges(replace(LAYOUT, recompute=Recompute.FULL), JOB, 1).tensor.sent_bytes
    once = exchanges(LAYOUT, JOB, 1).tensor.sent_bytes
    assert again > 1.2 * once
    gathered = replace(LAYOUT, context_exchange=ContextExchange.ALL_GATHER)
    assert exchanges(LAYOUT, JOB, 1).context.sent_bytes > 0
    assert exchanges(gathered, JOB, 1).context.sent_bytes > 0
    alone = replace(LAYOUT, tensor_parallel_degree=1, context_parallel_degree=1, data_parallel_shard_degree=16)
    found = exchanges(alone, JOB, 0)
    assert found.tensor.sent_bytes == found.context.sent_bytes == found.expert.sent_bytes == 0
    assert found.tensor.exposed_s == found.context.exposed_s == 0
    layout = replace(LAYOUT, pipeline_parallel_degree=1, data_parallel_shard_degree=8)
    step, found = predict_one(layout, JOB).step_time, exchanges(layout, JOB, 0)
    assert found.tensor.exposed_s == step.tensor_communication_s
    assert found.data.exposed_s == step.data_communication_s
    assert found.pipeline.exposed_s == step.pipeline_communication_s == 0


SMALL: dict[str, Any] = {"data_parallel_replicate_degree": 2, "gradient_bucket_bytes": 2**14}


def test_shares_of_reductions_that_start_early_depend_on_buckets_shards_and_clipping() -> None:
    shares = [overlapped_share(cpu_layout(**SMALL, gradient_clip=clip), tiny_job()) for clip in GradientClip]
    assert shares[GradientClip.POST] == shares[GradientClip.BUCKET]
    assert shares[GradientClip.POST] == pytest.approx(1.0, abs=0.1)  # 1 - 1/29: seven matrices a layer, and the tables
    assert shares[GradientClip.PRE] == 0.0
    one_bucket = cpu_layout(data_parallel_replicate_degree=2)
    lossy = cpu_layout(**SMALL, gradient_sync=GradientSync.DEMO)
    assert [overlapped_share(layout, tiny_job()) for layout in (one_bucket, lossy)] == [0.0, 0.0]
    assert overlapped_share(cpu_layout(), tiny_job()) is None
    sharded = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS)
    assert overlapped_share(sharded, tiny_job()) == pytest.approx(0.8)  # 4 layers of 4, and the tables behind them


# ---------------------------------------------------------------- How computation divides into passes
ZBV = replace(PIPELINE, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)


def total(shares: PassShares) -> float:
    return shares.forward + shares.backward + shares.weight


def test_backward_passes_compute_twice_the_forward_and_weights_apart_where_deferred() -> None:
    shares = pass_shares(PIPELINE, big_job())
    assert shares.backward == pytest.approx(2 * shares.forward, rel=0.1)  # matrix products exactly, the rest nearly
    assert total(shares) == pytest.approx(1.0)  # floating-point addition
    again = replace(PIPELINE, recompute=Recompute.FULL)
    assert pass_shares(again, big_job()).forward == pytest.approx(pass_shares(PIPELINE, big_job()).forward)
    whole, deferred = pass_shares(PIPELINE, big_job()), pass_shares(ZBV, big_job())
    assert whole.weight == 0.0
    assert deferred.weight > 0.2
    assert deferred.backward + deferred.weight == pytest.approx(whole.backward, rel=0.01)  # ends lie on other ranks
