"""Time of matrix products: tiles, waves, memory, alignment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.kernels import GemmLaw
from autotuner.costmodel.kernels.gemm import gemm_s


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


def test_whole_waves_run_at_the_peak() -> None:
    assert seconds(1000, 1000, 1000, law()) == pytest.approx(2e9 / 10e12)


def test_a_tile_over_the_edge_costs_a_whole_one() -> None:
    assert seconds(901, 1000, 1000, law()) == seconds(1000, 1000, 1000, law())


def test_one_tile_more_than_a_wave_costs_a_whole_wave() -> None:
    assert seconds(1100, 100, 1000, law()) == pytest.approx(2 * seconds(1000, 100, 1000, law()))


def test_without_wave_loss_the_multiprocessors_share_what_remains() -> None:
    shared = law(wave_loss=0.0)
    assert seconds(1100, 100, 1000, shared) == pytest.approx(1.1 * seconds(1000, 100, 1000, shared))


def test_one_tile_takes_as_long_as_a_wave_of_them() -> None:
    assert seconds(100, 100, 1000, law(wave_loss=0.0)) == seconds(1000, 100, 1000, law())


def test_cutting_the_inner_dimension_fills_idle_multiprocessors() -> None:
    assert seconds(500, 100, 1000, law(splits=(1, 2))) == pytest.approx(seconds(500, 100, 1000, law()) / 2)


def test_partial_sums_cross_the_memory() -> None:
    slow = law(memory_bandwidth_bytes_per_s=1e9)
    # two partial sums written and read into one, in fp32: dearer than leaving half of the multiprocessors idle
    assert seconds(500, 100, 1000, replace(slow, splits=(1, 2))) == seconds(500, 100, 1000, slow)


def test_the_faster_tile_is_taken() -> None:
    both = law(tiles=((200, 100), (100, 100)), small_tile_share=0.8)
    assert seconds(2000, 1000, 100, both) == pytest.approx(2 * 2000 * 1000 * 100 / 10e12)
    assert seconds(100, 1000, 100, both) == pytest.approx(2 * 100 * 1000 * 100 / (0.8 * 10e12))


def test_a_batch_fills_waves_that_one_product_does_not() -> None:
    assert seconds(100, 100, 1000, law(), count=10) == seconds(100, 100, 1000, law())


def test_the_prologue_weighs_on_short_inner_dimensions() -> None:
    assert seconds(1000, 100, 50, law(prologue=50.0)) == pytest.approx(2 * seconds(1000, 100, 50, law()))


def test_operands_and_product_cross_the_memory_once() -> None:
    slow = law(memory_bandwidth_bytes_per_s=1.0, operand_bytes=1, product_bytes=2)
    assert seconds(16, 32, 64, slow, count=3) == 3 * (16 * 64 + 64 * 32 + 2 * 16 * 32)


def test_the_smallest_product_takes_the_latency() -> None:
    # 1e-3: what the product itself may add
    assert seconds(1, 8, 8, law(latency_s=1e-3)) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(("n", "k", "slower"), [(1000, 1000, 1), (1002, 1000, 2), (1000, 1002, 2), (1001, 1000, 4)])
def test_rows_that_start_between_vectors_are_slow(n: int, k: int, slower: int) -> None:
    unaligned = law(unaligned_shares=(0.5, 0.25))
    assert seconds(1000, n, k, unaligned) == pytest.approx(slower * seconds(1000, n, k, law()))


def test_columns_and_numbers_agree() -> None:
    m, n, k, count = np.array([[128, 1024, 96, 3], [512, 64, 4096, 1], [4096, 4096, 5120, 2]]).T
    one_by_one = [seconds(m[i], n[i], k[i], law(), count=count[i]) for i in range(3)]
    assert gemm_s(m, n, k, law(), count=count).tolist() == one_by_one
