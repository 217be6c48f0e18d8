"""Shared parameters of routes: the application, a page, a filter, an id.

A route that only reads uses the application's store. A route that decides or needs several ports calls a method of
``App``. Routes that never wait are coroutines: other functions occupy one of a few threads each, and even a health
probe would wait for those.
"""

from __future__ import annotations

from dataclasses import fields
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

from fastapi import Depends, Path, Query, Request

from autotuner.api.edge.caller import caller_in
from autotuner.api.events import LiveEvents
from autotuner.core.access import Caller
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.sweep import Sweep
from autotuner.core.text import field_texts
from autotuner.core.upkeep import Retune
from autotuner.core.value import Flag, mark_of
from autotuner.service.build import App
from autotuner.store.options import Page, SweepColumn, SweepFilter, SweepOrder, TrialFilter


def _id(example: str) -> Any:
    return Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=[example])


RunId = Annotated[str, _id("mg-4kq2mxw7ab")]
SweepId = Annotated[str, _id("sw-k3v7q2mxn5")]
TrialId = Annotated[str, _id("sw-k3v7q2mxn5-0003")]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$", examples=["my-llama"])]

T = TypeVar("T")


def _state(name: str) -> Any:
    """Return a dependency for the object that the service keeps under this name."""

    async def kept(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(kept)


AppOf = Annotated[App, _state("autotuner")]
LiveEventsOf = Annotated[LiveEvents, _state("live_events")]


async def _caller(request: Request) -> Caller:
    caller = caller_in(request.scope)
    assert caller is not None  # callers are identified before every route that is not open
    return caller


CallerOf = Annotated[Caller, Depends(_caller)]
"""The caller of the request; it is ``NOBODY_ASKED`` for everybody if the service has no login."""


async def _page(
    limit: Annotated[int, Query(ge=1, le=500, description="Largest number of rows to return.")] = 50,
    offset: Annotated[
        int, Query(ge=0, le=MAX_INTEGER, description="Number of rows to skip before the first returned row.")
    ] = 0,
) -> Page:
    return Page(limit=limit, offset=offset)


PageOf = Annotated[Page, Depends(_page)]


def filter_of(cls: type[T], *, of_form: bool = False) -> Any:
    """Return a FastAPI dependency that reads a filter from the query, one parameter for each field.

    Args:
        cls: Class of the filter; each field describes its own parameter.
        of_form: True if a form of a page sends the query. A form also sends its empty inputs, as empty texts. The
            dependency ignores them.
    """
    texts, hints = field_texts(cls), get_type_hints(cls, include_extras=True)
    by_name = {query_name(cls, each.name): each for each in fields(cast("Any", cls))}

    async def read(**given: object) -> T:
        return cls(**{by_name[name].name: value for name, value in given.items() if value not in (None, "")})

    parameters = []
    for name, each in by_name.items():
        hint: Any = hints[each.name] | Literal[""] if of_form else hints[each.name]
        asked = Annotated[hint, Query(description=texts.get(each.name))]
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=each.default, annotation=asked))
    read.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # FastAPI reads it
    return Depends(read)


def query_name(cls: type[Any], field: str) -> str:
    """Return the name of the query parameter for a field of a filter.

    Args:
        cls: Class of the filter.
        field: Name of the field.
    """
    flag = mark_of(get_type_hints(cls, include_extras=True)[field], Flag)
    return flag.name if flag else field


TrialFilterOf = Annotated[TrialFilter, filter_of(TrialFilter)]
SweepFilterOf = Annotated[SweepFilter, filter_of(SweepFilter)]


_ASCENDING = frozenset({SweepColumn.NAME, SweepColumn.STATE, SweepColumn.OWNER, SweepColumn.CLUSTER})
"""Columns of text, which are sorted from A by default; numbers and dates start with the greatest."""


async def _sweep_order(
    sort: Annotated[SweepColumn, Query(description="Column by which the list is sorted.")] = SweepColumn.CREATED,
    order: Annotated[
        Literal["ascending", "descending"] | None,
        Query(
            description="Direction of the order. By default, texts are sorted in ascending order, numbers and dates in "
            "descending order."
        ),
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
"""A scheduled retuning for a route that changes it; the caller's right was checked before."""
