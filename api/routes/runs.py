"""Durable runs: sweeps, gates, retune runs, studies, checks and plans, all read, stopped and followed alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from autotuner.api.dependencies import AppOf, CallerOf, LiveEventsOf, PageOf, RunId
from autotuner.api.openapi import problems
from autotuner.core.cluster_check import CheckRun
from autotuner.core.documents import MAX_INTEGER, Document
from autotuner.core.listed import Listed
from autotuner.core.run import Run, RunState, Stop
from autotuner.core.study import StudyRun
from autotuner.core.sweep import SweepRun
from autotuner.core.upkeep import GateRun, RetuneRun
from autotuner.core.value import value
from autotuner.search.planning.plan import PlanRun
from autotuner.service.build import App

router = APIRouter(prefix="/runs", tags=["runs"])

AnyRun: TypeAlias = SweepRun | GateRun | RetuneRun | StudyRun | CheckRun | PlanRun
"""A durable run of a kind that callers can list."""


@value
class RunList(Listed[AnyRun]):
    """One page of runs of one kind or of several kinds, newest first."""

    items: tuple[AnyRun, ...]


R = TypeVar("R", bound=Run)

IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[!-~]{1,200}$",
        description="Any text that identifies this request. If a request with the same key is sent again, the answer "
        "is the run that the first request created.",
        examples=["ci-run-4711"],
    ),
]

_Kind = Annotated[
    Literal["sweep", "gate", "retune", "study", "check", "plan"] | None,
    Query(description="Return only runs of this kind."),
]
_Subject = Annotated[
    str | None,
    Query(
        max_length=128,
        description="Return only checks of the cluster, runs of the retune, or gates with the baseline of this name.",
    ),
]
_Parent = Annotated[
    str | None, Query(max_length=64, description="Id of a run: return only the runs that were queued for it.")
]
_State = Annotated[RunState | None, Query(description="Return only runs in this state.")]
_WaitS = Annotated[
    float,
    Query(
        ge=0,
        le=50,
        description="Longest time in seconds to wait for a plan to end before the answer is sent; 0: no wait.",
    ),
]


def new_run(kind: type[R], request: Request, response: Response, started: tuple[Run, bool]) -> R:
    """Return a run that was just requested, and set the status and the header ``Location`` of the HTTP answer.

    Args:
        kind: Type of the run.
        request: The HTTP request for the run.
        response: The HTTP answer. Its status becomes 201 for a new run, and 200 for a run that existed before.
        started: The run, and True if it is new.
    """
    run, is_new = started
    assert isinstance(run, kind)
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = request.url_for("read_run", run_id=run.id).path
    return _shown(run)


def _shown(run: R) -> R:
    """Return the run without its lease, since callers need not know which process works on it."""
    return replace(run, lease=None)


@router.get("", responses=problems(422))
def list_runs(
    app: AppOf,
    page: PageOf,
    kind: _Kind = None,
    subject: _Subject = None,
    parent: _Parent = None,
    state: _State = None,
) -> Document[RunList]:
    """List runs (durable work such as sweeps, checks, plans and gates) of all kinds or of one kind, newest first.

    The field `result` of a plan and the trials of an optimizer study (in `progress`) are left out.
    """
    states = () if state is None else (state,)
    runs, total = app.store.runs.list(kind, subject=subject, parent_id=parent, states=states, page=page)
    shown = (replace(run, result=None) if isinstance(run, PlanRun) else run for run in runs)
    items = cast("tuple[AnyRun, ...]", tuple(map(_shown, shown)))
    return RunList(items=items, total=total, limit=page.limit, offset=page.offset)


@router.get("/{run_id}", responses=problems(400, 404, 422))
def read_run(app: AppOf, run_id: RunId, wait_s: _WaitS = 0.0) -> Document[AnyRun]:
    """Read a run, such as a sweep, a check or a plan: its state, request, progress, and result once it has ended.

    `child_id` is the sweep that measures for a performance regression gate or for a run of a retune. An optimizer study
    has its trials with their loss curves, which are stored about once a second. If the run is a plan, the service waits
    up to `wait_s` seconds until the plan is computed.
    """
    return _read(app, run_id, wait_s)


def _read(app: App, run_id: str, wait_s: float = 0.0) -> AnyRun:
    return cast("AnyRun", _shown(app.read(run_id, wait_s)))


@router.post("/{run_id}/cancel", responses=problems(404, 409, 422))
def cancel_run(app: AppOf, caller: CallerOf, run_id: RunId) -> Document[AnyRun]:
    """Cancel a run: at once if no worker executes it, else as soon as its trial or its job has stopped.

    A finished run stays as it is. A request to cancel a performance regression gate or a run of a retune also cancels
    its sweep, unless the run has been decided already. Callers who send equal requests share a plan, so only admins may
    cancel a plan.
    """
    app.stop(run_id, caller=caller)
    return _read(app, run_id)


@router.post("/{run_id}/pause", responses=problems(404, 409, 422))
def pause_run(app: AppOf, caller: CallerOf, run_id: RunId) -> Document[AnyRun]:
    """Pause a sweep until it is resumed.

    A queued sweep is paused at once, and a running sweep as soon as its trial has stopped. The stopped trial starts
    again from its beginning when the sweep is resumed. A paused sweep stays as it is. The request is refused with 409
    for a finished sweep, for a sweep that belongs to a retune or a performance regression gate, and for runs of other
    kinds.
    """
    app.stop(run_id, Stop.PAUSE, caller=caller)
    return _read(app, run_id)


@router.post("/{run_id}/resume", responses=problems(404, 409, 422))
def resume_run(app: AppOf, caller: CallerOf, run_id: RunId) -> Document[AnyRun]:
    """Resume a paused sweep. The time of the pause does not count towards its budget.

    A sweep that is queued or runs stays as it is. For a finished sweep, the request is refused with 409.
    """
    app.resume(run_id, caller=caller)
    return _read(app, run_id)


# ---------------------------------------------------------------- live events of a run
_STREAM: dict[str, Any] = {"content": {"text/event-stream": {}}}

_LastEventId = Annotated[
    int,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=MAX_INTEGER,
        description="Id of the last event that you received. The stream continues with the next event.",
        examples=[17],
    ),
]
_Wait = Annotated[
    bool,
    Query(
        description="True: wait for new events until the run ends. False: end the stream after the last stored event."
    ),
]


async def _open_stream(request: Request, live: LiveEventsOf, run_id: RunId, caller: CallerOf) -> AsyncIterator[None]:
    await live.require(run_id)
    with request.app.state.streams.opened(caller):
        yield


_OpenStream = Annotated[None, Depends(_open_stream)]
"""Place among the open streams, which is held until the stream ends."""


@router.get("/{run_id}/events", response_class=EventSourceResponse, responses={200: _STREAM, **problems(404, 422)})
async def stream_events(
    live: LiveEventsOf, run_id: RunId, _: _OpenStream, last_event_id: _LastEventId = 0, wait: _Wait = True
) -> AsyncIterator[ServerSentEvent]:
    """Stream the events of a run until the run is finished. With `Last-Event-ID`, only later events are sent.

    Only sweeps have events; the stream of any other run ends when the run is finished, without events. The kinds are
    `sweep.created`, `sweep.started`, `sweep.resumed`, `sweep.paused`, `sweep.queued`, `sweep.changed`,
    `sweep.finished`, `trial.started`, `trial.step`, `trial.link_event`, `trial.note`, `trial.waiting`, `trial.resumed`,
    `trial.job`, `trial.finished`, `trial.gated`, `trial.interrupted` and `sweep.estimated`. If a sweep is opened again,
    more events follow after `sweep.finished`. A comment every 15 s keeps idle connections open.
    """
    async for event in live.read(run_id, after=last_event_id, wait=wait):
        yield event.message
