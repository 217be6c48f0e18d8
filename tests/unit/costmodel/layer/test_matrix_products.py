from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.models import load_model
from autotuner.core.blocks import LinearAttention, MixtureOfExperts
from autotuner.core.choices import AttentionKernel, Fp8Recipe, Precision
from autotuner.core.job import Job
from autotuner.core.kernels import GemmLaw
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.costmodel.layer.matrix_products import Product, gemm_s, layer_products, router_product
from tests.builders import big_job, h100, h100_cluster, llama_70b
from tests.unit.costmodel.test_stage_load import apart
from tests.unit.costmodel.works import columns, first, layer, output, sparse_job, with_stack

EXPERTS = MixtureOfExperts(
    num_experts=16, experts_per_token=2, expert_ffn_size=1024, num_shared_experts=1, shared_expert_ffn_size=2048
)
TENSOR = Layout(tensor_parallel_degree=4, sequence_parallel=True)


def flop(products: list[Product]) -> float:
    return sum(float((2 * p.tokens * p.inputs * p.outputs * p.count * p.launches)[0]) for p in products)


def products(
    model: TransformerSpec, layout: Layout, *, sparse: bool, splits: bool = False
) -> tuple[list[Product], Job]:
    job = with_stack(replace(big_job(), model=model), expert_imbalance=1.0, splits_experts=splits)
    x = columns(layout)
    found = list(layer_products(x, job, sparse=sparse))
    if sparse and model.experts:
        found.append(router_product(x, job, model.experts))
    return found, job


@pytest.mark.parametrize("name", ["llama-3-70b", "deepseek-v3", "deepseek-v2-lite"])
def test_a_dense_layer_multiplies_every_matrix_element_once_per_token(name: str) -> None:
    model = load_model(name)
    found, job = products(model, Layout(), sparse=False)
    elements = model.attention_matrix_parameters + model.mlp_matrix_parameters
    assert flop(found) == 2 * elements * job.workload.seq_len


LINEAR = LinearAttention(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128)


@pytest.mark.parametrize("gate_rank", [0, 128])
def test_layers_that_attend_linearly_multiply_their_own_matrices(gate_rank: int) -> None:
    linear = replace(LINEAR, gate_rank=gate_rank)
    model = llama_70b(attention_output_gate=True, linear_attention=linear, num_linear_layers=60)
    found, job = products(model, TENSOR, sparse=False)
    elements = model.mean_attention_matrix_parameters + model.mlp_matrix_parameters
    assert model.linear_attention_matrix_parameters < model.attention_matrix_parameters
    assert 4 * flop(found) == 2 * elements * job.workload.seq_len


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize(
    "layout", [Layout(), TENSOR, apart(4), apart(2, tensor_parallel_degree=2, sequence_parallel=True)]
)
def test_all_ranks_multiply_what_the_chosen_experts_of_every_token_have(layout: Layout, splits: bool) -> None:
    model = llama_70b(experts=EXPERTS)
    found, job = products(model, layout, sparse=True, splits=splits)
    elements = model.num_active_layer_matrix_parameters / model.num_layers
    ranks, sequences = layout.data_parallel_degree * layout.tensor_parallel_degree, layout.data_parallel_degree
    assert ranks * flop(found) == 2 * elements * sequences * job.workload.seq_len


def test_ranks_make_latents_of_their_hidden_states_and_multiply_the_experts_that_they_hold() -> None:
    model = load_model("deepseek-v3")
    whole, _ = products(model, replace(TENSOR, sequence_parallel=False), sparse=False)
    split, _ = products(model, TENSOR, sparse=False)
    queries, keys = model.hidden_size * 1536, model.hidden_size * (512 + 64)
    assert flop(whole) - flop(split) == pytest.approx(2 * 8192 * (queries + keys) * (1 - 1 / 4))
    model = llama_70b(experts=EXPERTS)
    jobs = [with_stack(replace(big_job(), model=model), groups_experts=flag) for flag in (True, False)]
    side_by_side, in_turn = (list(layer_products(columns(Layout()), job, sparse=True))[2] for job in jobs)
    assert (side_by_side.count, side_by_side.launches) == (16, 1.0)
    assert (in_turn.count, in_turn.launches) == (1.0, 16)
    even = with_stack(sparse_job(), expert_imbalance=1.0)
    lone, apart = (layer(Layout(expert_parallel_degree=e), even, sparse=True) for e in (1, 8))
    # the same tokens in fewer, larger products: a little faster
    assert 0.8 * first(lone.matrix_s) < first(apart.matrix_s) <= first(lone.matrix_s)


TORCHAO = (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE)


def test_a_large_layer_runs_near_the_rate_of_its_products() -> None:
    job, work = big_job(), layer(Layout())
    model_flop = 3 * (2 * 8192 * (job.model.attention_matrix_parameters + job.model.mlp_matrix_parameters))
    at_peak_s = model_flop / 989.4e12
    # products reach 70 to 80 % of the peak on an H100 that keeps 85 % or more of its clock
    assert at_peak_s / 0.8 < first(work.matrix_s) < at_peak_s / 0.55
    assert first(work.compute_s) < at_peak_s / 0.4  # with attention and norms


