"""Tests of ``autotuner.costmodel.layer.layer_time``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.catalog.hardware import accelerators, load_cluster
from autotuner.core.blocks import LinearAttention
from autotuner.core.choices import AttentionKernel, ContextExchange, Recompute
from autotuner.core.layout import Layout
from autotuner.core.recompute import RecomputePolicy
from autotuner.costmodel.communication.layer_collectives import ASYNC_SHARE
from autotuner.costmodel.layer.layer_time import HOST_LINK_EFFICIENCY, copies_s, input_work, output_work
from autotuner.costmodel.memory.activations import LayerBytes
from autotuner.costmodel.micro_batch import tokens_per_pass
from tests.builders import big_job, h100, h100_cluster, llama_70b
from tests.unit.costmodel.works import TENSOR, columns, first, layer, output, parts, sparse_job, with_stack

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
def test_of_a_layer_that_recomputes_only_the_input_is_copied(recompute: Recompute) -> None:
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


def test_products_slow_down_with_the_sustained_clock_and_memory_does_not() -> None:
    cold, warm = (
        layer(Layout(), replace(big_job(), cluster=h100_cluster(accelerator=h100(sustained_share=share))))
        for share in (1.0, 0.5)
    )
    assert first(warm.matrix_s) == pytest.approx(2 * first(cold.matrix_s), rel=1e-12)  # rounding
    assert first(warm.attention_s) == pytest.approx(2 * first(cold.attention_s), rel=1e-12)
    assert first(warm.pointwise_s) == first(cold.pointwise_s)


def test_an_output_projection_takes_longer_than_a_lookup() -> None:
    x, job = columns(Layout()), big_job()
    assert first(output_work(x, job).compute_s) > 10 * first(input_work(x, job).compute_s)


def test_the_forward_and_the_weight_gradients_are_shares_of_the_work() -> None:
    for recompute in Recompute:
        work = layer(replace(TENSOR, recompute=recompute))
        assert 0 < first(work.weight_gradient_s) < first(work.matrix_s)
        assert 0 < first(work.forward_s) < first(work.total_s)
        assert 0 < first(work.backward_s) <= first(work.compute_s + work.recompute_s)


@pytest.mark.parametrize("name", [name for name in accelerators() if name not in {"v100", "mi300x"}])
def test_every_device_of_the_catalog_times_a_layer_in_bf16(name: str) -> None:
    layout = Layout(attention_kernel=AttentionKernel.MATH)
    work = layer(layout, replace(big_job(), cluster=load_cluster(f"{name}:1")))
    assert np.isfinite(parts(work)).all()
    assert first(work.matrix_s) > 0 < first(work.attention_s)


def test_a_stack_slows_products_and_their_neighbours_by_its_own_factors() -> None:
    plain, slow = layer(Layout(), with_stack()), layer(Layout(), with_stack(matrix_slowdown=1.5, pointwise_traffic=2.0))
    assert first(slow.matrix_s) == pytest.approx(1.5 * first(plain.matrix_s), rel=1e-12)  # rounding
    assert first(slow.pointwise_s) == pytest.approx(2.0 * first(plain.pointwise_s), rel=1e-12)
    assert first(slow.attention_s) == first(plain.attention_s)


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
