"""Time of passes: rooflines and the collectives between."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from autotuner.catalog.load import load_accelerator
from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.costmodel.compute import (
    GEMM_EFFICIENCY,
    KERNELS_PER_LAYER,
    Work,
    input_work,
    layer_work,
    optimizer_s,
    output_work,
    tokens_per_pass,
)
from autotuner.domain.choice import AttentionKernel, Precision, Recompute
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.model import MixtureOfExperts
from autotuner.domain.workload import Workload
from tests.builders import big_job, cpu_cluster, h100, h100_cluster, llama_70b, tiny_model


def columns(*layouts: Layout) -> LayoutColumns:
    return LayoutColumns.from_layouts(layouts)


def layer(layout: Layout, job: Job | None = None, *, sparse: bool = False) -> Work:
    return layer_work(columns(layout), job or big_job(), sparse=sparse)


def first(values: Floats) -> float:
    return float(values[0])


def test_a_large_layer_runs_near_the_rate_of_its_products() -> None:
    job, work = big_job(), layer(Layout())
    model_flop = 3 * (2 * 8192 * (job.model.attention_matrix_parameters + job.model.mlp_matrix_parameters))
    at_peak_s = model_flop / 989.4e12
    assert at_peak_s / 0.8 < first(work.compute_s) < at_peak_s / 0.5


def test_a_layer_that_multiplies_next_to_nothing_costs_its_launches() -> None:
    workload = Workload(seq_len=1, global_batch_size=1)
    cluster = h100_cluster(accelerator=h100(kernel_launch_s=1.0))
    job = Job(model=tiny_model(), cluster=cluster, workload=workload)
    # forward and twice as many kernels backward; 1e-3 is what the rest may take
    assert first(layer(Layout(), job).compute_s) == pytest.approx(3 * KERNELS_PER_LAYER, rel=1e-3)


@pytest.mark.parametrize("kernel", list(AttentionKernel))
def test_recomputation_takes_time_in_the_order_of_what_it_repeats(kernel: AttentionKernel) -> None:
    none, selective, full = (layer(Layout(attention_kernel=kernel, recompute=r)) for r in Recompute)
    assert first(none.recompute_s) == 0.0 < first(selective.recompute_s) < first(full.recompute_s)
    assert first(none.compute_s) == first(selective.compute_s) == first(full.compute_s)
    # a forward is a third of the pass, less where flash attention's backward is the longer part
    assert first(full.recompute_s) == pytest.approx(first(full.compute_s) / 3, rel=0.1)


def test_flash_attention_is_faster_than_math() -> None:
    flash, efficient, math = (
        first(layer(Layout(attention_kernel=k)).compute_s)
        for k in (AttentionKernel.FLASH, AttentionKernel.EFFICIENT, AttentionKernel.MATH)
    )
    assert flash < efficient < math


def test_fewer_bits_multiply_faster() -> None:
    fp32, bf16, fp8 = (
        first(layer(Layout(precision=p, attention_kernel=AttentionKernel.MATH)).compute_s) for p in Precision
    )
    assert fp32 > bf16 > fp8


def test_tensor_ranks_split_the_computation_and_add_communication() -> None:
    alone, split = layer(Layout()), layer(Layout(tensor_parallel_degree=8))
    assert first(alone.tensor_s) == 0.0 < first(split.tensor_s)
    assert first(alone.compute_s) / 8 < first(split.compute_s) < first(alone.compute_s) / 5


def test_sequence_parallelism_splits_the_norms_and_sends_as_much() -> None:
    plain, split = (layer(Layout(tensor_parallel_degree=8, sequence_parallel=s)) for s in (False, True))
    assert first(split.compute_s) < first(plain.compute_s)
    assert first(split.tensor_s) == first(plain.tensor_s)


def test_full_recomputation_repeats_the_collectives_of_the_forward() -> None:
    layout = Layout(tensor_parallel_degree=8)
    once, again = layer(layout), layer(replace(layout, recompute=Recompute.FULL))
    assert first(again.tensor_s) == pytest.approx(1.5 * first(once.tensor_s), rel=1e-12)  # rounding only


def test_context_ranks_split_the_tokens_and_exchange_keys() -> None:
    layout = Layout(context_parallel_degree=4)
    assert tokens_per_pass(columns(layout), big_job()).tolist() == [2048.0]
    assert first(layer(layout).context_s) > 0.0 == first(layer(Layout()).context_s)


def sparse_job() -> Job:
    experts = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=14336)
    return replace(big_job(), model=llama_70b(experts=experts))


def test_expert_ranks_pay_for_the_dispatch_and_lone_experts_do_not() -> None:
    lone, apart = (layer(Layout(expert_parallel_degree=e), sparse_job(), sparse=True) for e in (1, 8))
    assert first(lone.expert_s) == 0.0 < first(apart.expert_s)


def test_an_output_projection_takes_longer_than_a_lookup() -> None:
    x, job = columns(Layout()), big_job()
    assert first(output_work(x, job).compute_s) > 10 * first(input_work(x, job).compute_s)


def test_the_optimizer_moves_its_state_once() -> None:
    x = columns(Layout(precision=Precision.FP32, attention_kernel=AttentionKernel.MATH))
    job = Job(model=tiny_model(), cluster=cpu_cluster(1), workload=Workload(seq_len=64, global_batch_size=8))
    # in fp32: read and write weight and two moments, read the gradient: 28 bytes at 85 % of 10 GB/s; rounding only
    assert first(optimizer_s(x, job, np.array([1e9]))) == pytest.approx(28 / (0.85 * 10), rel=1e-12)


def test_work_adds_multiplies_and_chooses_part_by_part() -> None:
    one, two = layer(Layout()), layer(Layout(tensor_parallel_degree=8))
    for part in (f.name for f in fields(Work)):
        a, b = first(getattr(one, part)), first(getattr(two, part))
        assert first(getattr(one + two, part)) == a + b
        assert first(getattr(one * 3.0, part)) == 3.0 * a
        assert first(getattr(one - two, part)) == a - b
        assert first(getattr(one.where(np.array([False]), two), part)) == b


@pytest.mark.parametrize("name", ["a100-80gb", "mi300x", "cpu"])
def test_every_kind_of_device_has_an_efficiency_for_all_it_multiplies(name: str) -> None:
    accelerator = load_accelerator(name)
    assert set(accelerator.precisions) <= set(GEMM_EFFICIENCY[accelerator.kind])
    assert all(0 < share <= 1 for share in GEMM_EFFICIENCY[accelerator.kind].values())
