"""The core that ranks of a trial import needs no package but annotated-types."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["codec", "layout", "measurement", "trial_spec", "profile", "dry_run"])
def test_a_module_that_ranks_import_brings_neither_numpy_nor_pydantic(module: str) -> None:
    script = f"import sys, autotuner.core.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"numpy", "pydantic", "pydantic_core"}.isdisjoint(done.stdout.split())
