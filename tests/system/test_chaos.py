"""Faults at random moments: a few of those that ``python -m tests.chaos`` has strike."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.databases import StoreName

SEED = 14


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's, which is closed to the user that PostgreSQL becomes."""
    with tempfile.TemporaryDirectory(prefix="autotuner-chaos-") as path:
        Path(path).chmod(0o755)
        yield Path(path) / "all"


def printed(store: StoreName, folder: Path, *arguments: str) -> str:
    """What is said of the faults; it ends with an error if one is not survived."""
    command = [sys.executable, "-m", "tests.chaos", "--store", store, "--seed", str(SEED), "--folder", str(folder)]
    ended = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_sweep_survives_kills_stops_and_locks_on_one_file(folder: Path) -> None:
    kinds = ("kill_service", "kill_worker", "stop_member", "hold_lock")
    said = printed("sqlite", folder, "--brief", "--faults", "4", *(f"--kind={kind}" for kind in kinds))
    assert "survived 4 of 4" in said


@pytest.mark.oracle  # a minute
def test_a_sweep_survives_whatever_happens_to_postgresql_and_the_way_to_it(folder: Path) -> None:
    kinds = (
        "kill_postgresql",
        "stop_postgresql",
        "cut_connections",
        "hold_connections",
        "kill_rank",
        "kill_fork server",
    )
    said = printed("postgresql", folder, "--faults", "6", *(f"--kind={kind}" for kind in kinds))
    assert "survived 6 of 6" in said
