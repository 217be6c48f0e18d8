from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def trained(exchange: str) -> tuple[float, float]:
    """KiB per step and loss, as the example says them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    ran = subprocess.run(
        [*command, str(ROOT / "examples" / "lossy_exchange.py"), "--exchange", exchange],
        check=False,
        capture_output=True,
        text=True,
        timeout=110.0,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    figures = re.search(r"([\d.]+) KiB .* loss on both halves ([\d.]+)", ran.stdout)
    assert figures is not None, ran.stdout
    return float(figures[1]), float(figures[2])


@pytest.mark.oracle
def test_the_example_teaches_replicas_what_others_saw_by_a_thirteenth_of_the_bytes() -> None:
    sent_kib, loss = trained("demo")
    _, loss_of_none = trained("none")
    assert sent_kib == pytest.approx(2.56, abs=0.01)  # four components of five bytes of each of 131 chunks
    assert loss < 0.5 * loss_of_none