def test_fewer_bits_multiply_faster_unless_casts_eat_up_the_gain() -> None:
    plain = Layout(attention_kernel=AttentionKernel.MATH, compiled=True)
    fp32, bf16, fp8, emulated = (first(layer(replace(plain, precision=p)).matrix_s) for p in h100().precisions)
    assert fp32 > bf16 > fp8
    assert emulated > bf16  # the same products, and every operand rounded and widened again
    bf16, fp8 = (first(layer(Layout(precision=p)).matrix_s) for p in (Precision.BF16, Precision.FP8))
    assert fp8 > bf16
    tensorwise, rowwise = (
        first(layer(Layout(precision=Precision.FP8, fp8_recipe=r, compiled=True)).matrix_s) for r in TORCHAO
    )
    assert tensorwise < rowwise < first(layer(Layout()).matrix_s)
    bf16, fp8, emulated = (first(output(Layout(precision=p)).matrix_s) for p in h100().precisions[1:])
    assert bf16 == fp8 == emulated


def test_a_step_keeps_its_own_share_of_the_rate_in_8_bits() -> None:
    slower, faster = (
        replace(big_job(), cluster=h100_cluster(accelerator=h100(fp8_sustained_share=share))) for share in (0.5, 1.0)
    )
    fp8 = [first(layer(Layout(precision=Precision.FP8, compiled=True), job).matrix_s) for job in (slower, faster)]
    bf16 = [first(layer(Layout(), job).matrix_s) for job in (slower, faster)]
    assert fp8[0] > fp8[1]
    assert bf16[0] == bf16[1]


def law(**changes: Any) -> GemmLaw:
    """Ten multiprocessors of 1 TFLOP/s, memory that never limits, nothing lost but the tiles' edges."""
    plain = GemmLaw(
        peak_flop_per_s=10e12,
        peak_share=1.0,
        memory_bandwidth_bytes_per_s=1e18,
        num_multiprocessors=10,
        operand_bytes=2,
        product_bytes=2,
        prologue=0.0,
        wave_loss=1.0,
        latency_s=0.0,
        tiles=((100, 100),),
    )
    return replace(plain, **changes)


def seconds(m: float, n: float, k: float, of: GemmLaw, count: float = 1) -> float:
    return float(gemm_s(m, n, k, of, count=count))


def test_tiles_run_at_the_peak_in_whole_waves_and_the_faster_tile_is_taken() -> None:
    assert seconds(1000, 1000, 1000, law()) == pytest.approx(2e9 / 10e12)
    assert seconds(901, 1000, 1000, law()) == seconds(1000, 1000, 1000, law())
    assert seconds(1100, 100, 1000, law()) == pytest.approx(2 * seconds(1000, 100, 1000, law()))
    assert seconds(100, 100, 1000, law(wave_loss=0.0)) == seconds(1000, 100, 1000, law())
    assert seconds(100, 100, 1000, law(), count=10) == seconds(100, 100, 1000, law())
    shared = law(wave_loss=0.0)
    assert seconds(1100, 100, 1000, shared) == pytest.approx(1.1 * seconds(1000, 100, 1000, shared))
    assert seconds(500, 100, 1000, law(splits=(1, 2))) == pytest.approx(seconds(500, 100, 1000, law()) / 2)
    slow = law(memory_bandwidth_bytes_per_s=1e9)
    # two partial sums written and read into one, in fp32: dearer than leaving half of the multiprocessors idle
    assert seconds(500, 100, 1000, replace(slow, splits=(1, 2))) == seconds(500, 100, 1000, slow)
    both = law(tiles=((200, 100), (100, 100)), small_tile_share=0.8)
    assert seconds(2000, 1000, 100, both) == pytest.approx(2 * 2000 * 1000 * 100 / 10e12)
    assert seconds(100, 1000, 100, both) == pytest.approx(2 * 100 * 1000 * 100 / (0.8 * 10e12))
    assert seconds(1000, 100, 50, law(prologue=50.0)) == pytest.approx(2 * seconds(1000, 100, 50, law()))
    slow = law(memory_bandwidth_bytes_per_s=1.0, operand_bytes=1, product_bytes=2)
    assert seconds(16, 32, 64, slow, count=3) == 3 * (16 * 64 + 64 * 32 + 2 * 16 * 32)
    # 1e-3: what the product itself may add
    assert seconds(1, 8, 8, law(latency_s=1e-3)) == pytest.approx(1e-3, rel=1e-3)
    m, n, k, count = np.array([[128, 1024, 96, 3], [512, 64, 4096, 1], [4096, 4096, 5120, 2]]).T
    one_by_one = [seconds(m[i], n[i], k[i], law(), count=count[i]) for i in range(3)]
    assert gemm_s(m, n, k, law(), count=count).tolist() == one_by_one


@pytest.mark.parametrize(("n", "k", "slower"), [(1000, 1000, 1), (1002, 1000, 2), (1000, 1002, 2), (1001, 1000, 4)])
def test_rows_that_start_between_vectors_are_slow(n: int, k: int, slower: int) -> None:
    unaligned = law(unaligned_shares=(0.5, 0.25))
    assert seconds(1000, n, k, unaligned) == pytest.approx(slower * seconds(1000, n, k, law()))
