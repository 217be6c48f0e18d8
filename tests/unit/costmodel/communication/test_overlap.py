"""What computation hides of collectives."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.communication.overlap import exposed_s, overlap_share
from tests.builders import cpu_cluster, h100


def exposed(wire_s: float, window_s: float, num_parts: float) -> float:
    return float(exposed_s(np.array([wire_s]), np.array([window_s]), np.array([num_parts]))[0])


def bucketed_s(wire_s: float, window_s: float, num_parts: int) -> float:
    """The same by events: a part is reduced when it is computed and the part before it is reduced."""
    reduced_s = 0.0
    for part in range(1, num_parts + 1):
        reduced_s = max(reduced_s, part * window_s / num_parts) + wire_s / num_parts
    return reduced_s - window_s


def prefetched_s(wire_s: float, window_s: float, num_parts: int) -> float:
    """The same by events: a part is computed when it is gathered, and the next is gathered meanwhile."""
    clock_s = wire_s / num_parts
    for _ in range(num_parts - 1):
        clock_s += max(window_s / num_parts, wire_s / num_parts)
    return clock_s + window_s / num_parts - window_s


def test_without_a_window_everything_is_exposed() -> None:
    assert exposed(2.0, 0.0, 4) == 2.0


def test_the_last_part_is_always_exposed() -> None:
    assert exposed(2.0, 100.0, 4) == 0.5


def test_one_part_cannot_hide() -> None:
    assert exposed(2.0, 100.0, 1) == 2.0


@pytest.mark.parametrize("wire_s", [0.0, 0.5, 1.0, 1.3, 7.0])
@pytest.mark.parametrize("num_parts", [1, 2, 5, 33])
def test_bucketed_reductions_and_prefetched_gathers_follow_one_law(wire_s: float, num_parts: int) -> None:
    # sums of the same terms in another order: rounding only
    assert exposed(wire_s, 1.0, num_parts) == pytest.approx(bucketed_s(wire_s, 1.0, num_parts), abs=1e-12)
    assert exposed(wire_s, 1.0, num_parts) == pytest.approx(prefetched_s(wire_s, 1.0, num_parts), abs=1e-12)


@pytest.mark.parametrize(("kind", "share"), [("cuda", 1.0), ("rocm", 1.0), ("cpu", 0.0)])
def test_a_core_that_computes_cannot_send_meanwhile(kind: str, share: float) -> None:
    accelerator = cpu_cluster().accelerator if kind == "cpu" else h100(kind=kind)
    assert overlap_share(accelerator) == share
