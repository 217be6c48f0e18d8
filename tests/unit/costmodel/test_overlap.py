"""What computation hides."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.overlap import exposed_s, overlap_share
from tests.builders import cpu_cluster, h100


def exposed(wire_s: float, window_s: float, num_parts: float) -> float:
    return float(exposed_s(np.array([wire_s]), np.array([window_s]), np.array([num_parts]))[0])


def test_without_a_window_everything_is_exposed() -> None:
    assert exposed(2.0, 0.0, 4) == 2.0


def test_the_last_part_is_always_exposed() -> None:
    assert exposed(2.0, 100.0, 4) == 0.5


def test_what_is_longer_than_the_window_sticks_out() -> None:
    # 3 - 1 is exact in binary
    assert exposed(3.0, 1.0, 4) == 2.0


def test_one_part_cannot_hide() -> None:
    assert exposed(2.0, 100.0, 1) == 2.0


@pytest.mark.parametrize(("kind", "share"), [("cuda", 1.0), ("rocm", 1.0), ("cpu", 0.0)])
def test_a_core_that_computes_cannot_send_meanwhile(kind: str, share: float) -> None:
    accelerator = cpu_cluster().accelerator if kind == "cpu" else h100(kind=kind)
    assert overlap_share(accelerator) == share
