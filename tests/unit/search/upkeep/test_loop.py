"""The loop of upkeep goes on whatever a step raises."""

from __future__ import annotations

import threading

from autotuner.errors import StoreUnavailable
from autotuner.search.upkeep.loop import UpkeepLoop


def test_a_step_that_raises_keeps_no_other_from_being_done_and_is_done_again() -> None:
    done: list[str] = []
    shutdown = threading.Event()

    def away() -> None:
        done.append("away")
        raise StoreUnavailable("no database")

    def broken() -> None:
        done.append("broken")
        raise ValueError("a bug")

    def last() -> None:
        done.append("last")
        if len(done) == 6:
            shutdown.set()

    UpkeepLoop([away, broken, last], shutdown=shutdown).run_forever(0.0)
    assert done == ["away", "broken", "last"] * 2
