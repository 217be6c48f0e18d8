"""Mean power of an accelerator over the measured steps."""

from __future__ import annotations

import time
from dataclasses import dataclass

from trials.measurement.nvml import Gpu

__all__ = ["PowerMeter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMeter:
    """Started at one moment, read at another. NVML's energy counter stands behind it, so no thread disturbs a rank.

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
