"""The plan as a durable run: one long computation, divided into pieces."""

from __future__ import annotations

from autotuner.core.errors import Busy, NotFound
from autotuner.core.run import Finish, RunState
from autotuner.runs.kind import Do, Kind, Later, OneAction, Step, Work
from autotuner.runs.lease import Hold
from autotuner.search.compute import ComputeService
from autotuner.search.planning.plan import PlanProgress, plan, plan_id_of
from autotuner.search.planning.request import PlanRequest


def plan_kind(compute: ComputeService) -> Kind:
    """Return the kind of run with which a worker computes plans, which compare clusters for a training run.

    ``compute`` is the compute service that computes the parts of a plan in separate processes.
    """

    def begin(hold: Hold) -> Work:
        def hear(done: int, known: int) -> None:
            hold.check()
            hold.report(PlanProgress(num_done=done, num_known=known))

        def perform(request: PlanRequest) -> Step:
            if plan_id_of(request) != hold.run.id:  # the request comes from another release
                raise NotFound("plan", hold.run.id)
            try:
                return Finish(state=RunState.COMPLETE, detail="computed", result=plan(request, compute, hear))
            except Busy as busy:
                return Later(at=hold.now() + busy.retry_after_s, detail=str(busy))

        return Work(machine=OneAction(Do(action=hold.run.request, progress=PlanProgress())), perform=perform)

    return Kind(name="plan", begin=begin, span="plan.run")
