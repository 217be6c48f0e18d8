"""A layer: what it multiplies, moves and casts, and how long each pass takes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.hardware import accelerators, load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.blocks import LinearAttention
from autotuner.core.choices import AttentionKernel, ContextExchange, Fp8Recipe, OptimizerKernel, Precision, Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.kernels import AttentionLaw, FusedPass, GemmLaw, UnfusedAttention
from autotuner.core.layout import Layout
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.costmodel.communication.layer_collectives import ASYNC_SHARE
from autotuner.costmodel.layer.attention import AttentionShape, attention_s
from autotuner.costmodel.layer.layer_time import copies_s, input_work, output_work
from autotuner.costmodel.layer.matrix_products import gemm_s
from autotuner.costmodel.layer.memory_bound import HOST_LINK_EFFICIENCY, optimizer_s, stream_rate
from autotuner.costmodel.layer.quantization import CastTimes, cast_kernels, casts_s, weight_casts_s
from autotuner.costmodel.layer.recompute import model_flop_per_step, product_share, recomputed_flop_per_step
from autotuner.costmodel.layer.work import Passes, Work
from autotuner.costmodel.memory.activations import LayerBytes
from autotuner.costmodel.shared.micro_batch import tokens_per_pass
from autotuner.costmodel.shared.table import beside, taken
from tests.builders import big_job, cpu_layout, h100, h100_cluster, llama_70b, tiny_job
from tests.cases import each
from tests.unit.costmodel.works import TENSOR, columns, first, layer, output, parts, sparse_job, with_stack

# ---------------------------------------------------------------- Arithmetic of passes
ONE = Passes(forward_s=np.array([1.0, 2.0]), input_s=np.array([3.0, 4.0]), weight_s=np.array([5.0, 6.0]))
TEN = Passes(forward_s=np.array([10.0, 10.0]), input_s=np.array([20.0, 20.0]), weight_s=np.array([30.0, 30.0]))


def seconds(passes: Passes) -> list[list[float]]:
    return [passes.forward_s.tolist(), passes.input_s.tolist(), passes.weight_s.tolist()]


def test_passes_and_their_sums_are_counted_pass_by_pass() -> None:
    assert ONE.backward_s.tolist() == [8.0, 10.0]
    assert ONE.total_s.tolist() == [9.0, 12.0]
    assert seconds(ONE + TEN) == [[11.0, 12.0], [23.0, 24.0], [35.0, 36.0]]
    assert seconds(ONE + TEN - TEN) == seconds(ONE)
    assert seconds(ONE * np.array([0, 2])) == [[0.0, 4.0], [0.0, 8.0], [0.0, 12.0]]
    assert seconds(taken(ONE, np.array([1, 0, 1]))) == [[2.0, 1.0, 2.0], [4.0, 3.0, 4.0], [6.0, 5.0, 6.0]]
    assert seconds(ONE.with_sends(np.array([0.5, 0.0]))) == [[1.5, 2.0], [3.5, 4.0], [5.0, 6.0]]


# ---------------------------------------------------------------- Tests of `autotuner.costmodel.layer.recompute`
MODELS = ("llama-3-70b", "mixtral-8x7b", "deepseek-v3", "gpt2")


def test_a_step_needs_six_flop_per_parameter_and_token_and_some_attention() -> None:
    job = big_job()
    per_token = model_flop_per_step(job) / job.workload.tokens_per_step
    assert 6 < per_token / job.model.num_parameters < 7.5


@pytest.mark.parametrize("name", MODELS)
def test_full_recomputation_runs_the_layers_that_recompute_forward_again(name: str) -> None:
    workload = Workload(seq_len=1024, global_batch_size=4)
    job = Job(model=load_model(name), cluster=h100_cluster(), workload=workload)
    (full,) = recomputed_flop_per_step(LayoutColumns.from_layouts([Layout(recompute=Recompute.FULL)]), job)
    # forward and two gradients, a multiply-add each per element; the projection is no layer
    output = 3 * 2 * job.model.embedding_parameters * workload.tokens_per_step
    # two roundings of the same product
    assert full == pytest.approx((model_flop_per_step(job) - output) / 3, rel=1e-12)
    job = Job(model=load_model(name), cluster=h100_cluster(), workload=Workload(seq_len=1024, global_batch_size=4))
    layouts = [Layout(recompute=Recompute.FULL, recompute_every=every) for every in (1, 2, job.model.num_layers)]
    every, half, one = recomputed_flop_per_step(LayoutColumns.from_layouts(layouts), job)
    assert every > half > one > 0
    if job.model.experts is None:  # of equal layers, every n-th from the first
        num_layers = job.model.num_layers
        # quotients and products of the same numbers, rounded
        assert half / every == pytest.approx(-(-num_layers // 2) / num_layers, rel=1e-12)
        assert one / every == pytest.approx(1 / num_layers, rel=1e-12)


@pytest.mark.parametrize(
    ("policy", "kernel", "recomputes_attention"),
    [
        (RecomputePolicy.CORE_ATTN, AttentionKernel.FLASH, True),  # arXiv 2205.05198, section 5
        (RecomputePolicy.ALL_BUT_PRODUCTS, AttentionKernel.FLASH, False),  # the output of the fused kernel is kept
        (RecomputePolicy.ALL_BUT_PRODUCTS, AttentionKernel.MATH, True),  # products of batches of matrices are not
    ],
)
def test_selective_recomputation_multiplies_again_what_the_stack_does_not_keep(
    policy: RecomputePolicy, kernel: AttentionKernel, recomputes_attention: bool
) -> None:
    job = replace(big_job(), stack=Stack(selective_recompute=(policy,)))
    x = LayoutColumns.from_layouts([Layout(recompute=Recompute.SELECTIVE, attention_kernel=kernel)])
    attention = job.workload.tokens_per_step * job.model.attention_flop_per_token(job.workload.seq_len)
    assert recomputed_flop_per_step(x, job).tolist() == [attention * recomputes_attention]


def test_a_policy_by_operation_computes_compiled_products_in_fp8_again() -> None:
    job = with_stack(selective_recompute=(RecomputePolicy.EVERY_OTHER_PRODUCT,), repeats_fp8_products=True)
    bf16, eager, compiled = (
        Layout(compiled=True),
        Layout(precision=Precision.FP8),
        Layout(precision=Precision.FP8, compiled=True),
    )
    shares = product_share(columns(bf16, eager, compiled), job, sparse=False)
    assert 0 < shares[0] == shares[1] < shares[2] == 1.0


# ---------------------------------------------------------------- Arithmetic of works
WHEN = ("forward_s", "weight_gradient_s", "backward_s")
"""Parts that say when, and take no time of their own."""

HALF = np.full(2, 0.5)
WORK_ONE = replace(
    Work.nothing(2), matrix_s=np.array([1.0, 2.0]), tensor_s=HALF, forward_s=1.5 * HALF, weight_gradient_s=0.5 * HALF
)
TWO = replace(Work.nothing(2), matrix_s=np.full(2, 3.0), recompute_s=np.array([4.0, 5.0]))


def test_the_total_counts_every_second_once_and_no_part_of_it_again() -> None:
    summed = [f.name for f in fields(Work) if f.name not in WHEN]
    seconds = {name: np.array([2.0**number]) for number, name in enumerate(summed)}
    work = Work(**seconds, **dict.fromkeys(WHEN, np.array([1e6])))
    assert work.total_s.tolist() == [2.0 ** len(summed) - 1]
    assert work.compute_s.tolist() == [1.0 + 2.0 + 4.0 + 8.0]


def test_works_add_join_and_divide_into_passes_part_by_part() -> None:
    assert (WORK_ONE + TWO).matrix_s.tolist() == [4.0, 5.0]
    assert (WORK_ONE + TWO).recompute_s.tolist() == [4.0, 5.0]
    assert parts(WORK_ONE + TWO - TWO) == parts(WORK_ONE)
    assert (WORK_ONE * 3.0).forward_s.tolist() == [2.25, 2.25]
    assert (WORK_ONE * np.array([0, 2])).matrix_s.tolist() == [0.0, 4.0]
    both = beside(WORK_ONE, TWO)
    assert both.matrix_s.tolist() == [1.0, 2.0, 3.0, 3.0]
    assert taken(both, np.array([3, 0])).matrix_s.tolist() == [3.0, 1.0]
    passes = WORK_ONE.passes()
    assert passes.forward_s.tolist() == [0.75, 0.75]
    assert passes.weight_s.tolist() == [0.25, 0.25]
    assert passes.total_s.tolist() == WORK_ONE.total_s.tolist()


# ---------------------------------------------------------------- What moving memory takes: norms, loss, optimizer
def test_norms_and_what_weighs_an_output_move_memory_and_multiply_nothing() -> None:
    fused, plain = (layer(Layout(fused_norm=f)) for f in (True, False))
    assert first(plain.pointwise_s) > first(fused.pointwise_s)
    assert first(plain.matrix_s + plain.attention_s) == first(fused.matrix_s + fused.attention_s)
    halves = [layer(Layout(fused_norm=f), with_stack(unfused_norm_traffic=0.0)) for f in (True, False)]
    assert first(halves[0].pointwise_s) == first(halves[1].pointwise_s)
    steps, fused = (output(Layout(), with_stack(fuses_loss=f)) for f in (False, True))
    assert first(fused.pointwise_s) < first(steps.pointwise_s) / 2
    assert first(fused.matrix_s) == first(steps.matrix_s)
    plain, split = (layer(replace(TENSOR, sequence_parallel=s)) for s in (False, True))
    assert first(split.pointwise_s) < first(plain.pointwise_s)
    assert first(split.matrix_s) == first(plain.matrix_s)

    def pointwise_s(**shapes: Any) -> float:
        return first(layer(Layout(), replace(big_job(), model=llama_70b(**shapes))).pointwise_s)

    one, two, four = (pointwise_s(num_norms_per_layer=norms, parallel_blocks=norms < 4) for norms in (1, 2, 4))
    assert (four - pointwise_s(num_norms_per_layer=2)) == pytest.approx(2 * (two - one), rel=1e-12)  # rounding only
    assert two < pointwise_s(num_norms_per_layer=2)  # whose two residual sums are one
    plain, gated = (
        layer(Layout(), replace(big_job(), model=llama_70b(attention_output_gate=gated))) for gated in (False, True)
    )
    assert first(gated.pointwise_s) > first(plain.pointwise_s)
    assert first(gated.matrix_s) > first(plain.matrix_s)


def test_an_optimizer_moves_its_state_once_or_once_per_operation() -> None:
    x = columns(cpu_layout())
    job = with_stack(tiny_job(1))
    # in fp32: read and write weight and two moments, read the gradient: 28 bytes at 85 % of 10 GB/s; rounding only
    assert first(optimizer_s(x, job, np.array([1e9]))) == pytest.approx(28 / (0.85 * 10), rel=1e-12)
    x = columns(cpu_layout(optimizer_kernel=OptimizerKernel.FOREACH))
    # 20 passes over elements of 4 bytes (torch/optim/adam.py) at 85 % of 10 GB/s; rounding only
    assert first(optimizer_s(x, with_stack(tiny_job(1)), np.array([1e9]))) == pytest.approx(80 / (0.85 * 10), rel=1e-12)
    x, nothing = columns(Layout()), np.zeros(1)
    seconds = (first(optimizer_s(x, with_stack(step_overhead_s=s), nothing)) for s in (0.0, 0.5))
    assert list(seconds) == [0.0, 0.5]


def test_the_host_steps_its_share_of_the_optimizer_while_the_device_steps_the_rest() -> None:
    job, num_elements = with_stack(big_job(), step_overhead_s=0.0), np.array([1e9])
    none, little, whole = (
        first(optimizer_s(columns(Layout(optimizer_offload_percent=percent)), job, num_elements))
        for percent in (0, 1, 100)
    )
    assert little == pytest.approx(0.99 * none, rel=1e-9)  # the device takes longer for its share; rounding only
    # a gradient and a weight of 4 bytes over the link, and 7 times 4 bytes of the host's memory at 40 GB/s
    link_s = 8 / (HOST_LINK_EFFICIENCY * job.cluster.accelerator.host_bandwidth_bytes_per_s)
    assert whole == pytest.approx(1e9 * link_s + 1e9 * 28 / 40e9, rel=1e-12)


def test_a_compiled_layer_moves_what_one_kernel_for_each_operation_would_unless_its_stack_moves_less() -> None:
    eager, compiled = (layer(Layout(compiled=c), with_stack(pointwise_traffic=1.9)) for c in (False, True))
    assert first(eager.pointwise_s) == pytest.approx(1.9 * first(compiled.pointwise_s), rel=1e-12)  # rounding
    assert first(eager.matrix_s + eager.attention_s) == first(compiled.matrix_s + compiled.attention_s)
    fused, plain = (layer(Layout(fused_norm=f, compiled=True)) for f in (True, False))
    assert parts(fused) == parts(plain)
    eager, compiled = (layer(Layout(compiled=c), with_stack(pointwise_traffic=0.85)) for c in (False, True))
    assert first(eager.pointwise_s) == first(compiled.pointwise_s)


# ---------------------------------------------------------------- quantization
FP8 = Layout(precision=Precision.FP8)


def engine(name: str = "h100", **fields: bool) -> Job:
    """The big job with Transformer Engine, on that accelerator."""
    job = with_stack(None, fp8_implementation="transformer_engine", **fields)
    return replace(job, cluster=replace(job.cluster, accelerator=load_cluster(name).accelerator))


def quantization_seconds(layout: Layout, job: Job, *, sparse: bool = False) -> float:
    times = casts_s(columns(layout), job, sparse=sparse)
    return first(times.forward_s + times.input_gradient_s + times.weight_gradient_s)


def recipe(name: Fp8Recipe, **fields: bool) -> Layout:
    return replace(FP8, fp8_recipe=name, **fields)  # type: ignore[arg-type]


def test_scales_and_layouts_of_narrow_formats_move_memory_and_16_bits_cast_nothing() -> None:
    assert quantization_seconds(Layout(), big_job()) == 0.0
    assert first(weight_casts_s(columns(Layout()), big_job(), np.array([1e9]))) == 0.0
    assert first(cast_kernels(columns(Layout()), big_job())) == 0.0
    job, model = engine("b200"), llama_70b()
    inputs = 2 * model.hidden_size + model.attention_output_size + model.ffn_size
    gradients = 2 * model.hidden_size + model.query_size + model.key_value_size + 2 * model.ffn_size
    moved_bytes = (4 + 2 / 32) * (inputs + gradients) * job.workload.seq_len
    assert quantization_seconds(recipe(Fp8Recipe.MXFP8), job) == pytest.approx(
        moved_bytes / stream_rate(job), rel=1e-12
    )
    delayed, current = (quantization_seconds(recipe(r), engine()) for r in (Fp8Recipe.DELAYED, Fp8Recipe.TENSORWISE))
    assert delayed < current
    assert quantization_seconds(recipe(Fp8Recipe.DELAYED), engine("b200")) < quantization_seconds(
        recipe(Fp8Recipe.MXFP8), engine("b200")
    )
    hopper, blackwell = (engine(name) for name in ("h100", "b200"))
    moved = [quantization_seconds(recipe(Fp8Recipe.TENSORWISE), job) * stream_rate(job) for job in (hopper, blackwell)]
    assert moved[0] == pytest.approx(moved[1] * 6 / 5, rel=1e-12)  # read 2 and 2, write 1 and 1, or 1


def test_weights_are_rounded_once_a_step_or_only_laid_out_again_where_they_are_gathered() -> None:
    x, elements = columns(FP8), np.array([1e9])
    assert first(weight_casts_s(x, engine(), elements)) > 0.0
    assert first(weight_casts_s(x, big_job(), elements)) == 0.0
    gathered = with_stack(gathers_fp8_parameters=True)
    assert quantization_seconds(FP8, gathered) < quantization_seconds(FP8, with_stack())
    x, elements = columns(recipe(Fp8Recipe.DELAYED)), np.array([1e9])
    hopper, blackwell = (engine(name, gathers_fp8_parameters=True) for name in ("h100", "b200"))
    assert 0.0 < first(weight_casts_s(x, hopper, elements)) < first(weight_casts_s(x, engine(), elements))
    assert first(weight_casts_s(x, blackwell, elements)) == 0.0
    split = Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.TENSORWISE, tensor_parallel_degree=8)
    alone, sharing = (engine(gathers_fp8_activations=gathers) for gathers in (False, True))
    parallel = replace(split, sequence_parallel=True)
    assert quantization_seconds(parallel, sharing) < quantization_seconds(parallel, alone)
    assert quantization_seconds(split, sharing) == quantization_seconds(split, alone)


def test_casts_cost_more_eager_by_row_emulated_and_for_every_copy_of_a_token() -> None:
    assert 4 * quantization_seconds(replace(FP8, compiled=True), big_job()) < quantization_seconds(FP8, big_job())
    launched = [first(cast_kernels(columns(replace(FP8, compiled=compiled)), big_job())) for compiled in (False, True)]
    assert launched[0] > launched[1]
    tensorwise, rowwise = (
        quantization_seconds(recipe(r, compiled=True), big_job()) for r in (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE)
    )
    assert tensorwise < rowwise
    assert quantization_seconds(Layout(precision=Precision.FP8_EMULATED), big_job()) > quantization_seconds(
        FP8, big_job()
    )
    job = sparse_job()
    assert quantization_seconds(FP8, job, sparse=True) > quantization_seconds(FP8, job)


def test_passes_share_the_casts_by_what_they_need() -> None:
    times = casts_s(columns(recipe(Fp8Recipe.DELAYED), replace(FP8, compiled=True)), engine(), sparse=False)
    assert isinstance(times, CastTimes)
    assert times.weight_gradient_s.tolist() == [0.0, 0.0]  # the forward pass left what it needs
    assert (times.forward_s > 0).all()
    assert (times.input_gradient_s > 0).all()
    assert first(casts_s(columns(FP8), big_job(), sparse=False).weight_gradient_s) > 0.0  # torchao rounds again


# ---------------------------------------------------------------- attention
PRODUCTS = GemmLaw(
    peak_flop_per_s=1e12,
    peak_share=0.5,
    memory_bandwidth_bytes_per_s=1e18,
    num_multiprocessors=4,
    operand_bytes=2,
    product_bytes=2,
    prologue=0.0,
    wave_loss=0.0,
    latency_s=0.0,
    tiles=((64, 64),),
)
FLASH, FUSED_SOFTMAX, FLASH_3 = AttentionKernel.FLASH, AttentionKernel.FUSED_SOFTMAX, AttentionKernel.FLASH_3


def law(*, products: GemmLaw = PRODUCTS, **changes: Any) -> AttentionLaw:
    one_pass = FusedPass(**{"product_share": 0.5, **changes})
    unfused = UnfusedAttention(forward_bytes=8.0, backward_bytes=12.0)
    return AttentionLaw(products=products, fused={FLASH: (one_pass, one_pass)}, unfused={FUSED_SOFTMAX: unfused})


def shape(**changes: Any) -> AttentionShape:
    plain = AttentionShape(batch=2, num_heads=8, num_kv_heads=8, head_dim=64, query_len=4096, key_len=4096)
    return replace(plain, **changes)


def forward_s(kernel: AttentionKernel, of: AttentionLaw, **changes: Any) -> float:
    return float(attention_s(shape(**changes), kernel, of)[0])


def test_a_fused_kernel_visits_half_of_the_keys_and_pays_for_exponentials_and_blocks() -> None:
    visited = 2 * 8 * 4096 * (4096 / 2 + 64)
    assert forward_s(FLASH, law()) == pytest.approx(visited * 2 * 2 * 64 / (0.5 * 1e12))
    assert forward_s(FLASH, law(skips_masked=False)) == pytest.approx(2 * 8 * 4096**2 * 2 * 2 * 64 / (0.5 * 1e12))
    forward, backward = attention_s(shape(), FLASH, law())
    assert backward / forward == pytest.approx(5 / 2)
    one = law(softmax_flop_per_score=128.0)
    # 4 * 64 FLOP at half of the peak take 4 times as long as 128 at the peak; with 4 * 32, twice as long
    assert forward_s(FLASH, one) / forward_s(FLASH, law()) == pytest.approx(1 + 1 / 4)
    assert forward_s(FLASH, one, head_dim=32) / forward_s(FLASH, law(), head_dim=32) == pytest.approx(1 + 1 / 2)
    slow = law(overhead_keys=512.0)
    short, long = (forward_s(FLASH, slow, key_len=n) / forward_s(FLASH, law(), key_len=n) for n in (1024, 65536))
    assert short == pytest.approx(1 + 512 / (512 + 64))
    assert 1 < long < 1.02


def test_blocks_of_queries_fill_multiprocessors_and_context_ranks_take_their_share() -> None:
    one_block = forward_s(FLASH, law(), batch=1, num_heads=1, query_len=128)
    four_blocks = forward_s(FLASH, law(), batch=1, num_heads=4, query_len=128)
    assert one_block == pytest.approx(four_blocks)
    assert forward_s(FLASH, law(), batch=1, num_heads=8, query_len=128) == pytest.approx(2 * four_blocks)
    assert forward_s(FLASH, law(), query_len=1024) == pytest.approx(forward_s(FLASH, law()) / 4)


def test_grouped_queries_save_traffic_and_unfused_kernels_pass_over_all_scores() -> None:
    assert forward_s(FLASH, law(), num_kv_heads=1) == forward_s(FLASH, law())
    slow = law(products=replace(PRODUCTS, memory_bandwidth_bytes_per_s=1.0))
    # queries and output of 8 heads, keys and values of 8 or of 1
    assert forward_s(FLASH, slow, num_kv_heads=1) / forward_s(FLASH, slow) == pytest.approx((8 + 1) / (8 + 8))
    slow = law(products=replace(PRODUCTS, memory_bandwidth_bytes_per_s=1e6))
    forward, backward = attention_s(shape(), FUSED_SOFTMAX, slow)
    scores = gemm_s(4096, 4096, 64, slow.products, count=16)
    values = gemm_s(4096, 64, 4096, slow.products, count=16)
    one_byte_s = 16 * 4096**2 / 1e6
    assert forward == pytest.approx(scores + values + 8 * one_byte_s)
    assert backward == pytest.approx(scores + 3 * values + 12 * one_byte_s)


def test_each_row_takes_the_time_of_its_own_kernel_and_none_that_the_device_lacks() -> None:
    kernels = np.array([FLASH, FUSED_SOFTMAX, FLASH], dtype=np.int8)
    forward, _ = attention_s(shape(batch=np.array([1, 2, 4])), kernels, law())
    expected = [forward_s(kernel, law(), batch=b) for kernel, b in ((FLASH, 1), (FUSED_SOFTMAX, 2), (FLASH, 4))]
    assert forward.tolist() == expected
    assert np.isnan(attention_s(shape(), FLASH_3, law())).all()


@pytest.mark.parametrize("kernel", [FLASH, FUSED_SOFTMAX])
def test_narrower_values_save_a_half_forward_and_two_of_five_products_backward(kernel: AttentionKernel) -> None:
    sizes = {"batch": 1, "num_heads": 8, "num_kv_heads": 8, "query_len": 4096, "key_len": 4096, "head_dim": 128}
    unfused = UnfusedAttention(forward_bytes=0.0, backward_bytes=0.0)
    free = AttentionLaw(products=PRODUCTS, fused=law().fused, unfused={FUSED_SOFTMAX: unfused})
    equal, same, narrow = (attention_s(AttentionShape(**sizes, value_dim=w), kernel, free) for w in (128, 0, 64))
    assert equal == same
    forward, backward = (part / whole for part, whole in zip(narrow, equal, strict=True))
    # of 2 products forward 1 is over the width of values, of the 5 backward of fused kernels 2, of 4 of others 1
    assert forward == pytest.approx(1 - 1 / 4)
    assert backward == pytest.approx(1 - (2 / 5 if kernel == FLASH else 1 / 4) / 2)


AWAY = Layout(offload_activations=True)


def copies(layout: Layout, forward_s: float = 0.0, backward_s: float = 0.0) -> list[float]:
    forward, backward = np.array([forward_s]), np.array([backward_s])
    return [first(s) for s in copies_s(columns(layout), big_job(), forward, backward, sparse=False)]


def test_layers_that_do_not_stay_on_the_device_are_copied_at_the_rate_of_the_host_link_alone() -> None:
    assert copies(Layout()) == [0.0, 0.0]
    moved = first(LayerBytes.of(columns(AWAY), big_job(), sparse=False).moved)
    wire_s = moved / (HOST_LINK_EFFICIENCY * big_job().cluster.accelerator.host_bandwidth_bytes_per_s)
    assert copies(AWAY) == [wire_s, wire_s]
    assert copies(AWAY, wire_s / 2, 2 * wire_s) == pytest.approx([wire_s / 2, 0.0], rel=1e-12)  # rounding
    fast, slow = (
        layer(AWAY, replace(big_job(), cluster=h100_cluster(accelerator=h100(host_bandwidth_bytes_per_s=rate))))
        for rate in (450e9, 1e9)
    )
    assert first(fast.offload_s) < first(slow.offload_s)
    assert first(fast.total_s - fast.offload_s) == pytest.approx(first(slow.total_s - slow.offload_s), rel=1e-9)


@pytest.mark.parametrize("recompute", [Recompute.SELECTIVE, Recompute.FULL])
def test_only_the_input_of_a_recomputed_layer_is_offloaded(recompute: Recompute) -> None:
    out_s, _ = copies(replace(AWAY, recompute=recompute))
    assert out_s == pytest.approx(2 * 8192 * 8192 / (HOST_LINK_EFFICIENCY * 31.5e9), rel=1e-12)  # rounding
    assert out_s < copies(AWAY)[0]


@pytest.mark.parametrize("kernel", list(AttentionKernel))
def test_recomputation_takes_time_in_the_order_of_what_it_repeats(kernel: AttentionKernel) -> None:
    none, selective, full = (layer(Layout(attention_kernel=kernel, recompute=r)) for r in Recompute)
    assert first(none.recompute_s) == 0.0 < first(selective.recompute_s) < first(full.recompute_s)
    assert first(none.compute_s) == first(selective.compute_s) == first(full.compute_s)
    # a third, less where flash attention multiplies 2.5 times as much backward, more where unfused kernels pass over
    # their scores as often forward as backward
    assert 0.30 < first(full.recompute_s) / first(full.compute_s) < 0.42


def test_only_attention_depends_on_its_kernel_and_newer_ones_are_faster() -> None:
    order = (
        AttentionKernel.FLASH_3,
        AttentionKernel.FLASH,
        AttentionKernel.EFFICIENT,
        AttentionKernel.FUSED_SOFTMAX,
        AttentionKernel.MATH,
    )
    works = [layer(Layout(attention_kernel=kernel)) for kernel in order]
    seconds = [first(work.attention_s) for work in works]
    assert seconds == sorted(seconds)
    assert len({first(work.matrix_s + work.pointwise_s) for work in works}) == 1


def test_layers_that_attend_linearly_take_no_longer_for_longer_sequences() -> None:
    linear = LinearAttention(num_key_heads=64, num_value_heads=64, key_head_dim=128, value_head_dim=128)

    def attention_s(num_linear_layers: int, seq_len: int) -> float:
        job = replace(big_job(), model=llama_70b(linear_attention=linear, num_linear_layers=num_linear_layers))
        workload = replace(job.workload, seq_len=seq_len)
        return first(layer(Layout(), replace(job, workload=workload)).attention_s) / seq_len

    assert attention_s(80, 65536) == pytest.approx(attention_s(80, 8192), rel=0.01)  # blocks of queries fill a device
    assert attention_s(0, 65536) > 7 * attention_s(0, 8192)
    mean = (attention_s(0, 8192) + attention_s(80, 8192)) / 2
    assert attention_s(40, 8192) == pytest.approx(mean, rel=1e-12)  # rounding only


def test_clocks_and_stacks_slow_products_and_their_neighbours_by_their_own_factors() -> None:
    cold, warm = (
        layer(Layout(), replace(big_job(), cluster=h100_cluster(accelerator=h100(sustained_share=share))))
        for share in (1.0, 0.5)
    )
    assert first(warm.matrix_s) == pytest.approx(2 * first(cold.matrix_s), rel=1e-12)  # rounding
    assert first(warm.attention_s) == pytest.approx(2 * first(cold.attention_s), rel=1e-12)
    assert first(warm.pointwise_s) == first(cold.pointwise_s)
    plain, slow = layer(Layout(), with_stack()), layer(Layout(), with_stack(matrix_slowdown=1.5, pointwise_traffic=2.0))
    assert first(slow.matrix_s) == pytest.approx(1.5 * first(plain.matrix_s), rel=1e-12)  # rounding
    assert first(slow.pointwise_s) == pytest.approx(2.0 * first(plain.pointwise_s), rel=1e-12)
    assert first(slow.attention_s) == first(plain.attention_s)


def test_forwards_gradients_and_outputs_take_their_shares_of_the_work() -> None:
    x, job = columns(Layout()), big_job()
    assert first(output_work(x, job).compute_s) > 10 * first(input_work(x, job).compute_s)
    for recompute in Recompute:
        work = layer(replace(TENSOR, recompute=recompute))
        assert 0 < first(work.weight_gradient_s) < first(work.matrix_s)
        assert 0 < first(work.forward_s) < first(work.total_s)
        assert 0 < first(work.backward_s) <= first(work.compute_s + work.recompute_s)


@each("name", [name for name in accelerators() if name not in {"v100", "mi300x"}])
def test_every_device_of_the_catalog_times_a_layer_in_bf16(name: str) -> None:
    layout = Layout(attention_kernel=AttentionKernel.MATH)
    work = layer(layout, replace(big_job(), cluster=load_cluster(f"{name}:1")))
    assert np.isfinite(parts(work)).all()
    assert first(work.matrix_s) > 0 < first(work.attention_s)


def test_gathered_logits_cost_a_collective_and_the_whole_loss_whether_layout_or_stack_gathers_them() -> None:
    split, whole = (output(TENSOR, with_stack(gathers_logits=g)) for g in (False, True))
    assert first(whole.tensor_s) > first(split.tensor_s)
    assert first(whole.pointwise_s) == pytest.approx(8 * first(split.pointwise_s), rel=1e-12)  # rounding
    assert first(whole.matrix_s) == first(split.matrix_s)
    lone = [output(Layout(), with_stack(gathers_logits=g)) for g in (False, True)]
    assert parts(lone[0]) == parts(lone[1])
    ours, theirs = (
        output(replace(TENSOR, loss_parallel=p), with_stack(gathers_logits=g))
        for p, g in ((False, False), (True, True))
    )
    assert parts(ours) == parts(theirs)


def test_groups_split_the_computation_and_pay_for_what_they_exchange() -> None:
    alone, split = layer(Layout()), layer(TENSOR)
    assert first(alone.tensor_s) == 0.0 < first(split.tensor_s)
    assert first(alone.compute_s) / 8 < first(split.compute_s) < first(alone.compute_s) / 5
    once, again = layer(TENSOR), layer(replace(TENSOR, recompute=Recompute.FULL))
    assert first(again.tensor_s) == pytest.approx(1.5 * first(once.tensor_s), rel=1e-12)  # rounding only
    layout = Layout(context_parallel_degree=4)
    assert tokens_per_pass(columns(layout), big_job()).tolist() == [2048.0]
    assert first(layer(layout).context_s) > 0.0 == first(layer(Layout()).context_s)
    lone, apart = (layer(Layout(expert_parallel_degree=e), sparse_job(), sparse=True) for e in (1, 8))
    assert first(lone.expert_s) == 0.0 < first(apart.expert_s)


@pytest.mark.parametrize("kernel", [AttentionKernel.FLASH, AttentionKernel.MATH])
def test_all_but_products_computes_only_what_lies_between_again(kernel: AttentionKernel) -> None:
    layout = Layout(attention_kernel=kernel, recompute=Recompute.SELECTIVE)
    policies = (RecomputePolicy.ALL_BUT_PRODUCTS, RecomputePolicy.CORE_ATTN)
    work, core_alone = (layer(layout, with_stack(selective_recompute=(policy,))) for policy in policies)
    norms = first(work.pointwise_s) / 3  # one of forward and backward, which takes twice as long
    # an unfused core is no product of matrices; rounding
    core = first(core_alone.recompute_s) if kernel == AttentionKernel.MATH else 0.0
    assert first(work.recompute_s) == pytest.approx(norms + core, rel=1e-12)


def test_tensor_collectives_are_hidden_by_the_share_that_was_measured_or_that_a_stack_hides() -> None:
    split = replace(TENSOR, sequence_parallel=True, compiled=True)
    plain, hidden = (layer(replace(split, async_tensor_parallel=a)) for a in (False, True))
    # products of a large layer outlast its collectives: all but an eighth of these could be hidden
    left = 1 - ASYNC_SHARE * 7 / 8
    assert first(hidden.tensor_s) == pytest.approx(first(plain.tensor_s) * left, rel=1e-12)  # rounding
    assert first(hidden.compute_s) == first(plain.compute_s)
    nothing, half, all_of_it = (
        first(layer(TENSOR, with_stack(overlaps_tensor_backward=share)).tensor_s) for share in (0.0, 0.5, 1.0)
    )
    assert nothing > half >= all_of_it


def test_context_ranks_that_exchange_heads_attend_to_whole_sequences() -> None:
    ring, heads = (
        layer(Layout(context_parallel_degree=4, context_exchange=way))
        for way in (ContextExchange.RING, ContextExchange.ALL_TO_ALL)
    )
    # as many scores; 5 %: of blocks of queries at their ends
    assert first(heads.attention_s) == pytest.approx(first(ring.attention_s), rel=0.05)
    assert first(heads.matrix_s) == first(ring.matrix_s)
