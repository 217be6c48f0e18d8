"""Services killed with retunes due, started and ending: a few of the kills that ``bench.retune_kills`` makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import postgres_database

NUM_KILLS = 6


def killed(url: str) -> str:
    """What the benchmark prints; it ends with an error if the account does not balance."""
    command = [sys.executable, "-m", "bench.retune_kills", "--kills", str(NUM_KILLS), "--retunes", "3"]
    ended = subprocess.run([*command, "--database", url], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.oracle  # a quarter of a minute
def test_no_due_time_is_lost_or_run_twice_on_sqlite_when_services_are_killed(tmp_path: Path) -> None:
    assert f"survived {NUM_KILLS} of {NUM_KILLS}" in killed(f"sqlite:///{tmp_path}/store.db")


@pytest.mark.oracle  # a quarter of a minute
def test_no_due_time_is_lost_or_run_twice_on_postgresql_when_services_are_killed(postgres: str) -> None:
    with postgres_database(postgres) as url:
        assert f"survived {NUM_KILLS} of {NUM_KILLS}" in killed(url)
