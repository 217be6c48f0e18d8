"""Leases: what a worker may do with a run while it holds the lease, and which leases of others have lapsed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from autotuner.core.errors import AutotunerError, LeaseLost, StoreUnavailable
from autotuner.core.run import RENEWALS_PER_LEASE, Finish, Lease, Run, Stop, Wish
from autotuner.core.trial import Stopped
from autotuner.runs.clock import Clock
from autotuner.runs.tracing import carried

if TYPE_CHECKING:  # a prediction needs no database
    from autotuner.store.runs import RunStore

T = TypeVar("T")

_RETRY_S = 1.0

_SHOWN_S = 1.0
"""Age of the progress that other processes read, and of a wish that the worker has not heard of, at most."""

_log = structlog.get_logger(__name__)


class StopRequested(AutotunerError):
    """Raised by an action that was ended from outside."""


class Hold:
    """A worker's hold on one run. A thread renews the lease for as long as ``kept`` is open.

    What is stored by it raises ``LeaseLost`` where another worker holds the run, if nothing else is said.

    Args:
        store: Of the run.
        clock: Tells the time.
        run: As it was claimed, just now.
        shutdown: Set when the worker is told to stop.

    Attributes:
        run: As it was heard of last: with what people want of it now.
    """

    def __init__(self, store: RunStore, clock: Clock, run: Run, shutdown: threading.Event) -> None:
        assert run.lease is not None, "it was claimed"
        self.run = run
        self._store = store
        self._clock = clock
        self._lease: Lease = run.lease
        self._shutdown = shutdown
        self._is_lost = False
        self._is_abandoned = False
        self._renewed_at = clock.monotonic()
        self._news: Any = None
        self._writing = threading.RLock()  # of signs of life, each of which may carry news

    def stop(self) -> Stop | None:
        """Return why what runs must end, or None. Cheap: it asks no store."""
        if self._is_lost:
            return Stop.LEASE_LOST
        return Stop.SHUTDOWN if self._is_abandoned or self._shutdown.is_set() else self.run.wanted

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """End every action that runs if the block raises: nobody would hear how they end."""
        try:
            yield
        except BaseException:
            self._is_abandoned = True
            raise

    def stopped(self) -> Stopped | None:
        """Return why a trial must end, or None."""
        match self.stop():
            case Stop.LEASE_LOST:
                return Stopped(reason="lease_lost")
            case Stop.SHUTDOWN:
                return Stopped(reason="shutdown")
            case Stop.CANCEL:
                return Stopped(reason="cancelled", detail="cancelled by request")
            case Stop.PAUSE:
                return Stopped(reason="paused", detail="paused by request")
            case None:
                return None

    def is_set(self) -> bool:
        """Return True if what runs must end: a hold can be handed to whoever waits for a ``threading.Event``."""
        return self.stop() is not None

    def check(self) -> None:
        """Return if what runs may go on.

        Raises:
            StopRequested: It must end.
        """
        if (why := self.stop()) is not None:
            raise StopRequested(why)

    def now(self) -> float:
        """Return the time, in epoch seconds."""
        return self._clock.now()

    def monotonic(self) -> float:
        """Return seconds of a clock that cannot be set."""
        return self._clock.monotonic()

    def report(self, progress: Any) -> None:
        """Store the progress with the next heartbeat, a second from now at most."""
        self._news = progress

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the lease from a thread until the block ends, whatever the block is busy with."""
        done = threading.Event()

        def keep() -> None:
            while not done.wait(min(_SHOWN_S, self._lease.lease_s / RENEWALS_PER_LEASE)):
                self.renew()

        thread = threading.Thread(target=carried(keep), name="autotuner-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def save(self, progress: Any) -> None:
        """Store the progress, as often as it takes."""
        with self._writing:
            self._news = None
            self._hear(self._until_stored(lambda: self._store.renew(self._lease, progress, now=self._clock.now())))

    def write(self, write: Callable[[Lease], T]) -> T:
        """Store what belongs to the run, as often as it takes."""
        return self._until_stored(lambda: write(self._lease))

    def write_once(self, write: Callable[[Lease], None]) -> None:
        """Store what belongs to the run; ``StoreUnavailable`` where it is not stored."""
        write(self._lease)

    def try_to_write(self, write: Callable[[Lease], None]) -> None:
        """Store what belongs to the run, unless the store is away or another worker holds the run; work goes on."""
        try:
            write(self._lease)
        except LeaseLost:
            self._is_lost = True
        except StoreUnavailable as error:
            _log.warning(f"{self.run.kind}.store_unavailable", error=str(error))

    def release(self, due_at: float | None = None, detail: str | None = None) -> None:
        """Give the run back unfinished."""
        now = self._clock.now()
        self._until_stored(lambda: self._store.release(self._lease, now=now, due_at=due_at, detail=detail))

    def finish(self, end: Finish, *, seen: int | None = None) -> bool:
        """End the run and return True, or return False if people want something else than was seen, and it goes on."""
        now = self._clock.now()
        if self._news is not None:
            self.save(self._news)
        is_over = self._until_stored(lambda: self._store.finish(self._lease, end, now=now, seen=seen))
        if not is_over:
            self.renew()
        return is_over

    def _hear(self, wish: Wish) -> None:
        """Learn what people want. Called by whoever has the lock of signs of life, so that no older wish comes last."""
        if wish.num_changes != self.run.num_changes:
            self.run = self._store.get(self.run.kind, self.run.id)
        self.run = replace(self.run, wanted=wish.wanted)

    def _until_stored(self, write: Callable[[], T]) -> T:
        """Write as often as it takes: a database that is away does not cost a result."""
        while True:
            try:
                return write()
            except StoreUnavailable as error:
                _log.warning(f"{self.run.kind}.store_unavailable", error=str(error))
                if self._shutdown.is_set():
                    raise
                self._clock.sleep(_RETRY_S)

    def renew_if_due(self) -> None:
        """Renew the lease if a quarter of it has passed since this was last done, whatever the thread has done."""
        now = self._clock.monotonic()
        if not self._is_lost and now - self._renewed_at >= self._lease.lease_s / RENEWALS_PER_LEASE:
            self._renewed_at = now
            self.renew()

    def renew(self) -> None:
        """Say that the worker is alive, store what was reported, and hear what people want; the next may be missed."""
        with self._writing:
            progress, self._news = self._news, None
            try:
                self._hear(self._store.renew(self._lease, progress, now=self._clock.now()))
            except LeaseLost:
                self._is_lost = True
            except StoreUnavailable as error:  # work goes on; the lease decides later whether its result still counts
                self._news = self._news or progress
                _log.warning(f"{self.run.kind}.store_unavailable", error=str(error))


class LeaseWatch:
    """The leases of others, and for how long each was seen to stand still.

    No two clocks are compared: a lease lapses once this worker has watched it for its length without a sign of life.
    The time between two looks counts for no more than a quarter of the lease, within which a holder that lives has
    renewed it. So a look after an hour of other work takes nothing from anybody, nor does the first one after an
    outage of the store, in which nobody could renew.

    Args:
        owner: The worker who looks, where it looks only while it works on nothing: a lease of its own has lapsed at
            once, since it lost sight of that work when the store was away.
    """

    def __init__(self, clock: Clock, *, owner: str | None = None) -> None:
        self._clock = clock
        self._owner = owner
        self._heard_at = clock.monotonic()
        self._silent_s: dict[Lease, float] = {}

    def lapsed(self, ask: Callable[[], Sequence[Lease]]) -> Sequence[Lease]:
        """Look once more, by asking which leases are held now, and tell which of them may be taken over."""
        passed_s = self._clock.monotonic() - self._heard_at  # asking may take long, and an answer be old when it comes
        held = ask()
        self._heard_at = self._clock.monotonic()
        self._silent_s = {lease: self._silence_s(lease, passed_s) for lease in held}
        return [lease for lease in held if lease.owner == self._owner or self._silent_s[lease] >= lease.lease_s]

    def refused(self) -> None:
        """Count anew: a store that takes no writes, though it answers, has taken none from any holder either."""
        self._silent_s = {}

    def _silence_s(self, lease: Lease, passed_s: float) -> float:
        if lease not in self._silent_s:
            return 0.0
        return self._silent_s[lease] + min(passed_s, lease.lease_s / RENEWALS_PER_LEASE)
