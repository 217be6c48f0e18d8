"""An NVIDIA GPU as its driver sees it: versions, clocks, energy, and the mean power between two moments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

LOWEST = ("sm_clock_mhz", "max_sm_clock_mhz", "memory_clock_mhz", "power_limit_mw", "pcie_width")
"""Facts of which the lowest of all ranks is the trial's: the others wait for that one."""

_HELD_BY = {0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat, by hardware", 0x80: "power brake"}
"""What holds the clocks down, by bit; idleness, limits of power and settings of clients come and go with a step.

Source: nvml.h of CUDA 12, ``nvmlClocksEventReason*``.
"""


class Gpu:
    """One GPU as NVML sees it; what a model or a virtual machine does not tell is None."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml = library
        self._handle = handle

    @property
    def energy_j(self) -> float | None:
        """Used since the driver was loaded; counted by the board itself, so nobody has to sample its power."""
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3

    @property
    def facts(self) -> dict[str, str]:
        """Driver, clocks as now and at most, what holds them down, the power limit, error correction, and the bus."""
        nvml = self._nvml
        found = {
            "driver": self._ask("nvmlSystemGetDriverVersion", of_device=False),
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "max_sm_clock_mhz": self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "clocks_held_by": _held_by(self._ask("nvmlDeviceGetCurrentClocksEventReasons")),
            "power_limit_mw": self._ask("nvmlDeviceGetEnforcedPowerLimit"),
            "ecc": _first(self._ask("nvmlDeviceGetEccMode")),
            "pcie_width": self._ask("nvmlDeviceGetCurrPcieLinkWidth"),
        }
        return {name: str(value) for name, value in found.items() if value is not None}

    def _ask(self, function: str, *arguments: Any, of_device: bool = True) -> Any:
        subject = (self._handle,) if of_device else ()
        try:
            return getattr(self._nvml, function)(*subject, *arguments)
        except (self._nvml.NVMLError, AttributeError):  # not of this board, driver, container or version of pynvml
            return None


def _held_by(reasons: int | None) -> str | None:
    """In words; None where nothing that stays holds the clocks down, or nobody knows."""
    return "; ".join(words for bit, words in _HELD_BY.items() if (reasons or 0) & bit) or None


def _first(modes: Sequence[int] | None) -> int | None:
    """The mode in force; the second is that after the next reboot."""
    return modes[0] if modes else None


def gpu_of(device: torch.device) -> Gpu | None:
    """The GPU behind a device; None for a CPU, and where NVML or its Python package is missing."""
    if device.type != "cuda":
        return None
    try:
        import pynvml  # noqa: PLC0415  # part of the extra of GPU machines; a CPU machine has no driver to ask
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        return Gpu(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except pynvml.NVMLError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMeter:
    """Mean power of a GPU between two moments, from NVML's energy counter: no thread disturbs a rank.

    A100 and H100 look at their own power during a quarter of the time only (arXiv 2312.02741), so the power of a load
    that comes in short bursts is known less well than that of a steady one.
    """

    gpu: Gpu | None
    energy_j: float | None
    started_at: float

    @classmethod
    def start(cls, gpu: Gpu | None) -> PowerMeter:
        """Power counts from now on; None is an accelerator whose power nothing measures."""
        return cls(gpu=gpu, energy_j=gpu.energy_j if gpu else None, started_at=time.perf_counter())

    def mean_w(self) -> float | None:
        """Mean power since the start; None where nothing measures it."""
        now_j = self.gpu.energy_j if self.gpu else None
        if now_j is None or self.energy_j is None:
            return None
        return (now_j - self.energy_j) / (time.perf_counter() - self.started_at)
