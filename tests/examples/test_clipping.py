from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.oracle
def test_the_example_trains_and_says_how_much_was_reduced_under_the_backward_pass() -> None:
    assert "0% of the gradients" in said("pre")
    # eight layers fill as many buckets, in all but the first two steps, which count them
    assert "of the gradients reduced" in said("bucket")


def said(clip: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ran = subprocess.run(
        [*command, str(ROOT / "examples" / "clipping.py"), "--clip", clip],
        check=False,
        capture_output=True,
        text=True,
        timeout=110.0,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
