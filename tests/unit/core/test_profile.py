from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.codec import dumps, loads
from autotuner.core.link import LinkHealth, MeasuredCollective
from autotuner.core.profile import DeviceProfile, describes, keeping_links, profiled, with_links
from autotuner.core.profile_fit import fit_profile
from tests.builders import cpu_cluster, h100_cluster, link_point, pair_measurements, profile


def test_a_core_takes_its_peaks_from_the_profile() -> None:
    core = profiled(cpu_cluster(), profile()).accelerator
    assert (core.fp32_flop_per_s, core.bf16_flop_per_s) == (80e9, 160e9)
    assert core.memory_bandwidth_bytes_per_s == 2e10
    assert core.kernel_launch_s == 3e-6
    assert "profile local" in core.peak_source


def test_a_gpu_keeps_the_peaks_of_its_data_sheet() -> None:
    before = h100_cluster()
    after = profiled(before, profile())
    assert after.accelerator.bf16_flop_per_s == before.accelerator.bf16_flop_per_s
    assert after.accelerator.measured_gemm == profile().gemm


def test_the_links_between_nodes_are_not_what_was_measured() -> None:
    before = h100_cluster()
    after = profiled(before, profile())
    assert after.intra_node_link.bandwidth_bytes_per_s == profile().link_bandwidth_bytes_per_s
    assert after.inter_node_link == before.inter_node_link


def test_a_profile_reads_back_from_json() -> None:
    assert loads(DeviceProfile, dumps(profile())) == profile()


def test_a_profile_describes_the_devices_of_its_own_host_when_it_measured_all_of_them() -> None:
    taken, here = profile(), "0123456789ab"
    assert taken.num_ranks == 2
    gpus = replace(h100_cluster(1), accelerators_per_node=2)
    assert describes(taken, gpus, host=here)
    assert not describes(taken, gpus, host="another host")
    assert not describes(taken, h100_cluster(1), host=here)


def test_a_profile_of_cores_without_their_own_times_is_out_of_date() -> None:
    assert not describes(profile(), cpu_cluster(2), host="0123456789ab")


def test_a_profile_without_timed_collectives_leaves_those_of_the_link() -> None:
    line = MeasuredCollective(kind="send", num_ranks=2, start_s=1e-3, s_per_byte=1e-9)
    before = cpu_cluster()
    before = replace(before, intra_node_link=replace(before.intra_node_link, measured=(line,)))
    assert profiled(before, profile()).intra_node_link.measured == (line,)


def test_a_profile_of_two_nodes_is_what_the_network_gives() -> None:
    taken = fit_profile(pair_measurements(), name="ours", measured_at=0.0, num_ranks=16, peaks={})
    before = h100_cluster()
    before = replace(before, inter_node_link=replace(before.inter_node_link, congestion=0.1))
    network = profiled(before, replace(taken, cluster="ours")).inter_node_link
    assert network.bandwidth_bytes_per_s == pytest.approx(0.5e9)
    assert network.efficiency == 1.0
    assert network.congestion == 0.1  # two nodes do not tell how more of them slow each other down
    assert network.source == "2 nodes, 1970-01-01"


def test_a_profile_of_a_stored_cluster_describes_no_machine() -> None:
    gpus = replace(h100_cluster(1), accelerators_per_node=2)
    assert not describes(replace(profile(), cluster="ours"), gpus, host=profile().host)


# ---------------------------------------------------------------------- links one by one
POINTS = tuple(
    link_point(low, high, delay=0.03 if (low, high) == (2, 3) else 50e-6)
    for low, high in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
)


def test_a_link_that_was_measured_late_is_late_in_every_prediction() -> None:
    (health,) = profiled(cpu_cluster(4), with_links(profile(), POINTS, measured_at=0.0)).link_health
    assert health == LinkHealth(ends=(2, 3), delay_s=0.03 - 50e-6, jitter_s=2e-6, source="measured 1970-01-01")


def test_links_of_a_profile_from_before_they_were_measured_are_as_assumed() -> None:
    assumed = LinkHealth(ends=(0, 1), delay_s=0.01)
    assert profiled(cpu_cluster(4, link_health=(assumed,)), profile()).link_health == (assumed,)


def test_what_was_measured_of_links_takes_the_place_of_what_was_assumed() -> None:
    assumed = (LinkHealth(ends=(0, 1), delay_s=0.01), LinkHealth(link_class="intra_node", delay_s=0.02))
    found = profiled(cpu_cluster(4, link_health=assumed), with_links(profile(), POINTS, measured_at=0.0)).link_health
    assert [health.ends for health in found] == [(2, 3)]


@pytest.mark.parametrize("num_nodes", [2, 4])
def test_some_nodes_of_a_cluster_do_not_tell_which_of_its_links_are_late(num_nodes: int) -> None:
    found = profiled(h100_cluster(8), with_links(profile(), POINTS, measured_at=0.0, num_nodes=num_nodes))
    assert found.link_health == ()


def test_accelerators_of_one_node_tell_nothing_of_as_many_nodes() -> None:
    assert profiled(h100_cluster(4), with_links(profile(), POINTS, measured_at=0.0)).link_health == ()
    assert profiled(h100_cluster(4), with_links(profile(), POINTS, measured_at=0.0, num_nodes=4)).link_health


def test_a_newer_profile_keeps_the_links_that_more_nodes_measured_before() -> None:
    known = with_links(profile(), POINTS, measured_at=5.0, num_nodes=4)
    newer = with_links(profile(measured_at=9.0), (link_point(0, 1),), measured_at=9.0, num_nodes=2)
    kept = keeping_links(newer, known)
    assert (kept.measured_at, kept.links_measured_at, kept.links_num_nodes) == (9.0, 5.0, 4)
    assert kept.measurements.links == POINTS
    assert keeping_links(known, newer) == known
    assert keeping_links(profile(measured_at=9.0), known).measurements.links == POINTS


def test_a_profile_with_links_reads_back_from_json() -> None:
    whole = with_links(profile(), POINTS, measured_at=5.0, num_nodes=4)
    assert loads(DeviceProfile, dumps(whole)) == whole
