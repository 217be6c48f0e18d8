from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.oracle
def test_the_example_finds_the_link_that_turned_slow_and_goes_on_by_another_plan() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    ran = subprocess.run(
        [*command, str(ROOT / "examples" / "resilient_pipeline.py"), "--steps", "18", "--slow", "10", "--well", "18"],
        check=False,
        capture_output=True,
        text=True,
        timeout=110.0,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    assert "step 17" in ran.stdout
    assert "link_slow: stages (1, 2)" in ran.stdout
    assert "replanned" in ran.stdout
