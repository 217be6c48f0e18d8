"""Worker: takes runs by lease, one after the other, carries each to its end, and sends heartbeats."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from autotuner.core.errors import AutotunerError, LeaseLost, StoreUnavailable
from autotuner.core.health import KnownWorker
from autotuner.core.run import Finish, Problem, Run, RunState, Stop
from autotuner.host.machine_facts import host_hash
from autotuner.runs.clock import Clock
from autotuner.runs.kind import Do, Kind, Later, Machine, Wait, Work
from autotuner.runs.lease import Hold, LeaseWatch, StopRequested
from autotuner.runs.tracing import carried, working_on

if TYPE_CHECKING:  # predictions work without a database
    from autotuner.store.health import Health
    from autotuner.store.runs import RunStore

_POLL_S = 0.2
"""Seconds within which a request to stop is noticed while the running actions do not ask for it."""

_log = structlog.get_logger(__name__)


class Worker:
    """Takes runs of some kinds from the queue, and works on each until it ends.

    Args:
        store: The queue of runs.
        kinds: The kinds of runs to take, by name. Several workers of a process may share the store, each with other
            kinds.
        clock: Source of the time.
        owner: Name of the worker, which no other worker has.
        lease_s: Seconds without a renewal of the lease after which another worker may take over the run.
        shutdown: When this event is set, the worker ends the running actions, gives the run back to the queue and
            returns.
    """

    def __init__(
        self,
        store: RunStore,
        kinds: Mapping[str, Kind],
        clock: Clock,
        *,
        owner: str,
        lease_s: float,
        shutdown: threading.Event,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._owner = owner
        self._lease_s = max(lease_s, *(kind.least_lease_s for kind in kinds.values()))
        self._shutdown = shutdown
        self._watch = LeaseWatch(clock, owner=owner)

    def run_once(self) -> bool:
        """Take one run from the queue, and work on it until it ends or is given back. Return False if no run is due."""
        lapsed = self._watch.lapsed(lambda: self._store.leases(self._kinds))
        try:
            run = self._store.claim(
                self._kinds, owner=self._owner, now=self._clock.now(), lease_s=self._lease_s, lapsed=lapsed
            )
        except StoreUnavailable:
            self._watch.refused()
            raise
        if run is None:
            return False
        kind = self._kinds[run.kind]
        with working_on(kind.span, **{f"{run.kind}_id": run.id}, worker=self._owner, caller=run.created_by):
            self._see_through(run, kind)
        return True

    def _see_through(self, run: Run, kind: Kind) -> None:
        hold = Hold(self._store, self._clock, run, self._shutdown)
        try:
            with hold.kept():
                self._advance(hold, kind.begin(hold))
        except LeaseLost:
            _log.warning(f"{kind.name}.lease_lost")
        except StoreUnavailable:
            raise
        except Exception as error:  # a bug ends this run with its reason, not the worker and the queue behind it
            if self._shutdown.is_set() and hold.stop() is Stop.SHUTDOWN:  # its processes have ended too
                return self._give_back(hold)
            if not isinstance(error, AutotunerError):
                _log.exception(f"{kind.name}.error")
            problem = Problem.of(error)
            with contextlib.suppress(LeaseLost):
                hold.finish(Finish(state=RunState.FAILED, detail=problem.message, problem=problem))
        return None

    def _give_back(self, hold: Hold) -> None:
        with contextlib.suppress(LeaseLost, StoreUnavailable):
            hold.release()

    def _advance(self, hold: Hold, work: Work) -> None:
        """Carry out the machine's steps until the run ends or must stop."""
        actions = ThreadPoolExecutor(work.num_parallel, thread_name_prefix=f"autotuner-{hold.run.kind}")
        with actions as pool, hold.all_or_nothing():
            running = set[Future[Any]]()
            while (is_over := self._step(hold, work, pool, running)) is None:
                pass
        if is_over:
            return
        match hold.stop():
            case Stop.CANCEL:
                hold.finish(Finish(state=RunState.CANCELLED, detail="cancelled by request"))
            case Stop.LEASE_LOST:
                _log.warning(f"{hold.run.kind}.lease_lost")
            case _:
                hold.release()

    def _step(self, hold: Hold, work: Work, pool: ThreadPoolExecutor, running: set[Future[Any]]) -> bool | None:
        """Take the next step of a run.

        Returns:
            None to continue, True if the run has ended or is put off, False if the worker must leave the run.
        """
        hold.renew_if_due()
        wanted, run = hold.stop(), hold.run
        work.hear(run)
        if running and (wanted is not None or len(running) == work.num_parallel):
            return _heard_ends(hold, work.machine, running)
        match step := work.machine.next(self._clock.now()):  # before any stop, so that finished work counts
            case Do(action=action, progress=progress):
                if not (wanted is None or (wanted in (Stop.CANCEL, Stop.PAUSE) and step.ends_jobs)):
                    return False
                if progress is not None:
                    hold.save(progress)
                running.add(pool.submit(carried(partial(work.perform, action))))
                return None
            case Wait():
                return False if not running and wanted is not None else _heard_ends(hold, work.machine, running)
            case Later(at=at, detail=detail):
                hold.release(due_at=at, detail=detail)
                return True
            case Finish() as end:
                return True if hold.finish(end, seen=run.num_changes) else None


def _heard_ends(hold: Hold, machine: Machine, running: set[Future[Any]]) -> bool | None:
    """Wait a moment for actions to end and report their outcomes to the machine.

    Returns:
        False if an action stopped without an outcome, so that the run must be left; else None.
    """
    ended, _ = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
    for future in ended:
        running.remove(future)
        try:
            news = machine.tell(future.result())
        except StopRequested:
            return False
        if news is not None:
            hold.save(news)
    return None


def new_owner() -> str:
    """Return a unique name for a worker. The name does not reveal the name of the machine."""
    return f"{host_hash()[:6]}-{os.getpid()}-{uuid4().hex[:6]}"


class Heartbeats:
    """Sends the heartbeats of one worker to the store, so that people see that the worker is alive."""

    def __init__(self, store: Health, clock: Clock, *, name: str) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._version = version("parallelism-autotuner")
        self._started_at = clock.now()

    def tell(self) -> None:
        """Store a heartbeat of the worker: the present time. Call it again and again while the worker lives."""
        self._store.tell(
            KnownWorker(name=self._name, version=self._version, started_at=self._started_at, seen_at=self._clock.now())
        )

    def end(self) -> None:
        """Delete the worker's heartbeat, because the worker has stopped.

        If the store cannot be reached, the heartbeat stays until other workers delete it, after about a day.
        """
        try:
            self._store.forget(self._name)
        except StoreUnavailable as error:
            _log.warning("heartbeats.store_unavailable", error=str(error))


def forever(step: Callable[[], object], *, poll_s: float, shutdown: threading.Event, name: str) -> None:
    """Call ``step`` again and again until ``shutdown`` is set.

    Args:
        step: Returns a true value if it found something to do. If it returns a false value or raises an error, the loop
            waits before the next call.
        poll_s: Seconds of this wait.
        shutdown: Event that ends the loop, and the wait.
        name: Name of the loop in the log.
    """
    while not shutdown.is_set():
        found: object = False
        try:
            found = step()
        except StoreUnavailable as error:
            _log.warning(f"{name}.store_unavailable", error=str(error))
        except Exception:  # if this thread died silently, nothing would be done any more
            _log.exception(f"{name}.error")
        if not found:
            shutdown.wait(poll_s)
