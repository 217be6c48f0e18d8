from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from autotuner.launch.processes import ATTEMPT_ID, end_all


@pytest.fixture
def process() -> Iterator[psutil.Process]:
    """A process of the trial ``sleeping``."""
    with subprocess.Popen(["sleep", "60"], env={**os.environ, ATTEMPT_ID: "sleeping"}) as sleeping:
        yield psutil.Process(sleeping.pid)
        sleeping.kill()


def test_processes_that_leave_when_they_are_told_to_are_gone(process: psutil.Process) -> None:
    assert end_all("sleeping", grace_s=5.0) == ()
    assert process.status() == psutil.STATUS_ZOMBIE


def test_a_process_that_outlasts_every_signal_is_given_up_and_named(process: psutil.Process) -> None:
    """As one does that a driver keeps: here it only looks as if it were there still."""
    assert end_all("sleeping", grace_s=0.0, living=lambda attempt_id: [process]) == (process.pid,)
