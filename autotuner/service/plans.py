"""Plans: stored as durable runs, and computed by the service process that receives the request."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import structlog

from autotuner.core.errors import Conflict, NotFound, StoreUnavailable, Unreadable
from autotuner.core.run import NewRun, RunState
from autotuner.runs.clock import Clock
from autotuner.runs.plan_run import plan_kind
from autotuner.runs.tracing import carried
from autotuner.runs.worker import Worker, new_owner
from autotuner.search.compute import ComputeService
from autotuner.search.planning.offers import offers
from autotuner.search.planning.plan import PlanProgress, PlanRun, plan_id_of
from autotuner.search.planning.request import PlanRequest
from autotuner.store.runs import RunStore

_MOST_COMPUTING = 4
"""Maximum number of plans computed at once, since each plan computes two pieces at a time; further plans wait in the
store."""

_LOOK_S = 0.5
"""Seconds between two looks at a plan that another process computes."""

_log = structlog.get_logger(__name__)


class Plans:
    """Queues, reads and computes plans, which compare clusters for a training run, in this process of the service.

    The workers of this object look for plans whenever a caller asks for a plan, or reads a plan that is not computed
    yet. If another process dies while it computes a plan, the plan stays unfinished until a caller reads it. The
    process that answers this caller then computes the plan.
    """

    def __init__(self, store: RunStore, compute: ComputeService, clock: Clock, lease_s: float) -> None:
        self._store = store
        self._compute = compute
        self._clock = clock
        self._lease_s = lease_s
        self._shutdown = threading.Event()
        self._ended = threading.Condition()
        self._threads: set[threading.Thread] = set()
        self._num_workers = 0
        self._idle: list[Worker] = []

    def ask(self, request: PlanRequest) -> tuple[PlanRun, bool]:
        """Return the plan (a comparison of clusters) for the request, and True if the plan is new.

        A new or failed plan is queued.

        Raises:
            InvalidInput: There are no clusters to compare, or too many.
            NotFound: The catalog has no accelerator with a given name.
        """
        offers(request)  # refuse a request without comparable clusters now, and not when the plan is read
        now = self._clock.now()
        new = NewRun(id=plan_id_of(request), kind="plan", request=request, progress=PlanProgress())
        run, is_new = self._store.add(new, now=now)
        if run.state in (RunState.FAILED, RunState.CANCELLED):
            with suppress(Conflict):  # somebody else asked again at the same time
                self._store.reopen("plan", run.id, PlanProgress(), now=now)
        return self.read(run.id), is_new

    def read(self, plan_id: str, wait_s: float = 0.0) -> PlanRun:
        """Return the plan with that id as soon as it is computed, or as it is after ``wait_s`` seconds.

        A plan is a comparison of clusters for a training run.

        Raises:
            NotFound: No caller has asked for this plan, or it was deleted, or another release left it unfinished.
            InvalidInput: The question of the plan has no answer. Other errors of its computation are raised, too.
        """
        deadline = time.monotonic() + wait_s
        while True:
            run = self._get(plan_id)
            left_s = deadline - time.monotonic()
            if not run.state.is_finished:
                self._look()
            if run.state.is_finished or left_s <= 0:
                return run
            with self._ended:
                self._ended.wait(min(_LOOK_S, left_s))

    def request_stop(self) -> None:
        """Ask the workers to stop computing plans and to give them back to the queue; do not wait for that."""
        self._shutdown.set()

    def close(self) -> None:
        """Give the plans that this process computes back to the queue, and wait until that is done.

        A process in which a caller reads such a plan computes it again.
        """
        self.request_stop()
        with self._ended:
            threads = list(self._threads)
        for thread in threads:
            thread.join()
        self._shutdown.clear()

    def _get(self, plan_id: str) -> PlanRun:
        try:
            run = self._store.get(PlanRun, plan_id)
        except Unreadable:  # another release wrote it
            raise NotFound("plan", plan_id) from None
        if run.problem is not None:
            raise run.problem.as_error()
        return run

    def _look(self) -> None:
        """Start an idle worker for the waiting plans, again and again until none waits."""
        with self._ended:
            if not self._idle and self._num_workers < _MOST_COMPUTING:
                self._idle.append(self._worker())
                self._num_workers += 1
            if self._idle and not self._shutdown.is_set():
                worker = self._idle.pop()
                work = carried(lambda: self._work(worker))  # counted as the caller's computation
                thread = threading.Thread(target=work, name="autotuner-plan", daemon=True)
                self._threads.add(thread)
                thread.start()

    def _worker(self) -> Worker:
        return Worker(
            self._store,
            {"plan": plan_kind(self._compute)},
            self._clock,
            owner=new_owner(),
            lease_s=self._lease_s,
            shutdown=self._shutdown,
        )

    def _work(self, worker: Worker) -> None:
        try:
            while not self._shutdown.is_set() and worker.run_once():
                self._tell()
        except StoreUnavailable as error:
            _log.warning("plan.store_unavailable", error=str(error))
        except Exception:  # the next reader has the plan computed again
            _log.exception("plan.error")
        finally:
            with self._ended:
                self._idle.append(worker)
                self._threads.discard(threading.current_thread())
            self._tell()

    def _tell(self) -> None:
        with self._ended:
            self._ended.notify_all()
