"""Processes beside the service that compute: whose turn it is, and how they are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psutil
import pytest

from autotuner.core.errors import Busy, NotFound, TooCostly
from autotuner.service.compute import ComputePool, Limits, Turns, asked_by, asker
from tests.patience import PATIENCE_S
from tests.unit.service.questions import dies, fills, fork_of, held_bytes, refuses, says_much, slips, spins, waits

# ---------------------------------------------------------------- turns
LONG_S = 600.0
"""No test waits so long for a turn."""


class Asked:
    """A thread that asks for a turn and holds it until it is told to end."""

    def __init__(self, turns: Turns, caller: str, *, is_search: bool) -> None:
        self.caller = caller
        self.refusal: Busy | None = None
        self.began, self.released = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._take, args=(turns, is_search))
        self._thread.start()

    def _take(self, turns: Turns, is_search: bool) -> None:
        try:
            with asked_by(self.caller), turns.take(is_search=is_search):
                self.began.set()
                self.released.wait()
        except Busy as refusal:
            self.refusal = refusal

    def end(self) -> None:
        self.released.set()
        self._thread.join()


class Crowd:
    """Callers who ask one after the other."""

    def __init__(self, num_at_once: int, max_waiting: int) -> None:
        self.turns = Turns(num_at_once, max_waiting=max_waiting, seconds=LONG_S)
        self.asked: list[Asked] = []

    def ask(self, caller: str, *, is_search: bool = False) -> Asked:
        """Return once the caller computes, waits or is refused."""
        before = self.turns.callers()
        asked = Asked(self.turns, caller, is_search=is_search)
        self.asked.append(asked)
        eventually(lambda: asked.refusal is not None or self.turns.callers() != before)
        return asked

    def running(self) -> Asked:
        """The only one that computes, once its thread knows."""
        eventually(lambda: any(each.began.is_set() for each in self.asked))
        (one,) = [each for each in self.asked if each.began.is_set()]
        return one

    def end(self, asked: Asked) -> None:
        self.asked.remove(asked)
        asked.end()

    def order(self) -> str:
        """First letters of the callers in the order in which they compute, one at a time."""
        found = ""
        while self.asked:
            one = self.running()
            found += one.caller[0]
            self.end(one)
        return found


@contextmanager
def crowd(num_at_once: int = 1, max_waiting: int = 16) -> Iterator[Crowd]:
    crowd = Crowd(num_at_once, max_waiting)
    try:
        yield crowd
    finally:
        for each in crowd.asked:
            each.released.set()
        for each in crowd.asked:
            each.end()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_one_caller_has_every_place_and_all_the_room_to_wait() -> None:
    with crowd(2, max_waiting=3) as here:
        for _ in range(5):
            here.ask("ada")
        assert here.turns.callers() == (("ada",) * 2, ("ada",) * 3)
        assert "5 computations are already running or waiting" in str(here.ask("ada").refusal)


def test_callers_take_turns_and_who_comes_last_is_served_before_another_s_queue() -> None:
    with crowd() as here:
        for caller in ("ada", "ada", "ada", "bob"):
            here.ask(caller)
        assert here.order() == "abaa"
    with crowd() as here:
        for caller in ("ada",) * 4 + ("bob",) * 3 + ("cyd",) * 2:
            here.ask(caller)
        assert here.order() == "abcabcaba"


def test_a_caller_who_computes_already_waits_for_one_who_does_not() -> None:
    with crowd(2) as here:
        first, *_ = [here.ask("ada") for _ in range(3)]
        here.ask("bob")
        here.end(first)
        eventually(lambda: here.turns.callers() == (("ada", "bob"), ("ada",)))


def test_the_caller_with_most_waiting_computations_makes_room_in_a_full_queue() -> None:
    with crowd(1, max_waiting=4) as here:
        asked = [here.ask("ada") for _ in range(5)]
        here.ask("bob")
        eventually(lambda: asked[-1].refusal is not None)
        assert "removed for another caller" in str(asked[-1].refusal)
        here.ask("bob")
        assert here.turns.callers() == (("ada",), ("ada", "ada", "bob", "bob"))
        assert "5 computations are already running or waiting" in str(here.ask("bob").refusal)


def test_a_search_waits_for_its_place_and_what_is_short_does_not_wait_for_it() -> None:
    with crowd(2) as here:
        first, _ = here.ask("ada", is_search=True), here.ask("ada", is_search=True)
        here.ask("ada")
        assert here.turns.callers() == (("ada", "ada"), ("ada",))
        here.end(first)
        eventually(lambda: here.turns.callers() == (("ada", "ada"), ()))


def test_a_turn_that_is_not_free_in_time_is_given_up() -> None:
    turns = Turns(1, max_waiting=1, seconds=0.0)
    with turns.take(is_search=False):
        with (
            pytest.raises(Busy, match=("the service was too busy to compute this within 0 s")),
            turns.take(is_search=False),
        ):
            pass
        assert turns.callers() == (("",), ())
    assert turns.callers() == ((), ())


def test_the_caller_is_known_inside_its_context_alone() -> None:
    with asked_by("ada"):
        with asked_by("bob"):
            assert asker() == "bob"
        assert asker() == "ada"
    assert asker() == ""


# ---------------------------------------------------------------- pool
def pool_of(num_at_once: int, seconds: float = 60.0) -> ComputePool:
    return ComputePool(num_at_once, Limits(seconds=seconds, memory_bytes=500_000_000))


@pytest.fixture(scope="module")
def pool() -> Iterator[ComputePool]:
    pool = pool_of(2)
    yield pool
    pool.close()


def processes_left(parent: int) -> list[psutil.Process]:
    return psutil.Process(parent).children(recursive=True)


def kill_processes_of(server: int) -> None:
    for process in processes_left(server):
        with suppress(psutil.NoSuchProcess):  # it ended between the two lines
            process.kill()
    time.sleep(0.01)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_answer_of_any_size_is_computed_in_another_process(pool: ComputePool) -> None:
    assert pool.ask(fork_of, 1) not in (os.getpid(), os.getppid())
    assert pool.search(held_bytes, 100_000_000) == 100_000_000
    assert len(pool.ask(bytes, 30_000_000)) == 30_000_000
    assert pool.ask(says_much) == 1


def test_errors_for_the_caller_and_internal_errors_keep_their_types(pool: ComputePool) -> None:
    with pytest.raises(NotFound, match="no model 'x'; did you mean 'nearest'") as raised:
        pool.ask(refuses, name="x")
    assert (raised.value.key, raised.value.nearest) == ("x", "nearest")
    with pytest.raises(RuntimeError, match=r"(?s)in slips\n.*AssertionError: an error of ours"):
        pool.ask(slips)


def test_a_compute_subprocess_that_fills_its_memory_or_is_killed_is_reported_and_the_next_is_answered(
    pool: ComputePool,
) -> None:
    with pytest.raises(
        TooCostly,
        match=(
            r"more than 500.* MB of memory; ask for less, such as a "
            r"smaller cluster or fewer values"
        ),
    ):
        pool.ask(fills)
    assert pool.ask(waits, 0.0) == 0.0
    assert pool.standing.num_ended >= 1
    with pytest.raises(TooCostly, match="was ended"):
        pool.ask(dies)
    assert pool.ask(waits, 0.0) == 0.0


def test_a_new_fork_server_replaces_a_killed_one(pool: ComputePool) -> None:
    first = pool.ask(fork_of, 1)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE)
    assert pool.ask(fork_of, 1) != first


def test_a_computation_over_its_time_limit_is_ended_inside_c_code() -> None:
    pool = pool_of(1, seconds=0.5)
    try:
        pool.ask(fork_of, 1)  # importing does not count
        with pytest.raises(
            TooCostly,
            match=(
                r"longer than 0\.5 s; ask for less, such as a smaller "
                r"cluster or fewer values"
            ),
        ):
            pool.ask(spins)
        server = pool.ask(fork_of, 1)
        wait_until(lambda: not processes_left(server))
    finally:
        pool.close()


def test_searches_leave_room_for_what_takes_a_moment() -> None:
    pool = pool_of(2)
    try:
        server = pool.ask(fork_of, 1)
        with ThreadPoolExecutor(3) as threads:
            searches = [threads.submit(pool.search, waits, 600.0) for _ in range(3)]
            wait_until(lambda: pool.standing.num_running == 1 and pool.standing.num_waiting == 2)
            assert pool.ask(waits, 0.0) == 0.0
            while not all(search.done() for search in searches):
                kill_processes_of(server)
    finally:
        pool.close()


def test_more_than_may_wait_are_told_to_come_back() -> None:
    pool = pool_of(1)
    try:
        server = pool.ask(fork_of, 1)
        with ThreadPoolExecutor(20) as threads:
            asked = [threads.submit(pool.ask, waits, 600.0) for _ in range(17)]
            wait_until(lambda: pool.standing.num_waiting == 16)
            with pytest.raises(Busy, match="17 computations are already running or waiting") as busy:
                pool.ask(waits, 0.0)
            assert busy.value.retry_after_s > 0
            while not all(one.done() for one in asked):
                kill_processes_of(server)
    finally:
        pool.close()


def test_a_request_that_waits_too_long_is_told_to_retry() -> None:
    pool = pool_of(1, seconds=0.5)
    try:
        with ThreadPoolExecutor(3) as threads:
            asked = [threads.submit(pool.ask, waits, 600.0) for _ in range(3)]
            told = [one.exception() for one in asked]
        assert any(isinstance(error, TooCostly) for error in told)
        assert any("the service was too busy to compute this within 0.5 s" in str(error) for error in told)
    finally:
        pool.close()


def test_compute_subprocesses_end_with_a_service_that_is_killed() -> None:
    script = (
        "import threading; from tests.unit.service.test_compute import pool_of, fork_of, waits; pool = pool_of(2);"
        "print(pool.ask(fork_of, 1), flush=True); pool.ask(waits, 600.0)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        server = psutil.Process(int(service.stdout.readline()))
        wait_until(lambda: bool(server.children()))
        processes = server.children()
        service.kill()
    wait_until(lambda: not any(one.is_running() for one in [server, *processes]))
