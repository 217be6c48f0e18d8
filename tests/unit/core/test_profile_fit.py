"""Tests of ``autotuner.core.profile_fit``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotuner.core.accelerator import CoreTimes, PassTimes
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.profile import CollectivePoint, PassKind, PassPoint
from autotuner.core.profile_fit import fit_collectives, fit_core, fit_profile
from tests.builders import measurements, pair_measurements, profile

RATE = 1e11

LAYER, ENDS = PassTimes(forward_s=1e-3, backward_s=2e-3), PassTimes(forward_s=0.5e-3, backward_s=0.25e-3)
START_S = 2e-3
"""Of every collective, however large."""


def decoder(kind: PassKind, layer: PassTimes, ends: PassTimes = ENDS, *, num_ranks: int = 1) -> Iterator[PassPoint]:
    """Two depths of it, too small to multiply for long."""
    for depth in (1, 3):
        yield PassPoint(
            kind=kind,
            num_ranks=num_ranks,
            num_layers=depth,
            hidden_size=1,
            num_sequences=1,
            seq_len=1,
            forward_s=ends.forward_s + depth * layer.forward_s,
            backward_s=ends.backward_s + depth * layer.backward_s,
        )


def fitted(*more: PassPoint) -> CoreTimes:
    kinds: tuple[PassKind, ...] = ("plain", "recompute_selective", "recompute_full")
    points = [point for kind in kinds if kind not in {p.kind for p in more} for point in decoder(kind, LAYER)]
    sizes = (4, 4_000_000)
    collectives = fit_collectives(
        CollectivePoint(kind=kind, num_ranks=2, num_bytes=size, seconds=START_S)
        for kind in ("all_reduce", "all_gather", "reduce_scatter")
        for size in sizes
    )
    core = fit_core(measurements(passes=(*points, *more), attention=()), collectives, RATE)
    assert core is not None
    return core


def test_two_depths_tell_a_layer_from_the_ends_of_the_model() -> None:
    core = fitted()
    assert (core.layer.forward_s, core.layer.backward_s) == pytest.approx((1e-3, 2e-3))
    assert (core.ends.forward_s, core.ends.backward_s) == pytest.approx((0.5e-3, 0.25e-3))


def test_what_tensor_ranks_add_is_dispatch_and_the_start_of_two_collectives_a_pass() -> None:
    split = PassTimes(forward_s=1e-3 + 2 * START_S + 5e-3, backward_s=2e-3 + 9e-3)
    (found,) = fitted(*decoder("tensor", split, num_ranks=2)).split
    assert (found.num_ranks, found.sequence_parallel) == (2, False)
    assert (found.layer.forward_s, found.layer.backward_s) == pytest.approx((5e-3 + 2 * START_S, 9e-3))
    assert found.dispatch_s == pytest.approx(5e-3)
    assert found.ends.forward_s == pytest.approx(0.0, abs=1e-12)  # rounding


def test_sequence_parallelism_starts_four_collectives_a_pass() -> None:
    split = PassTimes(forward_s=1e-3 + 4 * START_S + 5e-3, backward_s=2e-3)
    (found,) = fitted(*decoder("sequence", split, num_ranks=2)).split
    assert found.sequence_parallel
    assert found.dispatch_s == pytest.approx(5e-3)


def test_sharding_gathers_forward_and_reduces_backward() -> None:
    sharded = fitted(*decoder("sharded", PassTimes(forward_s=4e-3, backward_s=6e-3), num_ranks=2)).sharded
    assert sharded is not None
    assert sharded.num_ranks == 2
    assert (sharded.gather_s, sharded.reduce_s) == pytest.approx((3e-3, 4e-3))


def test_recomputing_adds_what_is_beyond_a_second_forward_pass() -> None:
    full = PassTimes(forward_s=1.1e-3, backward_s=2e-3 + 1e-3 + 0.3e-3)
    core = fitted(*decoder("recompute_full", full))
    assert (core.full.forward_s, core.full.backward_s) == pytest.approx((0.1e-3, 0.3e-3))


def test_a_wider_layer_tells_how_fast_memory_moves_between_products() -> None:
    tokens, width, rate = 100, 1000, 5e9
    products_s = 3 * 2 * tokens * 13 * width**2 / RATE
    between_s = 3 * 4 * tokens * 23 * width / rate
    passes = [
        PassPoint(
            kind="plain",
            num_ranks=1,
            num_layers=depth,
            hidden_size=width,
            num_sequences=1,
            seq_len=tokens,
            forward_s=depth * (LAYER.forward_s + products_s / 3 + between_s / 3),
            backward_s=depth * (LAYER.backward_s + 2 * (products_s + between_s) / 3),
        )
        for depth in (1, 3)
    ]
    assert fitted(*decoder("plain", LAYER), *passes).pointwise_bytes_per_s == pytest.approx(rate)


def test_noise_makes_nothing_faster_than_nothing() -> None:
    faster = PassTimes(forward_s=0.1e-3, backward_s=0.1e-3)
    (found,) = fitted(*decoder("tensor", faster, num_ranks=2)).split
    assert (found.layer.forward_s, found.layer.backward_s) == (0.0, 0.0)


def test_a_machine_so_busy_that_deeper_passes_are_faster_still_has_finite_positive_constants() -> None:
    faster = PassTimes(forward_s=-0.1e-3, backward_s=-0.05e-3)
    core = fitted(*decoder("plain", faster))
    assert core.layer.forward_s > 0 < core.layer.backward_s
    assert 0 < core.pointwise_bytes_per_s < float("inf")


def test_a_gpu_has_no_such_constants() -> None:
    assert fit_core(measurements(), (), RATE) is None


def test_a_collective_is_a_start_and_a_time_per_byte() -> None:
    seconds = {1000: 1e-3 + 1e-6, 1_000_000: 1e-3 + 1e-3, 8_000_000: 1e-3 + 8e-3}
    points = [
        CollectivePoint(kind="all_reduce", num_ranks=4, num_bytes=size, seconds=time) for size, time in seconds.items()
    ]
    (line,) = fit_collectives(points)
    assert (line.kind, line.num_ranks) == ("all_reduce", 4)
    assert (line.start_s, line.s_per_byte) == pytest.approx((1e-3, 1e-9))


def test_a_line_of_points_that_fall_is_level() -> None:
    points = [
        CollectivePoint(kind="send", num_ranks=2, num_bytes=size, seconds=seconds)
        for size, seconds in ((1000, 2e-3), (1_000_000, 1e-3))
    ]
    (line,) = fit_collectives(points)
    assert line.s_per_byte == 0.0
    assert line.start_s == pytest.approx(1e-3)


def test_the_best_product_is_the_peak_of_a_core() -> None:
    found = profile()
    assert (found.fp32_flop_per_s, found.bf16_flop_per_s) == (80e9, 160e9)
    assert [gemm.peak_share for gemm in found.gemm] == [1.0, 1.0]


def test_shares_are_of_a_data_sheet_where_there_is_one() -> None:
    peaks = {Precision.FP32: 100e9, Precision.BF16: 200e9}
    found = fit_profile(measurements(), name="gpu", measured_at=1.0, num_ranks=1, peaks=peaks)
    assert [gemm.peak_share for gemm in found.gemm] == pytest.approx([0.8, 0.8])


def test_a_straight_line_tells_latency_and_bandwidth_of_the_link() -> None:
    found = profile()
    assert found.link_latency_s == pytest.approx(1e-4)
    assert found.link_bandwidth_bytes_per_s == pytest.approx(1e9)  # half of 2 MB in 1 ms more


def test_one_rank_has_no_link() -> None:
    found = fit_profile(measurements(collectives=()), name="alone", measured_at=1.0, num_ranks=1, peaks={})
    assert (found.link_bandwidth_bytes_per_s, found.link_latency_s) == (None, None)


def test_attention_counts_two_products_forward_and_five_backward() -> None:
    (core,) = profile().attention
    assert core.kernel == AttentionKernel.MATH
    # one product over all pairs is 0.1 GFLOP: 2 in 10 ms and 5 in 20 ms, of 80 GFLOP/s
    assert (core.forward_share, core.backward_share) == pytest.approx((0.25, 0.3125))


@pytest.mark.parametrize(
    ("kind", "sent", "steps"), [("all_reduce", 1500, 6), ("all_gather", 750, 3), ("send", 1000, 1)]
)
def test_a_ring_sends_its_share_in_steps(kind: str, sent: float, steps: int) -> None:
    point = CollectivePoint(kind=kind, num_ranks=4, num_bytes=1000, seconds=1.0)  # type: ignore[arg-type]  # a parameter is a str
    assert (point.sent_bytes, point.num_steps) == (sent, steps)


def test_one_rank_of_each_node_tells_what_it_gets_of_the_network() -> None:
    found = fit_profile(pair_measurements(), name="pair", measured_at=1.0, num_ranks=4, peaks={})
    assert found.num_nodes == 2
    assert found.link_bandwidth_bytes_per_s == pytest.approx(1e9)  # the links inside are told by ranks of one node
    assert found.inter_node_bandwidth_bytes_per_s == pytest.approx(0.5e9)
    assert found.inter_node_latency_s == pytest.approx(2e-4)
    assert (found.collectives, found.inter_node_collectives) == ((), ())


def test_each_kind_among_cores_of_several_nodes_has_a_line_for_each_number_of_them() -> None:
    found = fit_profile(pair_measurements(), name="pair", measured_at=1.0, num_ranks=4, peaks={}, on_cores=True)
    assert [line.num_ranks for line in (*found.collectives, *found.inter_node_collectives)] == [2, 2, 4]
    slopes = [line.s_per_byte for line in (*found.collectives, *found.inter_node_collectives)]
    assert slopes == pytest.approx([0.5e-9, 1e-9, 2e-9])


def test_one_node_tells_nothing_of_the_network() -> None:
    found = profile()
    assert (found.num_nodes, found.inter_node_bandwidth_bytes_per_s, found.inter_node_latency_s) == (1, None, None)
