"""Leases: how a worker changes a run while it holds the lease, and which leases of other workers have expired."""

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

if TYPE_CHECKING:  # predictions work without a database
    from autotuner.store.runs import RunStore

T = TypeVar("T")

_RETRY_S = 1.0

_SHOWN_S = 1.0
"""Maximum age of the progress that other processes read, and maximum delay until the worker sees a request to stop."""

_log = structlog.get_logger(__name__)


class StopRequested(AutotunerError):
    """Raised by an action when it ends early, because its run is cancelled or paused or the worker stops."""


class Hold:
    """A worker's exclusive right to work on one run, by a lease that another worker takes over if it is not renewed.

    Inside the context ``kept``, a thread renews the lease. Methods that write to the store raise ``LeaseLost`` if
    another worker has taken over the run, unless their text says otherwise.

    Args:
        store: The store of runs.
        clock: Source of the time.
        run: The run as it was just claimed.
        shutdown: Event that is set when the worker must stop.

    Attributes:
        run: The run as it was last read, including requests to stop or change it.
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
        self._writing = threading.RLock()  # lock of heartbeats; the answer to each may bring a new request

    def stop(self) -> Stop | None:
        """Return the reason why the running actions must end, or None if they may go on.

        It may be called often, because it does not read the store.
        """
        if self._is_lost:
            return Stop.LEASE_LOST
        return Stop.SHUTDOWN if self._is_abandoned or self._shutdown.is_set() else self.run.wanted

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Open a block of work. If it raises an error, all running actions of the run must end.

        Otherwise they would go on, although nobody receives their outcomes any more.
        """
        try:
            yield
        except BaseException:
            self._is_abandoned = True
            raise

    def stopped(self) -> Stopped | None:
        """Return why the trial must stop, in the form of a trial's outcome; None if the trial may go on."""
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
        """Return True if the running actions must end.

        Because of this method, functions that expect a ``threading.Event`` also accept a hold.
        """
        return self.stop() is not None

    def check(self) -> None:
        """Return normally if the running action may go on, else raise an error.

        Raises:
            StopRequested: The action must end.
        """
        if (why := self.stop()) is not None:
            raise StopRequested(why)

    def now(self) -> float:
        """Return the time, in epoch seconds."""
        return self._clock.now()

    def monotonic(self) -> float:
        """Return seconds that never decrease, to measure durations."""
        return self._clock.monotonic()

    def report(self, progress: Any) -> None:
        """Set the progress of the run. The next renewal of the lease, within about a second, stores it."""
        self._news = progress

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the lease from a separate thread until the block ends, even if the block is busy."""
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
        """Store the progress of the run now. If the store cannot be reached, try again until it succeeds."""
        with self._writing:
            self._news = None
            self._hear(self._until_stored(lambda: self._store.renew(self._lease, progress, now=self._clock.now())))

    def write(self, write: Callable[[Lease], T]) -> T:
        """Call ``write``, a function that writes to the store, with the lease, and return its result.

        If the store cannot be reached, this method tries again until it succeeds.
        """
        return self._until_stored(lambda: write(self._lease))

    def write_once(self, write: Callable[[Lease], None]) -> None:
        """Call ``write``, which writes to the store, with the lease, once.

        Raises:
            StoreUnavailable: The store cannot be reached.
        """
        write(self._lease)

    def try_to_write(self, write: Callable[[Lease], None]) -> None:
        """Call ``write``, which writes to the store, with the lease, once. If that fails, nothing is written or raised.

        It fails if the store is unavailable or the lease is lost. Use it for data that may be lost, such as notes.
        """
        try:
            write(self._lease)
        except LeaseLost:
            self._is_lost = True
        except StoreUnavailable as error:
            _log.warning(f"{self.run.kind}.store_unavailable", error=str(error))

    def release(self, due_at: float | None = None, detail: str | None = None) -> None:
        """Give the unfinished run back to the queue. ``detail`` is stored as the explanation.

        The run is due at once, or at ``due_at``.
        """
        now = self._clock.now()
        self._until_stored(lambda: self._store.release(self._lease, now=now, due_at=due_at, detail=detail))

    def finish(self, end: Finish, *, seen: int | None = None) -> bool:
        """End the run and return True, or return False if the run must go on.

        The run must go on if people have changed its demand (for example its budget) since version ``seen`` of the
        demand.
        """
        now = self._clock.now()
        if self._news is not None:
            self.save(self._news)
        is_over = self._until_stored(lambda: self._store.finish(self._lease, end, now=now, seen=seen))
        if not is_over:
            self.renew()
        return is_over

    def _hear(self, wish: Wish) -> None:
        """Take in the requests of users to this run.

        The caller holds the lock of heartbeats, so that an older request never replaces a newer one.
        """
        if wish.num_changes != self.run.num_changes:
            self.run = self._store.get(self.run.kind, self.run.id)
        self.run = replace(self.run, wanted=wish.wanted)

    def _until_stored(self, write: Callable[[], T]) -> T:
        """Write again and again until the write succeeds, so that a database outage does not lose a result."""
        while True:
            try:
                return write()
            except StoreUnavailable as error:
                _log.warning(f"{self.run.kind}.store_unavailable", error=str(error))
                if self._shutdown.is_set():
                    raise
                self._clock.sleep(_RETRY_S)

    def renew_if_due(self) -> None:
        """Renew the lease if a quarter of its length has passed since this method last renewed it."""
        now = self._clock.monotonic()
        if not self._is_lost and now - self._renewed_at >= self._lease.lease_s / RENEWALS_PER_LEASE:
            self._renewed_at = now
            self.renew()

    def renew(self) -> None:
        """Renew the lease, store the reported progress, and read whether people asked to stop or change the run.

        If the store is unavailable, the running work continues.
        """
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
    """A record of how long this worker has seen other workers' leases without a renewal.

    Clocks of different machines are never compared. A lease has lapsed once this worker has watched it for the lease's
    whole length without a renewal. The time between two looks counts for at most a quarter of the lease, because a live
    worker renews within that time. So if this worker looks again after an hour of other work, or after an outage of the
    store, it does not take over runs of workers that are alive.

    Args:
        clock: Source of the time.
        owner: Name of this worker, if it looks only while it has no run. A lease in its own name then counts as lapsed
            at once, because this worker lost that run during an outage of the store. None: all leases are watched in
            the same way.
    """

    def __init__(self, clock: Clock, *, owner: str | None = None) -> None:
        self._clock = clock
        self._owner = owner
        self._heard_at = clock.monotonic()
        self._silent_s: dict[Lease, float] = {}

    def lapsed(self, ask: Callable[[], Sequence[Lease]]) -> Sequence[Lease]:
        """Return the leases that no worker renewed for their whole length. This worker may take over their runs.

        ``ask`` returns the leases that workers hold now.
        """
        passed_s = self._clock.monotonic() - self._heard_at  # a slow request may bring an outdated answer
        held = ask()
        self._heard_at = self._clock.monotonic()
        self._silent_s = {lease: self._silence_s(lease, passed_s) for lease in held}
        return [lease for lease in held if lease.owner == self._owner or self._silent_s[lease] >= lease.lease_s]

    def refused(self) -> None:
        """Start to watch all leases anew, because the store refused a write.

        While the store accepts no writes, no other worker can renew its lease either, so that time must not count.
        """
        self._silent_s = {}

    def _silence_s(self, lease: Lease, passed_s: float) -> float:
        if lease not in self._silent_s:
            return 0.0
        return self._silent_s[lease] + min(passed_s, lease.lease_s / RENEWALS_PER_LEASE)
