"""PlanRun: one plan that this process computes, under a lease."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event as Flag
from threading import Thread

import structlog

from autotuner.aside.asides import Asides
from autotuner.core import wire
from autotuner.core.errors import Busy, LeaseLost, StoreUnavailable
from autotuner.ports import Clock, PlanStore
from autotuner.search.planning.plan import plan
from autotuner.search.planning.request import PlanRequest

_SIGN_S = 1.0
"""How old what others read of its progress may be; far below the length of a lease."""

_log = structlog.get_logger(__name__)


class PlanRun:
    """Computes a plan that was claimed just now, and tells meanwhile how far it is.

    Args:
        store: Where the plan is.
        owner: Name of this process.
        lease_s: For how long it may be silent before another takes the plan over.
    """

    def __init__(self, plan_id: str, store: PlanStore, clock: Clock, *, owner: str, lease_s: float) -> None:
        self._id = plan_id
        self._store = store
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s
        self._progress = (0, 0)
        self._is_lost = False
        self._stop = Flag()

    def request_stop(self) -> None:
        """Have it end with the piece of work that it is at, and give the plan back."""
        self._stop.set()

    def run(self, request: PlanRequest, asides: Asides) -> None:
        """Store what the plan says; where there is nothing to store, give it back.

        Raises:
            InvalidInput: The question cannot be answered as it is; and other errors of ``plan`` and of the store.
        """
        try:
            with self._told():
                answer = plan(request, asides, self._hear)
            self._store.answer(self._id, wire.dumps(answer), owner=self._owner, now=self._clock.now())
        except LeaseLost:
            _log.warning("plan.lease_lost", plan_id=self._id)
        except Exception:
            with suppress(LeaseLost, StoreUnavailable):  # others see in time that nobody computes it
                self._store.release(self._id, owner=self._owner, now=self._clock.now())
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell how far it is, from a thread of its own, for as long as the block runs and once more at its end."""
        done = Flag()

        def tell() -> None:
            while not done.wait(_SIGN_S):
                self._tell()

        thread = Thread(target=tell, name="autotuner-plan-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._tell()

    def _tell(self) -> None:
        try:
            self._store.tell(self._id, *self._progress, owner=self._owner, now=self._clock.now(), lease_s=self._lease_s)
        except LeaseLost:
            self._is_lost = True
        except StoreUnavailable as error:  # work goes on; the lease decides later whether its answer still counts
            _log.warning("plan.store_unavailable", error=str(error))

    def _hear(self, done: int, known: int) -> None:
        self._progress = (done, known)
        if self._is_lost:
            raise LeaseLost(self._id, self._owner)
        if self._stop.is_set():
            raise Busy("this process of the service stops; ask again", retry_after_s=1)
