"""How delegates end: with their rank, however that ends, and not without a word."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.trials.pipelines.rank import heard
from tests.trials.zygote import Zygote

TASKS = "tests.trials.pipelines.tasks"


def running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("task", "word"), [pytest.param("fails", "this stage is broken", marks=pytest.mark.oracle), ("is_killed", "")]
)
def test_delegates_and_their_memory_are_gone_with_a_rank_that_fails_or_is_killed(
    task: str, word: str, zygote: Zygote, tmp_path: Path
) -> None:
    shared = set(Path("/dev/shm").iterdir())
    run = zygote.have_done(f"{TASKS}:{task}", tmp_path, 3)
    assert 0 not in run.exit_codes
    assert word in run.logs[1]
    pids = [pid for rank in range(3) for pid in json.loads((tmp_path / f"{rank}.delegates").read_text())]
    assert len(pids) == 8  # two directions, of one neighbour at the ends and two between
    deadline = time.monotonic() + PATIENCE_S
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(running, pids))
    assert {path.name for path in set(Path("/dev/shm").iterdir()) - shared if "slots" in path.name} == set()


def test_a_rank_whose_delegate_is_killed_says_so(zygote: Zygote, tmp_path: Path) -> None:
    run = zygote.have_done(f"{TASKS}:loses_a_delegate", tmp_path, 3)
    assert run.exit_codes == (0, 0, 0), run.logs
    words = heard(tmp_path, 3)
    assert words[1] == "a delegate towards pipeline rank 0 failed: its process ended"
    assert "pipeline rank 1 failed" in words[0]
