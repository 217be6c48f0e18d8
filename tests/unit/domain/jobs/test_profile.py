from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.jobs.cluster import MeasuredCollective
from autotuner.domain.jobs.profile import DeviceProfile, describes, profiled
from autotuner.domain.jobs.profile_fit import fit_profile
from autotuner.domain.wire import dumps, loads
from tests.builders import cpu_cluster, h100_cluster, pair_measurements, profile


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
