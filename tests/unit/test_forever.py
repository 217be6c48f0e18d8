"""What is done again and again goes on whatever a step raises."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from autotuner.core.errors import StoreUnavailable
from autotuner.runs.worker import forever


def test_a_step_that_raises_is_done_again_until_somebody_says_stop() -> None:
    done: list[str] = []
    shutdown = threading.Event()

    def steps() -> Iterator[object]:
        done.append("away")
        yield StoreUnavailable("no database")
        done.append("broken")
        yield ValueError("a bug")
        done.append("last")
        shutdown.set()
        yield True

    coming = steps()

    def step() -> bool:
        found = next(coming)
        if isinstance(found, Exception):
            raise found
        return True

    forever(step, poll_s=0.0, shutdown=shutdown, name="test")
    assert done == ["away", "broken", "last"]


def test_while_there_is_something_to_do_nothing_waits() -> None:
    shutdown = threading.Event()
    left = [False, True, True]

    def step() -> bool:
        if len(left) == 1:
            shutdown.set()
        return left.pop()

    forever(step, poll_s=3600.0, shutdown=shutdown, name="test")  # the last wait is ended by the stop
    assert not left
