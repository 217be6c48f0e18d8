"""Predictions as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.load import load_cluster
from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.predict import predict, predict_one
from autotuner.domain.choice import PipelineSchedule, Recompute, ShardLevel
from autotuner.domain.cluster import Link
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.model import TransformerSpec
from autotuner.domain.workload import Workload
from tests.builders import big_job, cpu_layout, h100_cluster, tiny_job

GOOD = Layout(
    tensor_parallel_degree=4,
    pipeline_parallel_degree=4,
    data_parallel_shard_degree=4,
    shard_level=ShardLevel.PARAMETERS,
    sequence_parallel=True,
)


def test_one_layout_and_a_column_of_it_get_the_same_answer() -> None:
    other = replace(GOOD, recompute=Recompute.FULL, micro_batch_size=2)
    together = predict(LayoutColumns.from_layouts([other, GOOD]), big_job())
    assert together.row(0) == predict_one(other, big_job())
    assert together.row(1) == predict_one(GOOD, big_job())


def test_mfu_is_model_flop_over_what_the_peak_could_do() -> None:
    job, value = big_job(), predict_one(GOOD, big_job())
    model_flop = job.workload.tokens_per_step * job.model.model_flop_per_token(8192)
    # the same quotient, rounded in another order
    assert value.mfu == pytest.approx(model_flop / (value.step_time.total_s * 64 * 989.4e12), rel=1e-12)
    assert value.tokens_per_s == pytest.approx(1024 * 8192 / value.step_time.total_s, rel=1e-12)
    assert 0.3 < value.mfu < 0.7


def test_hfu_counts_recomputed_flop_and_mfu_does_not() -> None:
    plain, again = predict_one(GOOD, big_job()), predict_one(replace(GOOD, recompute=Recompute.FULL), big_job())
    assert plain.hfu == plain.mfu
    assert again.hfu > 1.3 * again.mfu
    assert again.mfu < plain.mfu


def test_recomputation_trades_time_for_memory() -> None:
    plain, again = predict_one(GOOD, big_job()), predict_one(replace(GOOD, recompute=Recompute.FULL), big_job())
    assert again.memory.activations_bytes < plain.memory.activations_bytes
    assert again.step_time.total_s > plain.step_time.total_s


def test_a_70b_model_does_not_fit_on_one_gpu_and_fits_on_64() -> None:
    sharded = Layout(
        data_parallel_shard_degree=64,
        shard_level=ShardLevel.PARAMETERS,
        reshard_after_forward=True,
        recompute=Recompute.FULL,
    )
    assert predict_one(sharded, big_job()).fits
    assert not predict_one(Layout(data_parallel_replicate_degree=64), big_job()).fits


def test_a_slower_network_slows_what_crosses_it_and_nothing_else() -> None:
    slow_link = Link(name="slow", bandwidth_bytes_per_s=1e9, latency_s=1e-5)
    fast, slow = (
        predict_one(GOOD, replace(big_job(), cluster=cluster))
        for cluster in (h100_cluster(), h100_cluster(inter_node_link=slow_link))
    )
    assert slow.step_time.pipeline_communication_s > fast.step_time.pipeline_communication_s
    assert slow.step_time.data_communication_s > fast.step_time.data_communication_s
    assert slow.step_time.compute_s == fast.step_time.compute_s
    assert slow.step_time.tensor_communication_s == fast.step_time.tensor_communication_s


def test_oversubscription_is_a_slower_network() -> None:
    thin = predict_one(GOOD, replace(big_job(), cluster=h100_cluster(oversubscription=4.0)))
    assert thin.step_time.total_s > predict_one(GOOD, big_job()).step_time.total_s


def test_resharding_gathers_again_and_saves_memory() -> None:
    layout = Layout(data_parallel_shard_degree=64, shard_level=ShardLevel.PARAMETERS)
    kept, dropped = (predict_one(replace(layout, reshard_after_forward=r), big_job()) for r in (False, True))
    assert dropped.memory.total_bytes < kept.memory.total_bytes
    assert dropped.step_time.data_communication_s > kept.step_time.data_communication_s


def test_zero_bubble_idles_less_than_1f1b_and_as_long_as_it_in_everything_else() -> None:
    plain, filled = (
        predict_one(replace(GOOD, pipeline_schedule=s), big_job())
        for s in (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ZERO_BUBBLE)
    )
    assert filled.step_time.bubble_s < plain.step_time.bubble_s
    assert filled.step_time.compute_s == plain.step_time.compute_s
    assert filled.memory == plain.memory


def test_a_lone_core_only_computes() -> None:
    seconds = predict_one(cpu_layout(), tiny_job(1)).step_time
    assert seconds.total_s == pytest.approx(seconds.compute_s + seconds.optimizer_s, rel=1e-12)  # order of a sum


def test_on_a_cpu_nothing_of_the_gradient_exchange_is_hidden() -> None:
    one, two = (tiny_job(n) for n in (1, 2))
    replicated = predict_one(cpu_layout(data_parallel_replicate_degree=2), two).step_time
    assert replicated.data_communication_s > 0.0 == predict_one(cpu_layout(), one).step_time.data_communication_s
    assert replicated.compute_s == pytest.approx(predict_one(cpu_layout(), one).step_time.compute_s / 2, rel=1e-12)


def test_the_expected_error_is_told_where_published_runs_were_compared() -> None:
    assert predict_one(GOOD, big_job()).relative_error is not None
    assert predict_one(cpu_layout(), tiny_job(1)).relative_error is None


def gpt_175b() -> Job:
    model = TransformerSpec(
        name="gpt-175b",
        num_layers=96,
        hidden_size=12288,
        num_heads=96,
        num_kv_heads=96,
        head_dim=128,
        ffn_size=4 * 12288,
        vocab_size=51200,
        gated_mlp=False,
        norm="layernorm",
    )
    return Job(model=model, cluster=load_cluster("a100:64"), workload=Workload(seq_len=2048, global_batch_size=64))


def test_a_published_step_of_gpt_175b_is_met() -> None:
    # arXiv 2205.05198, table 5: 64 A100s, tensor 8, pipeline 8, interleaved 3, micro-batch 1, sequence parallel and
    # selective recomputation: 13.75 s, 51.4 % MFU.
    layout = Layout(
        tensor_parallel_degree=8,
        pipeline_parallel_degree=8,
        virtual_stages_per_rank=3,
        pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
    )
    # 20 %: the median error of these closed forms on A100
    assert predict_one(layout, gpt_175b()).step_time.total_s == pytest.approx(13.75, rel=0.2)
