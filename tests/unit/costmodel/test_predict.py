"""Predictions as a whole, also of sequences that differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.software import load_stack
from autotuner.core.choices import BatchBalance, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Calibration, Job
from autotuner.core.layout import Layout
from autotuner.core.link import Link
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import StepTime
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.costmodel.predict import CHUNK, predict, predict_one, predict_peaks, predict_totals
from autotuner.costmodel.shared.table import row
from autotuner.search.space.legal import legal_layouts
from tests.builders import big_job, cpu_layout, h100_cluster, present, tiny_job
from tests.unit.test_batches import SEQ_LEN, wikipedia

GOOD = Layout.parse("fsdp4 tp4 pp4 sp")
FLAT = Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8)
"""Without a pipeline."""

SLOWER = Calibration(factor=1.25, deviation=0.02, num_runs=3)


def test_rows_are_single_predictions_and_fit_where_that_is_more_likely_than_not() -> None:
    other = replace(GOOD, recompute=Recompute.FULL, micro_batch_size=2)
    together = predict(LayoutColumns.from_layouts([other, GOOD]), big_job())
    assert row(together, 0) == predict_one(other, big_job())
    assert row(together, 1) == predict_one(GOOD, big_job())
    for layout in (GOOD, FLAT, replace(GOOD, recompute=Recompute.FULL), replace(GOOD, micro_batch_size=4)):
        value = predict_one(layout, big_job())
        assert value.fits == (present(value.fit_probability) >= 0.5)
    sharded = Layout.parse("fsdp64 reshard recompute-full")
    assert predict_one(sharded, big_job()).fits
    assert not predict_one(Layout(data_parallel_replicate_degree=64), big_job()).fits


def test_precisions_rank_by_mfu_and_have_peaks_of_their_own() -> None:
    job = big_job()
    table = predict(
        LayoutColumns.from_layouts(replace(GOOD, precision=p, compiled=True) for p in (Precision.BF16, Precision.FP8)),
        job,
    )
    bf16, fp8 = row(table, 0), row(table, 1)
    assert fp8.tokens_per_s > bf16.tokens_per_s
    # one reference peak for both, so the quotients differ by rounding alone
    assert fp8.mfu / bf16.mfu == pytest.approx(fp8.tokens_per_s / bf16.tokens_per_s, rel=1e-12)
    job, value = big_job(), predict_one(GOOD, big_job())
    model_flop = job.workload.tokens_per_step * job.model.model_flop_per_token(8192)
    # the same quotient, rounded in another order
    assert value.mfu == pytest.approx(model_flop / (value.step_time.total_s * 64 * 989.4e12), rel=1e-12)
    assert value.tokens_per_s == pytest.approx(1024 * 8192 / value.step_time.total_s, rel=1e-12)
    assert 0.3 < value.mfu < 0.7
    bf16, fp8 = (predict_one(replace(GOOD, precision=p), big_job()) for p in (Precision.BF16, Precision.FP8))
    assert bf16.precision_utilization == bf16.mfu
    accelerator = big_job().cluster.accelerator
    faster = accelerator.fp8_flop_per_s / accelerator.bf16_flop_per_s
    assert fp8.precision_utilization == pytest.approx(fp8.mfu / faster, rel=1e-12)  # rounded in another order


def test_recomputation_trades_time_for_memory_and_balanced_stages_products() -> None:
    plain, again = predict_one(GOOD, big_job()), predict_one(replace(GOOD, recompute=Recompute.FULL), big_job())
    assert plain.hfu == plain.mfu
    assert again.hfu > 1.3 * again.mfu
    assert again.mfu < plain.mfu
    assert again.memory.activations_bytes < plain.memory.activations_bytes
    assert again.step_time.total_s > plain.step_time.total_s
    # 80 layers and a projection worth 1.2 of them on 16 ranks: the last has 5 and the projection, or the first has 6
    layout = Layout(pipeline_parallel_degree=16, tensor_parallel_degree=4)
    evenly, balanced = (step(layout, on(big_job(), balances_stages=b)) for b in (False, True))
    assert balanced.matrix_s < evenly.matrix_s


def test_slower_networks_schedules_and_cores_change_what_they_touch_alone() -> None:
    # half of the usual: with far less, the step would wait for another rank, whose products take another time
    slow_link = Link(name="slow", bandwidth_bytes_per_s=25e9, latency_s=1e-5)
    fast, slow = (
        predict_one(GOOD, replace(big_job(), cluster=cluster))
        for cluster in (h100_cluster(), h100_cluster(inter_node_link=slow_link))
    )
    assert slow.step_time.pipeline_communication_s > fast.step_time.pipeline_communication_s
    assert slow.step_time.data_communication_s > fast.step_time.data_communication_s
    assert slow.step_time.matrix_s == fast.step_time.matrix_s
    assert slow.step_time.tensor_communication_s == fast.step_time.tensor_communication_s
    plain, filled = (
        predict_one(replace(GOOD, pipeline_schedule=s), big_job())
        for s in (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ZERO_BUBBLE)
    )
    assert filled.step_time.bubble_s < plain.step_time.bubble_s
    assert filled.step_time.matrix_s == plain.step_time.matrix_s
    assert filled.memory.total_bytes >= plain.memory.total_bytes  # every rank keeps as many micro-batches as the first
    seconds = predict_one(cpu_layout(), tiny_job(1)).step_time
    computed_s = seconds.matrix_s + seconds.attention_s + seconds.pointwise_s + seconds.host_s
    assert seconds.total_s == pytest.approx(computed_s + seconds.optimizer_s, rel=1e-12)  # order of a sum
    one, two = (tiny_job(n) for n in (1, 2))
    replicated = predict_one(cpu_layout(data_parallel_replicate_degree=2), two).step_time
    assert replicated.data_communication_s > 0.0 == predict_one(cpu_layout(), one).step_time.data_communication_s
    assert replicated.matrix_s == pytest.approx(predict_one(cpu_layout(), one).step_time.matrix_s / 2, rel=1e-12)


def test_a_prediction_says_whether_all_that_it_depends_on_was_compared_with_measured_runs() -> None:
    fitted = replace(big_job(), stack=load_stack("nanotron"))
    layout = replace(GOOD, shard_level=ShardLevel.OPTIMIZER)
    assert predict_one(layout, fitted).validated
    assert not predict_one(layout, big_job()).validated
    assert not predict_one(GOOD, fitted).validated
    offloaded = predict_one(replace(layout, offload_activations=True), fitted)
    assert (offloaded.validated, offloaded.never_compared) == (False, ("activations offloaded",))


def test_a_calibration_scales_every_part_and_narrows_the_interval() -> None:
    typical, job = predict_one(GOOD, big_job()), replace(big_job(), calibration=SLOWER)
    slower = predict_one(GOOD, job)
    assert slower.step_time.total_s == pytest.approx(1.25 * typical.step_time.total_s, rel=1e-12)  # order of a sum
    assert slower.step_time.matrix_s == 1.25 * typical.step_time.matrix_s
    assert slower.mfu == pytest.approx(typical.mfu / 1.25, rel=1e-12)
    assert present(slower.relative_error) < present(typical.relative_error)
    totals = predict_totals(LayoutColumns.from_layouts([GOOD]), job)
    assert totals.mfu.tolist() == [slower.mfu]


def test_no_learnt_step_is_shorter_than_the_peak_of_its_precision_allows() -> None:
    job = replace(big_job(), calibration=Calibration(factor=0.01, deviation=0.05, num_runs=5))
    layouts = LayoutColumns.from_layouts([GOOD, replace(GOOD, precision=Precision.FP8)])
    found = predict(layouts, job)
    assert found.precision_utilization == pytest.approx([1.0, 1.0], rel=1e-12)  # order of a product
    assert found.step_time.total_s == pytest.approx(job.workload.tokens_per_step / found.tokens_per_s, rel=1e-12)
    assert predict_totals(layouts, job).mfu.tolist() == found.mfu.tolist()


def on(job: Job, **stack: Any) -> Job:
    return replace(job, stack=replace(job.stack, **stack))


def step(layout: Layout, job: Job) -> StepTime:
    return predict_one(layout, job).step_time


def test_sends_cost_more_where_they_block_or_wait_for_a_rendezvous() -> None:
    overlapping, blocking = (step(GOOD, on(big_job(), blocks_sends=b)) for b in (False, True))
    assert blocking.pipeline_communication_s > overlapping.pipeline_communication_s > 0.0
    assert blocking.bubble_s == overlapping.bubble_s
    assert step(FLAT, on(big_job(), blocks_sends=True)) == step(FLAT, on(big_job(), blocks_sends=False))
    prompt, late = (step(GOOD, on(big_job(), blocks_sends=True, send_wait_s=s)) for s in (0.0, 1e-3))
    # a rank at either end of the four sends each of its 256 micro-batches once; the pipeline fills and drains by 3 each
    added_s = late.pipeline_communication_s - prompt.pipeline_communication_s
    assert added_s == pytest.approx((256 + 2 * 3) * 1e-3, rel=1e-9)  # a difference of seconds
    assert step(FLAT, on(big_job(), send_wait_s=1.0)) == step(FLAT, on(big_job(), send_wait_s=0.0))


def test_a_tensor_group_waits_for_the_network_only_where_pipeline_sends_cross_nodes() -> None:
    within = Layout(tensor_parallel_degree=2, pipeline_parallel_degree=4, data_parallel_replicate_degree=8)
    crossing, flat, lone = (
        GOOD,
        replace(GOOD, pipeline_parallel_degree=1, data_parallel_shard_degree=16),
        replace(GOOD, tensor_parallel_degree=1, data_parallel_shard_degree=16, sequence_parallel=False),
    )
    waits = {"tensor_wait_s": 1.0, "kernel_launch_s": 0.0}
    one_node = replace(on(big_job(), **waits), cluster=h100_cluster(num_nodes=1))
    assert step(crossing, on(big_job(), **waits)).host_s > 1.0
    without = (
        step(flat, on(big_job(), **waits)),
        step(lone, on(big_job(), **waits)),
        step(replace(within, data_parallel_replicate_degree=1), one_node),
    )
    assert [seconds.host_s for seconds in without] == pytest.approx([0.0] * 3, abs=1e-9)  # rounding


def test_gradients_take_longer_in_fp32_and_are_hidden_by_a_stack_that_overlaps_alone() -> None:
    never, half, always = (
        step(FLAT, on(big_job(), overlaps_data_parallel=o)).data_communication_s for o in (0.0, 0.5, 1.0)
    )
    assert never > half >= always > 0.0
    narrow, wide = (step(FLAT, on(big_job(), sums_gradients_in_fp32=s)) for s in (False, True))
    assert wide.pointwise_s > narrow.pointwise_s
    assert wide.data_communication_s > narrow.data_communication_s


def test_totals_and_rows_of_a_table_are_those_of_whole_predictions_in_order() -> None:
    num_rows = CHUNK + 3
    choices = [replace(GOOD, micro_batch_size=size) for size in (1, 2, 4)]
    table = LayoutColumns.from_layouts(choices).take(np.arange(num_rows) % 3)
    predictions = predict(table, big_job())
    assert len(predictions.mfu) == num_rows
    for index in (0, CHUNK - 1, CHUNK, num_rows - 1):
        assert row(predictions, index) == predict_one(choices[index % 3], big_job())
    layouts = legal_layouts(big_job())
    whole, totals = predict(layouts, big_job()), predict_totals(layouts, big_job())
    assert totals.mfu.tolist() == whole.mfu.tolist()
    assert totals.peak_bytes.tolist() == whole.memory.total_bytes.tolist()
    assert predict_peaks(layouts, big_job()).tolist() == whole.memory.total_bytes.tolist()
    waiting = on(big_job(), tensor_wait_s=1e-3, kernel_launch_s=0.0)
    crossing_or_not = [FLAT, GOOD, replace(FLAT, micro_batch_size=2), replace(GOOD, micro_batch_size=2)]
    for case, rows in ((waiting, crossing_or_not), (job(wikipedia()), LAYOUTS)):
        columns = LayoutColumns.from_layouts(rows)
        together = predict(columns, case)
        assert [row(together, index) for index in range(len(rows))] == [predict_one(layout, case) for layout in rows]
        assert np.array_equal(predict_totals(columns, case).mfu, together.mfu)


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
    layout = Layout.parse("tp8 pp8 v3 interleaved_1f1b sp recompute-selective")
    # 20 %: the median error of these closed forms on A100
    assert predict_one(layout, gpt_175b()).step_time.total_s == pytest.approx(13.75, rel=0.2)


LAYOUTS = [
    Layout(data_parallel_replicate_degree=64),
    Layout(data_parallel_replicate_degree=32, tensor_parallel_degree=2, sequence_parallel=True, micro_batch_size=4),
    Layout(data_parallel_shard_degree=64, shard_level=ShardLevel.PARAMETERS, recompute=Recompute.FULL),
    Layout(data_parallel_shard_degree=32, context_parallel_degree=2, shard_level=ShardLevel.OPTIMIZER),
    Layout(data_parallel_replicate_degree=16, pipeline_parallel_degree=4, micro_batch_size=2, recompute_every=2),
]


def job(lengths: LengthDistribution | None) -> Job:
    one = big_job()
    workload = replace(one.workload, seq_len=SEQ_LEN, global_batch_size=1024, lengths=lengths)
    return replace(one, workload=workload)


def step_s(lengths: LengthDistribution | None = None, **choices: Any) -> float:
    layout = Layout(data_parallel_replicate_degree=64, micro_batch_size=4, **choices)
    return predict_one(layout, job(lengths or wikipedia())).step_time.total_s


def test_lengths_change_time_memory_and_padding_and_dealing_shortens_the_step() -> None:
    x = LayoutColumns.from_layouts(LAYOUTS)
    plain, drawn = predict(x, job(None)), predict(x, job(LengthDistribution.of([SEQ_LEN])))
    for name in ("mfu", "hfu", "tokens_per_s", "fit_probability"):
        assert getattr(drawn, name).tolist() == getattr(plain, name).tolist()
    assert drawn.step_time.total_s.tolist() == plain.step_time.total_s.tolist()
    assert plain.imbalance is None
    assert not present(drawn.imbalance).any()
    for layout in LAYOUTS:
        assert predict_one(layout, job(wikipedia())).memory == predict_one(layout, job(None)).memory
    one = job(LengthDistribution(lengths=(128, 512), weights=(1.0, 1.0)))
    model_flop = 512 * (128 * one.model.model_flop_per_token(128) + 512 * one.model.model_flop_per_token(512))
    predicted = predict_one(LAYOUTS[0], one)
    peak = one.cluster.accelerator.reference_flop_per_s * one.cluster.world_size
    assert predicted.mfu == pytest.approx(model_flop / peak / predicted.step_time.total_s, rel=1e-12)  # rounding
    assert predicted.tokens_per_s == pytest.approx(512 * 640 / predicted.step_time.total_s, rel=1e-12)
    prediction = predict_one(LAYOUTS[1], job(wikipedia()))
    # of one shuffled corpus, which knows means to 1 %
    assert prediction.imbalance == pytest.approx(0.146, abs=0.01)
    assert prediction.padding_waste == pytest.approx(0.77, abs=0.01)
    by_chance, snake = step_s(), step_s(batch_balance=BatchBalance.STRATIFIED_SNAKE)
    packed = step_s(batch_balance=BatchBalance.STRATIFIED_SNAKE, sequence_packing=True)
    assert packed < snake < by_chance
