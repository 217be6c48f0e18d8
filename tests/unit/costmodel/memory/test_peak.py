"""Peak memory: of which rank, when in the step, and what it is made of."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from autotuner.core.choices import AttentionKernel, OptimizerKernel, PipelineSchedule, Precision, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.units import GIB
from autotuner.core.workload import Workload
from tests.builders import cpu_cluster, cpu_layout, tiny_model
from tests.unit.costmodel.memory_jobs import (
    GPIPE,
    ONE_F_ONE_B,
    demo,
    eight_gpus,
    gpt_22b,
    of,
    on_stack,
    one_core,
    total,
)


@pytest.mark.parametrize(
    ("precision", "moments", "weight_bytes", "optimizer_bytes"),
    [
        (Precision.FP32, "fp32", 4, 8),
        (Precision.BF16, "fp32", 2, 4 + 8),  # the fp32 master weight is the optimizer's
        (Precision.BF16, "bf16", 2, 4 + 4),
    ],
)
def test_a_lone_rank_holds_the_textbook_bytes_per_parameter(
    precision: Precision, moments: str, weight_bytes: int, optimizer_bytes: int
) -> None:
    job, layout = one_core(precision, optimizer_state_precision=moments)
    # the final norm's 64 elements are nobody's layer and left out
    num_elements = job.model.num_parameters - job.model.hidden_size
    sizes = of(layout, job)
    assert float(sizes.parameters_bytes[0]) == weight_bytes * num_elements
    assert float(sizes.gradients_bytes[0]) == weight_bytes * num_elements
    assert float(sizes.optimizer_bytes[0]) == optimizer_bytes * num_elements


def test_a_cpu_counts_tensors_and_adds_no_allowance() -> None:
    job, layout = one_core()
    assert float(of(layout, job).allowance_bytes[0]) == 0.0
    assert float(of(Layout(), gpt_22b()).allowance_bytes[0]) > GIB


INTERLEAVED = replace(ONE_F_ONE_B, pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B, virtual_stages_per_rank=2)
HIDDEN_BYTES = 4 * 128 * 256


@pytest.mark.parametrize(
    ("layout", "num_micro_batches", "stage", "measured_mb"),
    [
        (ONE_F_ONE_B, 4, 0, 44.5),
        (ONE_F_ONE_B, 64, 0, 52.5),
        (GPIPE, 4, 1, 57.8),
        (GPIPE, 16, 1, 150.9),
        (GPIPE, 64, 1, 523.5),
    ],
)
def test_the_peaks_of_real_pipeline_trials_are_met(
    layout: Layout, num_micro_batches: int, stage: int, measured_mb: float
) -> None:
    # measured with torch 2.13 on CPU cores. 10 %: a layer saves about a tenth more than is counted, and works with less
    sizes = of(layout, demo(layout, num_micro_batches))
    assert float(sizes.total_bytes[0]) == pytest.approx(measured_mb * 1e6, rel=0.1)
    assert int(sizes.worst_stage[0]) == stage


@pytest.mark.parametrize(("layout", "num_links"), [(ONE_F_ONE_B, 1), (GPIPE, 1), (INTERLEAVED, 3)])
def test_a_pipeline_has_a_receive_buffer_per_micro_batch_and_link(layout: Layout, num_links: int) -> None:
    assert float(of(layout, demo(layout, 8)).buffers_bytes[0]) == 8 * num_links * HIDDEN_BYTES


def test_the_second_rank_is_the_fullest_when_receive_buffers_outweigh_what_the_first_has_more() -> None:
    layout = replace(ONE_F_ONE_B, pipeline_parallel_degree=4)
    few, many = (of(layout, demo(layout, m)) for m in (16, 512))
    assert [int(few.worst_stage[0]), int(many.worst_stage[0])] == [0, 1]
    assert float(many.buffers_bytes[0]) == 2 * 512 * HIDDEN_BYTES


def test_sequence_parallelism_splits_receive_buffers() -> None:
    layout = replace(ONE_F_ONE_B, tensor_parallel_degree=2, sequence_parallel=True)
    few, many = (float(of(layout, demo(layout, m)).buffers_bytes[0]) for m in (8, 16))
    assert many - few == 8 * HIDDEN_BYTES / 2


@pytest.mark.parametrize(
    ("changes", "bytes_per_parameter", "measured_mb"),
    [
        ({"precision": Precision.BF16}, 2 + 12 + 4, 73.0),
        # the bucket keeps the 16-bit gradients
        ({"precision": Precision.BF16, "data_parallel_replicate_degree": 2}, 2 + 12 + 2 + 4, 80.0),
    ],
)
def test_a_step_on_few_tokens_is_fullest_when_the_optimizer_widens_its_gradients(
    changes: dict[str, Any], bytes_per_parameter: int, measured_mb: float
) -> None:
    layout = cpu_layout(**changes)
    job = replace(demo(layout, 1), workload=Workload(seq_len=16, global_batch_size=2))
    num_elements = job.model.num_parameters - job.model.hidden_size  # the final norm is left out
    assert total(layout, job) == bytes_per_parameter * num_elements
    # 2 %: the last tensor to be widened, the output table, is there in both formats
    assert total(layout, job) == pytest.approx(measured_mb * 1e6, rel=0.02)


def test_the_optimizer_step_costs_nothing_where_activations_outweigh_it_or_nothing_is_widened() -> None:
    half, whole = (cpu_layout(precision=p) for p in (Precision.BF16, Precision.FP32))
    long, short = demo(half, 64), replace(demo(whole, 1), workload=Workload(seq_len=16, global_batch_size=1))
    long = replace(long, workload=Workload(seq_len=2048, global_batch_size=1))
    assert float(of(half, long).buffers_bytes[0]) == float(of(whole, short).buffers_bytes[0]) == 0.0


def test_a_long_vocabulary_makes_the_last_stage_the_worst() -> None:
    job = Job(
        model=tiny_model(vocab_size=1_000_000, tied_embeddings=True),
        cluster=cpu_cluster(2),
        workload=Workload(seq_len=64, global_batch_size=8),
    )
    layout = Layout(pipeline_parallel_degree=2, precision=Precision.FP32, attention_kernel=AttentionKernel.MATH)
    assert int(of(layout, job).worst_stage[0]) == 1
    assert int(of(layout, replace(job, model=tiny_model())).worst_stage[0]) == 0


def test_gathered_logits_make_the_last_stage_the_fullest() -> None:
    layout = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=2, recompute=Recompute.FULL)
    job = replace(eight_gpus(), workload=Workload(seq_len=2048, global_batch_size=16))
    assert [int(of(layout, on_stack(job, gathers_logits=g)).worst_stage[0]) for g in (False, True)] == [0, 1]


def test_a_stack_without_receive_buffers_holds_none() -> None:
    kept, freed = (of(ONE_F_ONE_B, on_stack(demo(ONE_F_ONE_B, 8), keeps_receive_buffers=k)) for k in (True, False))
    assert float(kept.buffers_bytes[0]) == 8 * HIDDEN_BYTES > 0.0 == float(freed.buffers_bytes[0])


def test_a_stack_holds_a_share_of_activations_and_an_amount_that_are_not_counted() -> None:
    sizes = of(Layout(), on_stack(eight_gpus(), activation_overhead=0.25, allowance_bytes=10**9))
    assert float(sizes.allowance_bytes[0]) == 1e9 + 0.25 * float(sizes.activations_bytes[0])


def test_the_peak_is_the_sum_of_its_parts() -> None:
    sizes = of(ONE_F_ONE_B, demo(ONE_F_ONE_B, 8))
    parts = [float(getattr(sizes, f.name)[0]) for f in fields(sizes) if f.name != "worst_stage"]
    assert len(parts) == 7
    assert float(sizes.total_bytes[0]) == pytest.approx(sum(parts), rel=1e-12)  # order of a sum


def test_one_kernel_per_operation_keeps_the_roots_of_all_second_moments_while_it_steps() -> None:
    layout = cpu_layout(precision=Precision.BF16)
    job = replace(demo(layout, 1), workload=Workload(seq_len=16, global_batch_size=2))
    fused, foreach = (total(replace(layout, optimizer_kernel=kernel), job) for kernel in OptimizerKernel)
    # the step is the fullest moment then, not the backward: at most 4 bytes an element more
    assert fused < foreach <= fused + 4 * job.model.num_parameters


@pytest.mark.parametrize(
    ("ends", "fullest"),
    [
        ({"first_stage_less_layers": 1}, {3}),  # as many layers as those between, and the norm behind them
        ({"last_stage_less_layers": 1}, {0, 1}),
    ],
)
def test_a_rank_with_more_layers_than_an_end_is_the_fullest(ends: dict[str, int], fullest: set[int]) -> None:
    layout = replace(GPIPE, pipeline_parallel_degree=4, **ends)  # type: ignore[arg-type]  # names of integer fields
    job = replace(demo(layout, 16), model=tiny_model(num_layers=15, vocab_size=16))
    assert int(of(layout, job).worst_stage[0]) in fullest
