"""Time of the attention core: fused and unfused kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.choices import AttentionKernel
from autotuner.core.kernels import AttentionLaw, FusedPass, GemmLaw, UnfusedAttention
from autotuner.costmodel.layer.attention import AttentionShape, attention_s
from autotuner.costmodel.layer.matrix_products import gemm_s

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


def test_a_fused_kernel_visits_half_of_the_keys_and_the_diagonal() -> None:
    visited = 2 * 8 * 4096 * (4096 / 2 + 64)
    assert forward_s(FLASH, law()) == pytest.approx(visited * 2 * 2 * 64 / (0.5 * 1e12))


def test_a_kernel_that_computes_masked_scores_visits_every_key() -> None:
    assert forward_s(FLASH, law(skips_masked=False)) == pytest.approx(2 * 8 * 4096**2 * 2 * 2 * 64 / (0.5 * 1e12))


def test_the_backward_multiplies_five_times_where_the_forward_does_twice() -> None:
    forward, backward = attention_s(shape(), FLASH, law())
    assert backward / forward == pytest.approx(5 / 2)


def test_the_exponentials_weigh_twice_as_much_on_half_the_head_dimension() -> None:
    one = law(softmax_flop_per_score=128.0)
    # 4 * 64 FLOP at half of the peak take 4 times as long as 128 at the peak; with 4 * 32, twice as long
    assert forward_s(FLASH, one) / forward_s(FLASH, law()) == pytest.approx(1 + 1 / 4)
    assert forward_s(FLASH, one, head_dim=32) / forward_s(FLASH, law(), head_dim=32) == pytest.approx(1 + 1 / 2)


def test_the_overhead_of_a_block_weighs_on_short_sequences() -> None:
    slow = law(overhead_keys=512.0)
    short, long = (forward_s(FLASH, slow, key_len=n) / forward_s(FLASH, law(), key_len=n) for n in (1024, 65536))
    assert short == pytest.approx(1 + 512 / (512 + 64))
    assert 1 < long < 1.02


def test_fewer_blocks_of_queries_than_multiprocessors_leave_some_idle() -> None:
    one_block = forward_s(FLASH, law(), batch=1, num_heads=1, query_len=128)
    four_blocks = forward_s(FLASH, law(), batch=1, num_heads=4, query_len=128)
    assert one_block == pytest.approx(four_blocks)
    assert forward_s(FLASH, law(), batch=1, num_heads=8, query_len=128) == pytest.approx(2 * four_blocks)


def test_a_context_rank_takes_its_share_of_the_queries() -> None:
    assert forward_s(FLASH, law(), query_len=1024) == pytest.approx(forward_s(FLASH, law()) / 4)


def test_grouped_queries_save_memory_traffic_and_no_products() -> None:
    assert forward_s(FLASH, law(), num_kv_heads=1) == forward_s(FLASH, law())
    slow = law(products=replace(PRODUCTS, memory_bandwidth_bytes_per_s=1.0))
    # queries and output of 8 heads, keys and values of 8 or of 1
    assert forward_s(FLASH, slow, num_kv_heads=1) / forward_s(FLASH, slow) == pytest.approx((8 + 1) / (8 + 8))


def test_an_unfused_kernel_adds_passes_over_all_scores_to_its_batched_products() -> None:
    slow = law(products=replace(PRODUCTS, memory_bandwidth_bytes_per_s=1e6))
    forward, backward = attention_s(shape(), FUSED_SOFTMAX, slow)
    scores = gemm_s(4096, 4096, 64, slow.products, count=16)
    values = gemm_s(4096, 64, 4096, slow.products, count=16)
    one_byte_s = 16 * 4096**2 / 1e6
    assert forward == pytest.approx(scores + values + 8 * one_byte_s)
    assert backward == pytest.approx(scores + 3 * values + 12 * one_byte_s)


def test_each_row_takes_the_time_of_its_own_kernel() -> None:
    kernels = np.array([FLASH, FUSED_SOFTMAX, FLASH], dtype=np.int8)
    forward, _ = attention_s(shape(batch=np.array([1, 2, 4])), kernels, law())
    expected = [forward_s(kernel, law(), batch=b) for kernel, b in ((FLASH, 1), (FUSED_SOFTMAX, 2), (FLASH, 4))]
    assert forward.tolist() == expected


def test_a_kernel_that_the_device_lacks_has_no_time() -> None:
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
