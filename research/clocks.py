"""The clock that devices sustain, from that of a sister of the same chip and the power that each may draw.

A step of training draws more than the limit allows at the clock of a short benchmark, so the clock sinks until it does
not. What depends on the clock, the power above that of an idle but warm device and its memory, grows like its power of
2.2: with the clock itself and the square of a voltage that grows more slowly than it. The data sheets of B200 (1,000 W)
and GB200 (1,200 W) agree, with 260 W for the
latter: (940 / 740) ^ (1 / 2.2) = 1.11, as 2,500 over 2,250 TFLOP/s.

``python -m research.clocks`` prints the shares of the benchmark's rate for ``catalog/accelerators.toml``, each beside
what stands there; ``research/fit_stacks.py`` replaces them where runs were published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.kernels import kernels_for
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import Precision

EXPONENT = 2.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Accelerators of one chip."""

    fitted: str
    """Whose clock was fitted to runs."""
    others: tuple[str, ...]
    """Whose clock follows from it."""
    idle_w: float
    """What the device draws whatever its clock: leakage, memory, links. From idle devices in nvidia-smi (60 to 100 W on
    A100 and H100, 170 to 240 W on B300 and GB300) and 50 to 80 W more for busy memory; assumptions."""


CHIPS = (
    Chip(fitted="a100-80gb", others=("a100-40gb", "a100-64gb", "a800"), idle_w=100.0),
    Chip(fitted="h100-sxm", others=("h100-96gb", "h100-nvl", "h100-pcie", "gh200", "h200", "h20"), idle_w=155.0),
    Chip(fitted="b200", others=("gb200", "b300", "gb300"), idle_w=260.0),
)


def sustained_share(device: Accelerator, fitted: Accelerator, idle_w: float) -> float:
    """Share of a short benchmark's rate that the device keeps, from that of another with the same chip."""
    multiprocessors = _multiprocessors(device) / _multiprocessors(fitted)
    clock = device.bf16_flop_per_s / fitted.bf16_flop_per_s / multiprocessors
    needed_w = (fitted.power_w - idle_w) / fitted.sustained_share**EXPONENT * multiprocessors * clock**EXPONENT
    return float(min(1.0, ((device.power_w - idle_w) / needed_w) ** (1 / EXPONENT)))


def _multiprocessors(device: Accelerator) -> int:
    return kernels_for(device).gemm[Precision.BF16].num_multiprocessors


def report() -> Iterator[str]:
    """A line for each device: its power limit, the share by this law and the catalog's."""
    for chip in CHIPS:
        fitted = load_accelerator(chip.fitted)
        for name in (chip.fitted, *chip.others):
            device = load_accelerator(name)
            share = sustained_share(device, fitted, chip.idle_w)
            yield f"{name:12s} {device.power_w:5.0f} W  {share:.2f}  catalog {device.sustained_share:.2f}"


if __name__ == "__main__":
    print("\n".join(report()))  # noqa: T201  # a benchmark prints its result
