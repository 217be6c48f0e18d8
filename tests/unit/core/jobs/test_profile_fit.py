from __future__ import annotations

import pytest

from autotuner.core.jobs.profile import CollectivePoint
from autotuner.core.jobs.profile_fit import fit_profile
from autotuner.core.layouts.choice import AttentionKernel, Precision
from tests.builders import measurements, pair_measurements, profile


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
