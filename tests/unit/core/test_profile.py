"""Profiles of devices, their fit, and dry runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.kernels import kernels_for
from autotuner.core.accelerator import CoreTimes, PassTimes
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.codec import dumps, loads
from autotuner.core.link import LinkHealth, MeasuredCollective
from autotuner.core.profile import (
    CollectivePoint,
    DeviceProfile,
    GemmPoint,
    PassKind,
    PassPoint,
    describes,
    keeping_links,
    profiled,
    with_links,
)
from autotuner.costmodel.layer.matrix_products import gemm_s
from autotuner.costmodel.profile_fit import fit_collectives, fit_core, fit_profile
from tests.builders import (
    cpu_cluster,
    cpu_core,
    h100,
    h100_cluster,
    link_point,
    measurements,
    pair_measurements,
    profile,
)


def test_a_core_takes_its_peaks_from_the_profile_and_a_gpu_keeps_those_of_its_data_sheet() -> None:
    core = profiled(cpu_cluster(), profile()).accelerator
    assert (core.fp32_flop_per_s, core.bf16_flop_per_s) == (80e9, 160e9)
    assert core.memory_bandwidth_bytes_per_s == 2e10
    assert core.kernel_launch_s == 3e-6
    assert "profile local" in core.peak_source
    before = h100_cluster()
    after = profiled(before, profile())
    assert after.accelerator.bf16_flop_per_s == before.accelerator.bf16_flop_per_s
    assert after.accelerator.measured_gemm == profile().gemm
    assert after.intra_node_link.bandwidth_bytes_per_s == profile().link_bandwidth_bytes_per_s
    assert after.inter_node_link == before.inter_node_link


def test_a_profile_describes_the_devices_of_its_own_host_when_it_measured_all_of_them() -> None:
    taken, here = profile(), "0123456789ab"
    assert taken.num_ranks == 2
    gpus = replace(h100_cluster(1), accelerators_per_node=2)
    assert describes(taken, gpus, host=here)
    assert not describes(taken, gpus, host="another host")
    assert not describes(taken, h100_cluster(1), host=here)
    assert not describes(profile(), cpu_cluster(2), host="0123456789ab")
    assert not describes(replace(profile(), cluster="ours"), gpus, host=profile().host)


def test_a_profile_without_timed_collectives_leaves_those_of_the_link() -> None:
    line = MeasuredCollective(kind="send", num_ranks=2, start_s=1e-3, s_per_byte=1e-9)
    before = cpu_cluster()
    before = replace(before, intra_node_link=replace(before.intra_node_link, measured=(line,)))
    assert profiled(before, profile()).intra_node_link.measured == (line,)


def test_a_profile_of_two_nodes_is_what_the_network_gives() -> None:
    taken = fit_profile(pair_measurements(), name="ours", measured_at=0.0, num_ranks=16, accelerator=h100())
    before = h100_cluster()
    before = replace(before, inter_node_link=replace(before.inter_node_link, congestion=0.1))
    network = profiled(before, replace(taken, cluster="ours")).inter_node_link
    assert network.bandwidth_bytes_per_s == pytest.approx(0.5e9)
    assert network.efficiency == 1.0
    assert network.congestion == 0.1  # two nodes do not tell how more of them slow each other down
    assert network.source == "2 nodes, 1970-01-01"


# ---------------------------------------------------------------------- links one by one
POINTS = tuple(
    link_point(low, high, delay=0.03 if (low, high) == (2, 3) else 50e-6)
    for low, high in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
)


def test_links_that_were_measured_take_the_place_of_what_was_assumed_in_every_prediction() -> None:
    (health,) = profiled(cpu_cluster(4), with_links(profile(), POINTS, measured_at=0.0)).link_health
    assert health == LinkHealth(ends=(2, 3), delay_s=0.03 - 50e-6, jitter_s=2e-6, source="measured 1970-01-01")
    assumed = LinkHealth(ends=(0, 1), delay_s=0.01)
    assert profiled(cpu_cluster(4, link_health=(assumed,)), profile()).link_health == (assumed,)
    further = LinkHealth(link_class="intra_node", delay_s=0.02)
    found = profiled(
        cpu_cluster(4, link_health=(assumed, further)), with_links(profile(), POINTS, measured_at=0.0)
    ).link_health
    assert [health.ends for health in found] == [(2, 3)]


@pytest.mark.parametrize("num_nodes", [2, 4])
def test_some_nodes_of_a_cluster_do_not_show_which_of_its_links_are_slow(num_nodes: int) -> None:
    found = profiled(h100_cluster(8), with_links(profile(), POINTS, measured_at=0.0, num_nodes=num_nodes))
    assert found.link_health == ()


def test_some_nodes_or_the_accelerators_of_one_do_not_show_which_links_of_a_cluster_are_slow() -> None:
    assert profiled(h100_cluster(4), with_links(profile(), POINTS, measured_at=0.0)).link_health == ()
    assert profiled(h100_cluster(4), with_links(profile(), POINTS, measured_at=0.0, num_nodes=4)).link_health


def test_a_newer_profile_keeps_links_that_more_nodes_measured_and_reads_back_from_json() -> None:
    known = with_links(profile(), POINTS, measured_at=5.0, num_nodes=4)
    newer = with_links(profile(measured_at=9.0), (link_point(0, 1),), measured_at=9.0, num_nodes=2)
    kept = keeping_links(newer, known)
    assert (kept.measured_at, kept.links_measured_at, kept.links_num_nodes) == (9.0, 5.0, 4)
    assert kept.measurements.links == POINTS
    assert keeping_links(known, newer) == known
    assert keeping_links(profile(measured_at=9.0), known).measurements.links == POINTS
    whole = with_links(profile(), POINTS, measured_at=5.0, num_nodes=4)
    assert loads(DeviceProfile, dumps(whole)) == whole


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


def test_two_depths_separate_a_layer_from_the_ends_of_the_model() -> None:
    core = fitted()
    assert (core.layer.forward_s, core.layer.backward_s) == pytest.approx((1e-3, 2e-3))
    assert (core.ends.forward_s, core.ends.backward_s) == pytest.approx((0.5e-3, 0.25e-3))


def test_ways_of_sharing_add_dispatch_and_starts_of_collectives_per_pass() -> None:
    split = PassTimes(forward_s=1e-3 + 2 * START_S + 5e-3, backward_s=2e-3 + 9e-3)
    (found,) = fitted(*decoder("tensor", split, num_ranks=2)).split
    assert (found.num_ranks, found.sequence_parallel) == (2, False)
    assert (found.layer.forward_s, found.layer.backward_s) == pytest.approx((5e-3 + 2 * START_S, 9e-3))
    assert found.dispatch_s == pytest.approx(5e-3)
    assert found.ends.forward_s == pytest.approx(0.0, abs=1e-12)  # rounding
    split = PassTimes(forward_s=1e-3 + 4 * START_S + 5e-3, backward_s=2e-3)
    (found,) = fitted(*decoder("sequence", split, num_ranks=2)).split
    assert found.sequence_parallel
    assert found.dispatch_s == pytest.approx(5e-3)
    sharded = fitted(*decoder("sharded", PassTimes(forward_s=4e-3, backward_s=6e-3), num_ranks=2)).sharded
    assert sharded is not None
    assert sharded.num_ranks == 2
    assert (sharded.gather_s, sharded.reduce_s) == pytest.approx((3e-3, 4e-3))
    full = PassTimes(forward_s=1.1e-3, backward_s=2e-3 + 1e-3 + 0.3e-3)
    core = fitted(*decoder("recompute_full", full))
    assert (core.full.forward_s, core.full.backward_s) == pytest.approx((0.1e-3, 0.3e-3))


def test_a_wider_layer_shows_the_memory_bandwidth_between_products() -> None:
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


def test_a_machine_whose_split_or_deeper_passes_are_faster_still_has_positive_constants() -> None:
    faster = PassTimes(forward_s=0.1e-3, backward_s=0.1e-3)
    (found,) = fitted(*decoder("tensor", faster, num_ranks=2)).split
    assert (found.layer.forward_s, found.layer.backward_s) == (0.0, 0.0)
    faster = PassTimes(forward_s=-0.1e-3, backward_s=-0.05e-3)
    core = fitted(*decoder("plain", faster))
    assert core.layer.forward_s > 0 < core.layer.backward_s
    assert 0 < core.pointwise_bytes_per_s < float("inf")


def test_a_collective_is_a_start_and_a_time_per_byte_that_never_falls() -> None:
    seconds = {1000: 1e-3 + 1e-6, 1_000_000: 1e-3 + 1e-3, 8_000_000: 1e-3 + 8e-3}
    points = [
        CollectivePoint(kind="all_reduce", num_ranks=4, num_bytes=size, seconds=time) for size, time in seconds.items()
    ]
    (line,) = fit_collectives(points)
    assert (line.kind, line.num_ranks) == ("all_reduce", 4)
    assert (line.start_s, line.s_per_byte) == pytest.approx((1e-3, 1e-9))
    points = [
        CollectivePoint(kind="send", num_ranks=2, num_bytes=size, seconds=seconds)
        for size, seconds in ((1000, 2e-3), (1_000_000, 1e-3))
    ]
    (line,) = fit_collectives(points)
    assert line.s_per_byte == 0.0
    assert line.start_s == pytest.approx(1e-3)


def test_the_best_product_is_the_peak_of_a_core_of_cores_that_have_no_data_sheet() -> None:
    found = profile()
    assert (found.fp32_flop_per_s, found.bf16_flop_per_s) == (80e9, 160e9)
    assert [gemm.peak_share for gemm in found.gemm] == [1.0, 1.0]


def test_a_profile_keeps_the_law_of_a_gpu_and_gives_it_the_share_of_the_peak_that_explains_its_products() -> None:
    accelerator = load_accelerator("h200")
    half = replace(kernels_for(accelerator).gemm[Precision.FP8], peak_share=0.5)
    products = [
        GemmPoint(precision=Precision.FP8, m=m, n=4096, k=k, seconds=float(gemm_s(m, 4096, k, half)))
        for m, k in ((8192, 2048), (8192, 14336), (16384, 4096))
    ]
    points = measurements(gemm=tuple(products))
    taken = fit_profile(points, name="gpu", measured_at=1.0, num_ranks=1, accelerator=accelerator)
    law = kernels_for(profiled(h100_cluster(accelerator=accelerator), taken).accelerator).gemm[Precision.FP8]
    assert law.peak_share == pytest.approx(0.5, rel=0.01)
    assert law.prologue == half.prologue


def test_measured_memory_bandwidth_is_what_streaming_kernels_reach_and_not_what_the_maker_states() -> None:
    before = h100_cluster()
    taken = fit_profile(measurements(), name="gpu", measured_at=1.0, num_ranks=1, accelerator=before.accelerator)
    after = profiled(before, taken).accelerator
    assert after.memory_bandwidth_bytes_per_s == before.accelerator.memory_bandwidth_bytes_per_s
    assert after.streaming_bytes_per_s == taken.memory_bandwidth_bytes_per_s == 2e10


def test_a_straight_line_gives_latency_and_bandwidth_of_the_link_if_it_fits() -> None:
    found = profile()
    assert found.link_latency_s == pytest.approx(1e-4)
    assert found.link_bandwidth_bytes_per_s == pytest.approx(1e9)  # half of 2 MB in 1 ms more
    found = profile()
    assert (found.num_nodes, found.inter_node_bandwidth_bytes_per_s, found.inter_node_latency_s) == (1, None, None)
    found = fit_profile(measurements(collectives=()), name="alone", measured_at=1.0, num_ranks=1, accelerator=h100())
    assert (found.link_bandwidth_bytes_per_s, found.link_latency_s) == (None, None)
    assert fit_core(measurements(), (), RATE) is None


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


def test_a_network_is_measured_by_one_rank_per_node_with_a_line_per_number_of_nodes() -> None:
    found = fit_profile(pair_measurements(), name="pair", measured_at=1.0, num_ranks=4, accelerator=h100())
    assert found.num_nodes == 2
    assert found.link_bandwidth_bytes_per_s == pytest.approx(1e9)  # the links inside are told by ranks of one node
    assert found.inter_node_bandwidth_bytes_per_s == pytest.approx(0.5e9)
    assert found.inter_node_latency_s == pytest.approx(2e-4)
    assert (found.collectives, found.inter_node_collectives) == ((), ())
    found = fit_profile(pair_measurements(), name="pair", measured_at=1.0, num_ranks=4, accelerator=cpu_core())
    assert [line.num_ranks for line in (*found.collectives, *found.inter_node_collectives)] == [2, 2, 4]
    slopes = [line.s_per_byte for line in (*found.collectives, *found.inter_node_collectives)]
    assert slopes == pytest.approx([0.5e-9, 1e-9, 2e-9])
