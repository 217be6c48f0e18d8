"""What happens to a sweep, live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from api.dependencies import CallerOf, LiveEventsOf, SweepId
from api.openapi import problems
from autotuner.core.documents import MAX_INTEGER

router = APIRouter(tags=["events"])

_STREAM: dict[str, Any] = {"content": {"text/event-stream": {}}}

_LastEventId = Annotated[
    int, Header(alias="Last-Event-ID", ge=0, le=MAX_INTEGER, description="Resume behind this event.", examples=[17])
]
_Wait = Annotated[bool, Query(description="False: end behind the last event there is.")]


async def _open_stream(
    request: Request, live: LiveEventsOf, sweep_id: SweepId, caller: CallerOf
) -> AsyncIterator[None]:
    await live.require(sweep_id)
    with request.app.state.streams.opened(caller):
        yield


_OpenStream = Annotated[None, Depends(_open_stream)]
"""Held until the stream ends."""


@router.get(
    "/sweeps/{sweep_id}/events", response_class=EventSourceResponse, responses={200: _STREAM, **problems(404, 422)}
)
async def stream_events(
    live: LiveEventsOf, sweep_id: SweepId, _: _OpenStream, last_event_id: _LastEventId = 0, wait: _Wait = True
) -> AsyncIterator[ServerSentEvent]:
    """Stream a sweep's events from its first, or from behind `Last-Event-ID`, until it is finished.

    Kinds: `sweep.created`, `sweep.started`, `sweep.resumed`, `sweep.paused`, `sweep.queued`, `sweep.changed`,
    `sweep.finished`, `trial.started`, `trial.step`, `trial.link_event`, `trial.note`, `trial.waiting`, `trial.resumed`,
    `trial.job`, `trial.finished`,
    `trial.gated`, `trial.interrupted`, `sweep.estimated`. Of a sweep that was opened again, more come behind a
    `sweep.finished`. A comment every 15 s keeps idle connections open.
    """
    async for told in live.read(sweep_id, after=last_event_id, wait=wait):
        yield told.message
