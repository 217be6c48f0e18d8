"""Asides as processes: they answer, are held to their time and memory, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from autotuner.core.errors import Busy, NotFound, TooCostly
from autotuner.service.compute import AsidePool, Limits
from tests.patience import PATIENCE_S
from tests.unit.aside.questions import dies, fills, fork_of, held_bytes, refuses, says_much, slips, spins, waits


def pool_of(num_at_once: int, seconds: float = 60.0) -> AsidePool:
    return AsidePool(num_at_once, Limits(seconds=seconds, memory_bytes=500_000_000))


@pytest.fixture(scope="module")
def pool() -> Iterator[AsidePool]:
    pool = pool_of(2)
    yield pool
    pool.close()


def processes_left(parent: int) -> list[psutil.Process]:
    return psutil.Process(parent).children(recursive=True)


def kill_asides_of(server: int) -> None:
    for aside in processes_left(server):
        with suppress(psutil.NoSuchProcess):  # it ended between the two lines
            aside.kill()
    time.sleep(0.01)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_answer_of_any_size_is_computed_in_another_process(pool: AsidePool) -> None:
    assert pool.ask(fork_of, 1) not in (os.getpid(), os.getppid())
    assert pool.search(held_bytes, 100_000_000) == 100_000_000
    assert len(pool.ask(bytes, 30_000_000)) == 30_000_000
    assert pool.ask(says_much) == 1


def test_what_a_caller_is_to_hear_is_raised_as_it_was_and_an_error_of_ours_stays_one(pool: AsidePool) -> None:
    with pytest.raises(NotFound, match="no model 'x'; did you mean 'nearest'") as raised:
        pool.ask(refuses, name="x")
    assert (raised.value.key, raised.value.nearest) == ("x", "nearest")
    with pytest.raises(RuntimeError, match=r"(?s)in slips\n.*AssertionError: an error of ours"):
        pool.ask(slips)


def test_an_aside_that_fills_its_memory_or_is_killed_is_told_and_the_next_is_answered(pool: AsidePool) -> None:
    with pytest.raises(TooCostly, match=r"more than 500.* MB of memory; ask for less"):
        pool.ask(fills)
    assert pool.ask(waits, 0.0) == 0.0
    assert pool.standing.num_ended >= 1
    with pytest.raises(TooCostly, match="was ended"):
        pool.ask(dies)
    assert pool.ask(waits, 0.0) == 0.0


def test_where_the_process_that_is_forked_is_killed_another_takes_its_place(pool: AsidePool) -> None:
    first = pool.ask(fork_of, 1)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE)
    assert pool.ask(fork_of, 1) != first


def test_what_takes_longer_than_it_may_is_ended_in_the_middle_of_c_code() -> None:
    pool = pool_of(1, seconds=0.5)
    try:
        pool.ask(fork_of, 1)  # importing does not count
        with pytest.raises(TooCostly, match=r"longer than 0\.5 s; ask for less"):
            pool.ask(spins)
        server = pool.ask(fork_of, 1)
        eventually(lambda: not processes_left(server))
    finally:
        pool.close()


def test_searches_leave_room_for_what_takes_a_moment() -> None:
    pool = pool_of(2)
    try:
        server = pool.ask(fork_of, 1)
        with ThreadPoolExecutor(3) as threads:
            searches = [threads.submit(pool.search, waits, 600.0) for _ in range(3)]
            eventually(lambda: pool.standing.num_running == 1 and pool.standing.num_waiting == 2)
            assert pool.ask(waits, 0.0) == 0.0
            while not all(search.done() for search in searches):
                kill_asides_of(server)
    finally:
        pool.close()


def test_more_than_may_wait_are_told_to_come_back() -> None:
    pool = pool_of(1)
    try:
        server = pool.ask(fork_of, 1)
        with ThreadPoolExecutor(20) as threads:
            asked = [threads.submit(pool.ask, waits, 600.0) for _ in range(17)]
            eventually(lambda: pool.standing.num_waiting == 16)
            with pytest.raises(Busy, match="17 computations run or wait already") as busy:
                pool.ask(waits, 0.0)
            assert busy.value.retry_after_s > 0
            while not all(one.done() for one in asked):
                kill_asides_of(server)
    finally:
        pool.close()


def test_who_waits_longer_than_an_answer_may_take_is_told_to_come_back() -> None:
    pool = pool_of(1, seconds=0.5)
    try:
        with ThreadPoolExecutor(3) as threads:
            asked = [threads.submit(pool.ask, waits, 600.0) for _ in range(3)]
            told = [one.exception() for one in asked]
        assert any(isinstance(error, TooCostly) for error in told)
        assert any("nothing was free to compute this within 0.5 s" in str(error) for error in told)
    finally:
        pool.close()


def test_asides_end_with_a_service_that_is_killed() -> None:
    script = (
        "import threading; from tests.unit.aside.test_pool import pool_of, fork_of, waits; pool = pool_of(2);"
        "print(pool.ask(fork_of, 1), flush=True); pool.ask(waits, 600.0)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        server = psutil.Process(int(service.stdout.readline()))
        eventually(lambda: bool(server.children()))
        asides = server.children()
        service.kill()
    eventually(lambda: not any(one.is_running() for one in [server, *asides]))
