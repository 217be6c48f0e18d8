"""Matrix products of a layer and of the output."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import AttentionKernel, Fp8Recipe, Precision
from autotuner.core.layout import Layout
from tests.builders import big_job, h100, h100_cluster
from tests.unit.costmodel.works import first, layer, output, sparse_job, with_stack

TORCHAO = (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE)


def test_a_large_layer_runs_near_the_rate_of_its_products() -> None:
    job, work = big_job(), layer(Layout())
    model_flop = 3 * (2 * 8192 * (job.model.attention_matrix_parameters + job.model.mlp_matrix_parameters))
    at_peak_s = model_flop / 989.4e12
    # products reach 70 to 80 % of the peak on an H100 that keeps 85 % or more of its clock
    assert at_peak_s / 0.8 < first(work.matrix_s) < at_peak_s / 0.55
    assert first(work.compute_s) < at_peak_s / 0.4  # with attention and norms


def test_fewer_bits_multiply_faster() -> None:
    plain = Layout(attention_kernel=AttentionKernel.MATH, compiled=True)
    fp32, bf16, fp8, emulated = (first(layer(replace(plain, precision=p)).matrix_s) for p in h100().precisions)
    assert fp32 > bf16 > fp8
    assert emulated > bf16  # the same products, and every operand rounded and widened again


def test_torchao_s_casts_eat_up_what_fp8_gains_where_nothing_is_compiled() -> None:
    bf16, fp8 = (first(layer(Layout(precision=p)).matrix_s) for p in (Precision.BF16, Precision.FP8))
    assert fp8 > bf16


def test_a_step_keeps_its_own_share_of_the_rate_in_8_bits() -> None:
    slower, faster = (
        replace(big_job(), cluster=h100_cluster(accelerator=h100(fp8_sustained_share=share))) for share in (0.5, 1.0)
    )
    fp8 = [first(layer(Layout(precision=Precision.FP8, compiled=True), job).matrix_s) for job in (slower, faster)]
    bf16 = [first(layer(Layout(), job).matrix_s) for job in (slower, faster)]
    assert fp8[0] > fp8[1]
    assert bf16[0] == bf16[1]


def test_a_scale_per_row_costs_time_where_something_is_rounded_to_fp8() -> None:
    tensorwise, rowwise = (
        first(layer(Layout(precision=Precision.FP8, fp8_recipe=r, compiled=True)).matrix_s) for r in TORCHAO
    )
    assert tensorwise < rowwise < first(layer(Layout()).matrix_s)


def test_the_output_projection_stays_in_bf16_where_layers_multiply_in_fp8() -> None:
    bf16, fp8, emulated = (output(Layout(precision=p)) for p in h100().precisions[1:])
    assert first(bf16.matrix_s) == first(fp8.matrix_s) == first(emulated.matrix_s)


def test_expert_ranks_multiply_as_much_as_ranks_that_hold_every_expert() -> None:
    even = with_stack(sparse_job(), expert_imbalance=1.0)
    lone, apart = (layer(Layout(expert_parallel_degree=e), even, sparse=True) for e in (1, 8))
    # the same tokens in fewer, larger products: a little faster
    assert 0.8 * first(lone.matrix_s) < first(apart.matrix_s) <= first(lone.matrix_s)
