"""Plans: computed beside the requests that ask for them, found again by their content, the last of them kept."""

from __future__ import annotations

import threading
from collections import OrderedDict

from autotuner.bootstrap import App
from autotuner.domain.wire import content_key
from autotuner.errors import AutotunerError, Busy, NotFound
from autotuner.search.planning.plan import Plan, plan
from autotuner.search.planning.request import PlanRequest
from autotuner.search.planning.whole_clusters import offers

__all__ = ["PlanRun", "Plans"]

_KEPT = 32
"""Plans, some hundred kilobytes each."""

_MOST_COMPUTING = 4
"""At once: each has the service compute two pieces at a time."""

_DIGITS = 16


class PlanRun:
    """One plan, and how far it is computed.

    Attributes:
        id: The same for the same question, in whatever process.
        request: What is asked.
    """

    def __init__(self, plan_id: str, request: PlanRequest) -> None:
        self.id = plan_id
        self.request = request
        self._ended = threading.Event()
        self._answer: Plan | AutotunerError | Exception | None = None
        self._progress = (0, 0)

    @property
    def progress(self) -> tuple[int, int]:
        """Pieces of work that are done, and how many there are as far as is known."""
        return self._progress

    @property
    def has_ended(self) -> bool:
        """Whether there is an answer, or an error in its place."""
        return self._ended.is_set()

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error."""
        return isinstance(self._answer, Exception)

    def wait(self, seconds: float) -> Plan | None:
        """The plan; None where it is not computed within that time.

        Raises:
            InvalidInput: The question cannot be answered as it is; and other errors of ``plan``.
        """
        self._ended.wait(seconds)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def compute(self, app: App) -> None:
        """Compute it; whoever waits is told, of errors too."""
        try:
            self._answer = plan(self.request, app.asides, self._tell)
        except Exception as error:  # whoever asks is told, as of an error in their own request
            self._answer = error
        finally:
            self._ended.set()

    def _tell(self, done: int, known: int) -> None:
        self._progress = (done, known)


class Plans:
    """Plans that were asked for; those of equal questions are computed once."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._runs: OrderedDict[str, PlanRun] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, app: App, request: PlanRequest) -> PlanRun:
        """The plan of that question, begun if it is new.

        Raises:
            InvalidInput: There are no clusters to compare, or too many.
            NotFound: The catalog has no accelerator of a name.
            Busy: Too many are computed already.
        """
        offers(request)  # what cannot be compared is refused at once, not to whoever reads the plan
        plan_id = content_key(request)[:_DIGITS]
        with self._lock:
            run = self._runs.get(plan_id)
            if run is None or run.has_failed:  # what failed may be asked again: asides may have been busy
                run = self._begun(app, plan_id, request)
            self._runs.move_to_end(plan_id)
            while len(self._runs) > self._kept:
                self._runs.popitem(last=False)
        return run

    def get(self, plan_id: str) -> PlanRun:
        """The plan of that id.

        Raises:
            NotFound: It was not asked for here, or not lately.
        """
        with self._lock:
            run = self._runs.get(plan_id)
        if run is None:
            raise NotFound("plan", plan_id)
        return run

    def _begun(self, app: App, plan_id: str, request: PlanRequest) -> PlanRun:
        computing = sum(not run.has_ended for run in self._runs.values())
        if computing >= _MOST_COMPUTING:
            raise Busy(f"{computing} plans are computed already; come back later", retry_after_s=5)
        run = self._runs[plan_id] = PlanRun(plan_id, request)
        threading.Thread(target=run.compute, args=(app,), name=f"plan {plan_id}", daemon=True).start()
        return run
