"""The environment of a trial: versions, GPUs, CPU cores, and variables that change how libraries behave."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autotuner.host.cpu_time import machine_cpu_s, process_cpu_s
from autotuner.host.machine_facts import hardware_facts, settings_of_libraries, software_facts
from autotuner.trials.rank import RankInfo

# An NVIDIA GPU as its driver sees it: versions, clocks, energy, and the mean power between two moments.

LOWEST = ("sm_clock_mhz", "max_sm_clock_mhz", "memory_clock_mhz", "power_limit_mw", "pcie_width")
"""Facts of which the trial records the lowest of all ranks, because the other ranks wait for that one."""

_HELD_BY = {0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat, by hardware", 0x80: "power brake"}
"""Reasons that hold the clocks down for long, by bit. Idleness, power limits and settings of clients are left out,
because they change within a step. Source: nvml.h of CUDA 12, ``nvmlClocksEventReason*``."""


class Gpu:
    """A GPU as NVML reports it. A fact that the GPU or a virtual machine does not report is None or missing."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml = library
        self._handle = handle

    @property
    def energy_j(self) -> float | None:
        """Return the energy in joules that was used since the driver was loaded; None if the GPU does not count it.

        The GPU counts the energy itself, so no process has to read its power at short intervals.
        """
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1e3

    @property
    def facts(self) -> dict[str, str]:
        """Return the driver version, the clocks and their limits, the power limit, error correction and bus width."""
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
    """Return the lasting reasons that hold the clocks down, in words; None if there are none or they are unknown."""
    return "; ".join(words for bit, words in _HELD_BY.items() if (reasons or 0) & bit) or None


def _first(modes: Sequence[int] | None) -> int | None:
    """Return the present mode; the second one takes effect after the next reboot."""
    return modes[0] if modes else None


def gpu_of(device: torch.device) -> Gpu | None:
    """Return the GPU behind a torch device; None for a CPU, or if NVML or its Python package is missing."""
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
    """A meter of the mean power of a GPU between two moments, which reads NVML's energy counter twice.

    It needs no thread, which would disturb a rank. A100 and H100 sample their power only in a quarter of the time
    (arXiv 2312.02741). So the result is less accurate if the load changes quickly.
    """

    gpu: Gpu | None
    energy_j: float | None
    started_at: float

    @classmethod
    def start(cls, gpu: Gpu | None) -> PowerMeter:
        """Return a meter of the GPU's power that measures from now on.

        Args:
            gpu: The GPU of this rank; None: the rank has no GPU that NVML can read, and the meter measures nothing.
        """
        return cls(gpu=gpu, energy_j=gpu.energy_j if gpu else None, started_at=time.perf_counter())

    def mean_w(self) -> float | None:
        """Return the mean power in watts that the GPU has drawn since ``start``; None if it cannot be measured."""
        now_j = self.gpu.energy_j if self.gpu else None
        if now_j is None or self.energy_j is None:
            return None
        return (now_j - self.energy_j) / (time.perf_counter() - self.started_at)


# The environment of a trial: versions, devices, clocks, and the variables that change how the libraries behave.


def environment(device: torch.device, gpu: Gpu | None, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return facts about this rank's machine: versions, hardware, and variables that change how libraries behave.

    The name of the host is hashed, so that results can be shared and machines can still be told apart.
    """
    facts = {"torch": torch.__version__} | software_facts() | hardware_facts()
    facts |= _cuda(device) if device.type == "cuda" else {"device": facts.get("cpu", ""), "backend": "gloo"}
    return facts | (gpu.facts if gpu else {}) | settings_of_libraries(variables)


def of_all_ranks(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the facts about the machine of rank 0, with the values of other ranks where they differ.

    A single rank with other hardware or settings often makes every step slow, so the result shows the differences. For
    clocks and limits, it has only the lowest value of all ranks. Different versions and devices are listed with their
    ranks. If there are several machines, ``nodes`` lists them.
    """
    hosts = sorted({one["host"] for one in facts})
    together = {name: _of_all(name, value, facts) for name, value in facts[0].items()}
    return together | ({"nodes": ",".join(hosts)} if len(hosts) > 1 else {})


def _of_all(name: str, first: str, facts: Sequence[Mapping[str, str]]) -> str:
    values = [one[name] for one in facts if name in one]
    if name == "host" or name.isupper() or len(set(values)) == 1:
        return first  # variables differ where a launcher gives each rank its own
    if name in LOWEST:
        return min(values, key=float)
    counts = {value: values.count(value) for value in sorted(set(values))}
    return ", ".join(f"{value} ({number} ranks)" for value, number in counts.items())


def _cuda(device: torch.device) -> dict[str, str]:
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return {
        "device": torch.cuda.get_device_name(device),
        "backend": "nccl",
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "nccl": version,
    }


# CPU cores: which one a rank is bound to, and how busy everybody else kept the machine.


def own_core(rank_info: RankInfo) -> int:
    """Return the number of the CPU core on which this rank runs.

    The ranks of a host get the allowed cores in order. If there are more ranks than cores, ranks share cores.
    """
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[rank_info.local_rank % len(allowed)]


def num_cores_used(rank_info: RankInfo) -> int:
    """Return the number of different cores that the ranks of this host use together. Call it before ``pin``."""
    return min(rank_info.local_world_size, len(os.sched_getaffinity(0)))


def pin(core: int) -> None:
    """Bind this process, and the threads that it starts, to one core, so that a trial uses a known number of cores."""
    os.sched_setaffinity(0, {core})


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """A reading of CPU seconds: of the whole machine since its boot, and of this process since its start.

    The difference of two readings (see ``since``) has the CPU seconds between them.
    """

    machine_busy_s: float
    machine_total_s: float
    own_s: float

    @classmethod
    def now(cls, helpers: Iterable[int] = ()) -> CpuTime:
        """Read the CPU seconds of the machine since its boot and of this process since its start from the kernel.

        Args:
            helpers: Ids of processes that work for this process. Their CPU time is added to the time of this process.
        """
        busy_s, total_s = machine_cpu_s()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        own_s = usage.ru_utime + usage.ru_stime + sum(map(process_cpu_s, helpers))
        return cls(machine_busy_s=busy_s, machine_total_s=total_s, own_s=own_s)

    def since(self, start: CpuTime) -> CpuTime:
        """Return the CPU seconds between an earlier reading (``start``) and this one."""
        return CpuTime(
            machine_busy_s=self.machine_busy_s - start.machine_busy_s,
            machine_total_s=self.machine_total_s - start.machine_total_s,
            own_s=self.own_s - start.own_s,
        )

    def foreign_share(self, ranks_s: float) -> float:
        """Return the fraction of the machine's CPU time, 0..1, that other processes than the ranks used.

        Args:
            ranks_s: Sum of the CPU seconds of all ranks on this host.
        """
        if self.machine_total_s <= 0.0:
            return 0.0  # shorter than a tick of the kernel's clock
        return min(max((self.machine_busy_s - ranks_s) / self.machine_total_s, 0.0), 1.0)
