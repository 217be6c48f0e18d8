from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def losses(*arguments: str) -> list[float]:
    """What the example prints on four ranks, which play two nodes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    example = [str(ROOT / "examples" / "two_level_all_reduce.py"), "--ranks-per-node", "2", "--steps", "4"]
    found = subprocess.run(
        [*command, *example, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=110.0,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert found.returncode == 0, found.stderr
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", found.stdout)]


@pytest.mark.oracle
def test_the_example_trains_alike_on_one_level_and_on_two() -> None:
    flat, two_level = losses("--hierarchy", "flat"), losses("--hierarchy", "two_level", "--algorithm", "ring")
    assert len(flat) == 4
    # printed to 1e-5; sums in another order differ by 1e-7 of a loss near 1
    assert two_level == pytest.approx(flat, abs=2e-5)
