"""The program that keeps a trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from autotuner.host import supervisor
from tests.patience import PATIENCE_S


def kept(*command: str, limit_bytes: int = 0, parent: int | None = None) -> subprocess.Popen[bytes]:
    arguments = [str(parent or os.getpid()), str(limit_bytes), *command]
    return subprocess.Popen([sys.executable, "-I", "-S", supervisor.__file__, *arguments], stderr=subprocess.PIPE)


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("program", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15), ("kill -6 $$", -6)]
)
def test_the_supervisor_ends_with_the_exit_code_of_its_command(program: str, code: int) -> None:
    with kept("/bin/sh", "-c", program) as process:
        assert process.wait(PATIENCE_S) == code


def test_the_supervisor_starts_nothing_for_a_dead_launcher_and_names_a_program_that_cannot_start() -> None:
    with kept("/no/such/program") as process:
        _, errors = process.communicate(timeout=10.0)
    assert process.returncode == supervisor.CANNOT_START
    assert b"/no/such/program" in errors
    with kept("/bin/sh", "-c", "exit 0", parent=1) as process:
        assert process.wait(PATIENCE_S) == supervisor.CANNOT_START


def test_processes_that_a_command_left_behind_are_ended() -> None:
    with kept("/bin/sh", "-c", "(trap '' HUP; setsid sleep 600 & echo $! >&2) ; exit 5") as process:
        _, said = process.communicate(timeout=10.0)  # its end is the end of the last process that could write
    assert process.returncode == 5
    assert not psutil.pid_exists(int(said))


def test_asked_to_end_it_ends_all_that_it_keeps() -> None:
    with kept("/bin/sh", "-c", "sleep 600 & sleep 600") as process:
        below = psutil.Process(process.pid)
        until(lambda: len(below.children(recursive=True)) >= 2)
        children = below.children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_the_supervisor_ends_its_children_when_its_launcher_is_killed() -> None:
    launcher = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-I', '-S', sys.argv[1], str(os.getpid()), '0', 'sleep', '600'])\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", launcher, supervisor.__file__])
    below = psutil.Process(process.pid)
    until(lambda: any(child.name() == "sleep" for child in below.children(recursive=True)))
    children = below.children(recursive=True)
    process.kill()
    process.wait()
    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


def test_a_limit_holds_for_every_process_of_the_command() -> None:
    program = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'bytearray(10**9)']))"
    with kept(sys.executable, "-c", program, limit_bytes=10**8) as process:
        _, errors = process.communicate(timeout=20.0)
    assert process.returncode == 1
    assert b"MemoryError" in errors
