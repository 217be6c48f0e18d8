"""What routes ask for: the application, a page, a filter, an id.

A route that only reads asks the application's store; what takes more than one port, or decides, is a method of ``App``.
What waits for nothing is a coroutine: functions take a thread each, which others wait for, a probe of the service too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request

from api.edge.caller import caller_in
from api.events import LiveEvents
from autotuner.core.access import Caller
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import TrialState
from autotuner.core.upkeep import Retune
from autotuner.service.build import App
from autotuner.store.options import Page, SweepColumn, SweepFilter, SweepOrder, TrialFilter


def _id(example: str) -> Any:
    return Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=[example])


RunId = Annotated[str, _id("mg-4kq2mxw7ab")]
SweepId = Annotated[str, _id("sw-k3v7q2mxn5")]
TrialId = Annotated[str, _id("sw-k3v7q2mxn5-0003")]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$", examples=["my-llama"])]

_Degree = Annotated[int | None, Query(ge=1, le=MAX_INTEGER)]


def _state(name: str) -> Any:
    """Return the dependency that gives a route what the service keeps under that name."""

    async def kept(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(kept)


AppOf = Annotated[App, _state("autotuner")]
LiveEventsOf = Annotated[LiveEvents, _state("live_events")]


async def _caller(request: Request) -> Caller:
    caller = caller_in(request.scope)
    assert caller is not None  # who calls is asked before any route but those that are open
    return caller


CallerOf = Annotated[Caller, Depends(_caller)]
"""Who the request comes from; everybody is ``NOBODY_ASKED`` where the service has no login."""


async def _page(
    limit: Annotated[int, Query(ge=1, le=500, description="Rows on the page.")] = 50,
    offset: Annotated[int, Query(ge=0, le=MAX_INTEGER, description="Rows to skip.")] = 0,
) -> Page:
    return Page(limit=limit, offset=offset)


PageOf = Annotated[Page, Depends(_page)]


async def _trial_filter(
    state: Annotated[TrialState | None, Query(description="Only trials in this state.")] = None,
    tensor_parallel_degree: _Degree = None,
    pipeline_parallel_degree: _Degree = None,
    micro_batch_size: _Degree = None,
) -> TrialFilter:
    return TrialFilter(
        state=state,
        tensor_parallel_degree=tensor_parallel_degree,
        pipeline_parallel_degree=pipeline_parallel_degree,
        micro_batch_size=micro_batch_size,
    )


TrialFilterOf = Annotated[TrialFilter, Depends(_trial_filter)]


_ASCENDING = frozenset({SweepColumn.NAME, SweepColumn.STATE, SweepColumn.OWNER, SweepColumn.CLUSTER})
"""Texts begin with A unless asked otherwise, numbers and dates with the greatest."""


async def _sweep_filter(
    q: Annotated[
        str,
        Query(max_length=200, description="Words of the sweep's name, id, model, cluster, engine or owner."),
    ] = "",
    state: Annotated[RunState | None, Query(description="Only sweeps in this state.")] = None,
    owner: Annotated[str | None, Query(max_length=200, description="Only sweeps that this caller asked for.")] = None,
) -> SweepFilter:
    return SweepFilter(text=q, state=state, owner=owner or None)


SweepFilterOf = Annotated[SweepFilter, Depends(_sweep_filter)]


async def _sweep_order(
    sort: Annotated[SweepColumn, Query(description="What the list is ordered by.")] = SweepColumn.CREATED,
    order: Annotated[
        Literal["ascending", "descending"] | None,
        Query(description="Texts ascend unless this says otherwise; numbers and dates descend."),
    ] = None,
) -> SweepOrder:
    is_descending = sort not in _ASCENDING if order is None else order == "descending"
    return SweepOrder(column=sort, is_descending=is_descending)


SweepOrderOf = Annotated[SweepOrder, Depends(_sweep_order)]


def _sweep(app: AppOf, sweep_id: SweepId) -> Sweep:
    return app.store.get_sweep(sweep_id)


SweepOf = Annotated[Sweep, Depends(_sweep)]


def _own_retune(app: AppOf, name: Name, caller: CallerOf) -> Retune:
    retune = app.store.retunes.get(name)
    caller.require_own("retune", name, retune.created_by)
    return retune


OwnRetuneOf = Annotated[Retune, Depends(_own_retune)]
"""A retune that a route changes, once it is clear that the caller may."""
