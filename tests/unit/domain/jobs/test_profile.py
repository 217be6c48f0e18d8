from __future__ import annotations

from autotuner.domain.jobs.profile import DeviceProfile, profiled
from autotuner.domain.wire import dumps, loads
from tests.builders import cpu_cluster, h100_cluster, profile


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
