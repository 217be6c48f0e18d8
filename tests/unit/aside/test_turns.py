"""Turns are shared between callers; one caller alone has all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from autotuner.core.errors import Busy
from autotuner.service.compute import Turns, asked_by, asker

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
        assert "5 computations run or wait already" in str(here.ask("ada").refusal)


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


def test_where_too_many_wait_the_caller_with_most_makes_room() -> None:
    with crowd(1, max_waiting=4) as here:
        asked = [here.ask("ada") for _ in range(5)]
        here.ask("bob")
        eventually(lambda: asked[-1].refusal is not None)
        assert "makes room for another caller's" in str(asked[-1].refusal)
        here.ask("bob")
        assert here.turns.callers() == (("ada",), ("ada", "ada", "bob", "bob"))
        assert "5 computations run or wait already" in str(here.ask("bob").refusal)


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
        with pytest.raises(Busy, match="nothing was free to compute this within 0 s"), turns.take(is_search=False):
            pass
        assert turns.callers() == (("",), ())
    assert turns.callers() == ((), ())


def test_the_caller_is_known_inside_its_context_alone() -> None:
    with asked_by("ada"):
        with asked_by("bob"):
            assert asker() == "bob"
        assert asker() == "ada"
    assert asker() == ""
