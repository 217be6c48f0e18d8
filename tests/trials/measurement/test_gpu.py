"""NVML without a GPU: a library that answers as the real one does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trials.measurement.gpu import Gpu, PowerMeter, gpu_of


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


def test_facts_that_a_board_does_not_tell_are_left_out() -> None:
    library = Library(nvmlSystemGetDriverVersion=["580.82"], nvmlDeviceGetClockInfo=[1980, 2619])
    assert Gpu(library, "handle").facts == {"driver": "580.82", "sm_clock_mhz": "1980", "memory_clock_mhz": "2619"}


def test_clocks_that_heat_holds_down_are_told_and_those_of_an_idle_gpu_are_not() -> None:
    hot, idle = (Library(nvmlDeviceGetCurrentClocksEventReasons=[bits]) for bits in (0x20 | 0x04, 0x01))
    assert Gpu(hot, "handle").facts == {"clocks_held_by": "heat"}
    assert Gpu(idle, "handle").facts == {}


def test_error_correction_and_the_bus_are_told() -> None:
    library = Library(nvmlDeviceGetEccMode=[[1, 0]], nvmlDeviceGetCurrPcieLinkWidth=[16])
    assert Gpu(library, "handle").facts == {"ecc": "1", "pcie_width": "16"}


def test_a_cpu_is_no_gpu() -> None:
    assert gpu_of(torch.device("cpu")) is None
