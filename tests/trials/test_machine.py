from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
import torch

from autotuner.host.machine_facts import host_hash, software_facts
from autotuner.trials.measurement.environment import (
    CpuTime,
    Gpu,
    PowerMeter,
    environment,
    gpu_of,
    num_cores_used,
    of_all_ranks,
    own_core,
)
from autotuner.trials.measurement.memory import MemoryWatch
from autotuner.trials.rank import RankInfo, host_name


# ---------------------------------------------------------------- cores
def rank_info(local_rank: int, local_world_size: int) -> RankInfo:
    return RankInfo(rank=local_rank, world_size=8, local_rank=local_rank, local_world_size=local_world_size)


def test_ranks_take_the_allowed_cores_in_turn() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    taken = [own_core(rank_info(rank, 2 * len(allowed))) for rank in range(2 * len(allowed))]
    assert taken == allowed + allowed


def test_ranks_never_use_more_cores_than_there_are() -> None:
    num_allowed = len(os.sched_getaffinity(0))
    assert num_cores_used(rank_info(0, 1)) == 1
    assert num_cores_used(rank_info(0, num_allowed + 3)) == num_allowed


@pytest.mark.parametrize(
    ("ranks_s", "share"),
    [(6.0, 0.2), (10.0, 0.0), (10.5, 0.0), (0.0, 0.5)],  # clocks of different grain may say more than the machine's
)
def test_the_foreign_share_is_what_was_busy_without_the_ranks(ranks_s: float, share: float) -> None:
    interval = CpuTime(machine_busy_s=10.0, machine_total_s=20.0, own_s=ranks_s)
    assert interval.foreign_share(ranks_s) == pytest.approx(share)


def test_an_interval_below_the_clock_s_grain_has_no_foreign_share() -> None:
    assert CpuTime(machine_busy_s=0.0, machine_total_s=0.0, own_s=0.1).foreign_share(0.1) == 0.0


def test_cpu_time_of_this_process_grows_with_its_work() -> None:
    start = CpuTime.now()
    while CpuTime.now().since(start).own_s < 0.05:
        pass
    interval = CpuTime.now().since(start)
    assert interval.machine_total_s >= 0.0
    assert interval.own_s >= 0.05


# ---------------------------------------------------------------- environment
CPU = torch.device("cpu")


def test_an_environment_is_software_device_and_variables_of_libraries_and_names_the_host_by_a_hash() -> None:
    facts = environment(CPU, None, {"OMP_NUM_THREADS": "1", "SHELL": "sh"})
    assert (facts["torch"], facts["kernel"], facts["backend"]) == (torch.__version__, platform.release(), "gloo")
    assert facts["device"] == facts["cpu"]
    assert (facts["OMP_NUM_THREADS"], "SHELL" in facts) == ("1", False)
    assert (facts["host"], len(facts["host"])) == (host_hash(), 12)
    assert host_name() not in {value for name, value in facts.items() if name != "kernel"}
    assert {name: facts[name] for name in software_facts()} == software_facts()  # as the service sees it


def test_facts_on_which_all_ranks_agree_are_stated_once() -> None:
    facts = {"host": "a", "torch": "2.13"}
    assert of_all_ranks([facts, facts]) == facts


def test_the_slowest_clock_and_every_version_and_node_are_reported() -> None:
    here = {"host": "a", "sm_clock_mhz": "1980", "driver": "580.82", "CUDA_VISIBLE_DEVICES": "0"}
    there = {"host": "b", "sm_clock_mhz": "990", "driver": "570.1", "CUDA_VISIBLE_DEVICES": "1"}
    assert of_all_ranks([here, here, there]) == {
        "host": "a",
        "sm_clock_mhz": "990",
        "driver": "570.1 (1 ranks), 580.82 (2 ranks)",
        "CUDA_VISIBLE_DEVICES": "0",
        "nodes": "a,b",
    }


# ---------------------------------------------------------------- gpu
class Library:
    """Answers some functions, each in turn from its list; the board supports no others."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, **answers: list[Any]) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*_: object) -> Any:
            if name not in self._answers:
                raise self.NVMLError
            return self._answers[name].pop(0)

        return answer


def test_power_is_the_energy_between_two_readings_over_their_time() -> None:
    millijoules = [5_000, 15_000]
    meter = PowerMeter.start(Gpu(Library(nvmlDeviceGetTotalEnergyConsumption=millijoules), "handle"))
    time.sleep(0.01)
    mean_w = meter.mean_w()
    assert mean_w is not None
    assert 0.0 < mean_w <= 10.0 / 0.01  # ten joules in ten milliseconds or more


@pytest.mark.parametrize("gpu", [None, Gpu(Library(), "handle")], ids=["cpu", "no counter"])
def test_power_that_nothing_measures_is_unknown(gpu: Gpu | None) -> None:
    assert PowerMeter.start(gpu).mean_w() is None


@pytest.mark.parametrize(
    ("answers", "facts"),
    [
        (
            {"nvmlSystemGetDriverVersion": ["580.82"], "nvmlDeviceGetClockInfo": [1980, 2619]},
            {"driver": "580.82", "sm_clock_mhz": "1980", "memory_clock_mhz": "2619"},
        ),
        ({"nvmlDeviceGetCurrentClocksEventReasons": [0x20 | 0x04]}, {"clocks_held_by": "heat"}),
        ({"nvmlDeviceGetCurrentClocksEventReasons": [0x01]}, {}),
        ({"nvmlDeviceGetEccMode": [[1, 0]], "nvmlDeviceGetCurrPcieLinkWidth": [16]}, {"ecc": "1", "pcie_width": "16"}),
    ],
    ids=["driver and clocks", "clocks that heat holds down", "an idle gpu", "error correction and the bus"],
)
def test_a_board_s_facts_are_reported_and_unknown_ones_are_left_out(
    answers: dict[str, list[Any]], facts: dict[str, str]
) -> None:
    assert Gpu(Library(**answers), "handle").facts == facts
    assert gpu_of(CPU) is None  # which is no gpu


# ---------------------------------------------------------------- memory
KIB = 1024


def test_the_peak_is_the_most_that_was_held_together() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    first = torch.empty(100 * KIB, dtype=torch.uint8)
    second = torch.empty(200 * KIB, dtype=torch.uint8)
    del first
    third = torch.empty(50 * KIB, dtype=torch.uint8)
    del second, third
    watch.stop()
    assert watch.peak_bytes == 300 * KIB


def test_memory_allocated_before_does_not_count() -> None:
    before = torch.empty(500 * KIB, dtype=torch.uint8)
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    del before
    after = torch.empty(100 * KIB, dtype=torch.uint8)
    watch.stop()
    assert watch.peak_bytes == after.nbytes


def test_memory_that_another_thread_frees_is_not_counted() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    held = [torch.empty(100 * KIB, dtype=torch.uint8)]
    other = Thread(target=held.clear)
    other.start()
    other.join()
    after = torch.empty(200 * KIB, dtype=torch.uint8)
    watch.stop()
    assert watch.peak_bytes == after.nbytes


def test_the_process_grew_by_the_most_that_was_held_after_the_first_step() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start()
    watch.stop()
    before = watch.reserved_bytes
    held = torch.ones(512 * KIB * KIB, dtype=torch.uint8)  # large enough that malloc maps it and unmaps it
    del held
    after = torch.ones(128 * KIB * KIB, dtype=torch.uint8)
    assert after[-1] == 1
    # What other tests left in this process may be given back meanwhile: far less than 50 MiB.
    assert 0.9 * 512 * KIB * KIB < watch.reserved_bytes - before < 1.1 * 512 * KIB * KIB
