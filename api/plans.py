"""Plans: stored with their questions, computed by the process that was asked, by another where that one died."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from functools import partial

from autotuner.bootstrap import App
from autotuner.core import wire
from autotuner.core.errors import NotFound
from autotuner.core.run import StoredPlan
from autotuner.lease_watch import LeaseWatch
from autotuner.presence import new_owner
from autotuner.search.planning.plan_run import PlanRun
from autotuner.search.planning.question import plan_id_of, read_question
from autotuner.search.planning.request import PlanRequest
from autotuner.search.planning.whole_clusters import offers
from autotuner.tracing import carried

_MOST_COMPUTING = 4
"""At once, since each has the service compute two pieces at a time; the others wait in the store for who reads them."""

_LOOK_S = 0.5
"""Between looks at a plan that another process computes."""

_MOST_FAILED = 32
"""Errors that are kept for those who ask what became of a plan."""


class Plans:
    """Plans as this process of the service asks, reads and computes them.

    Nobody computes a plan that nobody waits for: whoever reads one that its process left unanswered takes it over.
    Errors stay with the process that met them; another one that is asked meets its own.

    Attributes:
        owner: Name of this process, by which it holds what it computes.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.owner = new_owner()
        self._lease_s = app.settings.lease_s
        self._watch = LeaseWatch(app.clock, lease_s=self._lease_s)
        self._mutex = threading.Lock()
        self._computing: dict[str, tuple[PlanRun, threading.Thread]] = {}
        self._failed: OrderedDict[str, Exception] = OrderedDict()

    def ask(self, request: PlanRequest) -> StoredPlan:
        """The plan of that question, begun unless it is; what failed is begun again, since it may have been busy.

        Raises:
            InvalidInput: There are no clusters to compare, or too many.
            NotFound: The catalog has no accelerator of a name.
        """
        offers(request)  # what cannot be compared is refused at once, not to whoever reads the plan
        plan_id, store = plan_id_of(request), self._app.store.plans
        try:
            store.get(plan_id)
        except NotFound:
            store.add(plan_id, wire.dumps(request), now=self._app.clock.now())
        with self._mutex:
            self._failed.pop(plan_id, None)
        return self.read(plan_id)

    def read(self, plan_id: str, wait_s: float = 0.0) -> StoredPlan:
        """The plan of that id, once it is answered or the time is over.

        Raises:
            NotFound: It was never asked for, is forgotten, or was left unanswered by another release.
            InvalidInput: Its question cannot be answered as it is; and other errors of ``plan``.
        """
        deadline = time.monotonic() + wait_s
        while True:
            found = self._app.store.plans.get(plan_id)
            if found.answer is None:
                found = self._seen_to(found)
            left_s = deadline - time.monotonic()
            if found.answer is not None or left_s <= 0:
                return found
            self._wait(plan_id, left_s)

    def close(self) -> None:
        """Give back what is computed here; whoever reads it next begins it anew."""
        with self._mutex:
            computing = list(self._computing.values())
        for run, thread in computing:
            run.request_stop()
            thread.join()

    # ------------------------------------------------------------------ computing
    def _seen_to(self, found: StoredPlan) -> StoredPlan:
        """An unanswered plan; computed here from now on, where there is room and nobody is at it."""
        store, now = self._app.store.plans, self._app.clock.now()
        with self._mutex:
            if found.id in self._failed:
                raise self._failed[found.id]
            if found.id in self._computing or len(self._computing) >= _MOST_COMPUTING:
                return found
            lapsed = self._watch.lapsed(store.held)
            is_ours = found.owner in (None, self.owner)
            if not is_ours and all(lease.id != found.id for lease in lapsed):
                return found
            request = read_question(found.question)
            if plan_id_of(request) != found.id:
                raise NotFound("plan", found.id)
            claimed = store.claim(found.id, owner=self.owner, now=now, lease_s=self._lease_s, lapsed=lapsed)
            if claimed.owner == self.owner:
                self._begin(claimed.id, request)
            return claimed

    def _begin(self, plan_id: str, request: PlanRequest) -> None:
        run = PlanRun(plan_id, self._app.store.plans, self._app.clock, owner=self.owner, lease_s=self._lease_s)
        compute = carried(partial(self._compute, plan_id, run, request))  # as a part of the share of who asks
        thread = threading.Thread(target=compute, name=f"plan {plan_id}", daemon=True)
        self._computing[plan_id] = (run, thread)
        thread.start()

    def _compute(self, plan_id: str, run: PlanRun, request: PlanRequest) -> None:
        failure: Exception | None = None
        try:
            run.run(request, self._app.asides)
        except Exception as error:  # whoever reads the plan is told, as of an error in their own request
            failure = error
        with self._mutex:
            del self._computing[plan_id]
            if failure is not None:
                self._failed[plan_id] = failure
                while len(self._failed) > _MOST_FAILED:
                    self._failed.popitem(last=False)

    def _wait(self, plan_id: str, most_s: float) -> None:
        """Until it is computed here, or might be elsewhere."""
        with self._mutex:
            here = self._computing.get(plan_id)
        if here is None:
            time.sleep(min(_LOOK_S, most_s))
        else:
            here[1].join(most_s)
