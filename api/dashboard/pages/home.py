"""The first page, with all sweeps and everything that needs attention, and the page of a search over all sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from http import HTTPStatus
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from autotuner.api.dashboard.render import page, service_of
from autotuner.api.dashboard.views.finding import exact_place, find
from autotuner.api.dependencies import AppOf, SweepOrderOf, filter_of, query_name
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.run import RunState
from autotuner.core.sweep import SweepOverview
from autotuner.report.finding import finding_report
from autotuner.report.report import Link, Pager
from autotuner.report.sweep_list import ListPage, sweep_list_report
from autotuner.store.options import NEWEST_FIRST, Page, SweepColumn, SweepFilter, SweepOrder

# The first page: what needs attention, and all sweeps, searched, filtered and ordered as the address says.

router = APIRouter(include_in_schema=False, default_response_class=Response)

_SWEEPS_PER_PAGE = 50

_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _SWEEPS_PER_PAGE)]
"""Number of a page. Its maximum keeps the offset of the page within the integers of a database."""

_Part = Annotated[Literal["live"] | None, Query()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Filters, order and page number of the list of sweeps, as the query of the home page gives them."""

    where: SweepFilter
    order: SweepOrder = NEWEST_FIRST
    number: int = 1
    """Number of the page."""

    def query(self, **changed: str) -> dict[str, str]:
        """Return the query parameters that ask for the same list, with some values replaced.

        Args:
            changed: New values by name; an empty text removes the value.
        """
        said = {**self._filters, **self.order_query, "number": "" if self.number == 1 else str(self.number)}
        return {name: value for name, value in (said | changed).items() if value}

    @property
    def _filters(self) -> dict[str, str]:
        """Return the texts of the active filters, by query parameter."""
        said = {query_name(SweepFilter, each.name): getattr(self.where, each.name) for each in fields(SweepFilter)}
        return {name: text for name, value in said.items() if (text := str(value or "").strip())}

    @property
    def order_query(self) -> dict[str, str]:
        """The query parameters that state the order; empty if the order is the default, newest first."""
        if self.order == NEWEST_FIRST:
            return {}
        return {"sort": self.order.column.value, "order": _direction(self.order)}

    @property
    def without(self) -> Sequence[Link]:
        """Links that each remove one filter of the list, and a link to all sweeps; empty without filters."""
        said = {name: f"“{text}”" if name == "q" else f"{name} {text}" for name, text in self._filters.items()}
        links = [
            Link(f"without {words}", "", query=self.query(**{name: "", "number": ""})) for name, words in said.items()
        ]
        return [*links, Link("all sweeps", "")] if links else []

    def listed(self, found: Sequence[SweepOverview], total: int) -> ListPage:
        """Return the page of the list: its sweeps, and links to other orders, to fewer filters and to other pages.

        Args:
            found: Sweeps of this page.
            total: Number of sweeps that match the filters, on all pages.
        """
        first = (self.number - 1) * _SWEEPS_PER_PAGE + 1
        is_last = first + len(found) > total
        return ListPage(
            sweeps=found,
            total=total,
            first=first,
            sorts={column: self._sort(column, by) for column, by in _SORTS.items()},
            without=self.without,
            pager=Pager.of("", self.number, is_last=is_last, **self.query(number="")),
        )

    def _sort(self, column: str, by: SweepColumn) -> tuple[Link, Literal["", "ascending", "descending"]]:
        """Return a link to the list sorted by a column, and the present direction.

        If the list is already sorted by this column, the link reverses the order.
        """
        is_sorted = by is self.order.column
        order = SweepOrder(column=by, is_descending=by not in _TEXTS)
        if is_sorted:
            order = replace(self.order, is_descending=not self.order.is_descending)
        query = {**self.query(sort="", order="", number=""), **replace(self, order=order).order_query}
        return Link(column, "", key=f"sort-{by}", query=query), _direction(self.order) if is_sorted else ""


_SORTS: Mapping[str, SweepColumn] = {
    "sweep": SweepColumn.NAME,
    "state": SweepColumn.STATE,
    "best MFU": SweepColumn.MFU,
    "throughput": SweepColumn.TOKENS_PER_S,
    "trials": SweepColumn.TRIALS,
    "accelerator-hours": SweepColumn.ACCELERATOR_HOURS,
    "owner": SweepColumn.OWNER,
    "cluster": SweepColumn.CLUSTER,
    "when": SweepColumn.CREATED,
}
"""Order of the list for each column of its report."""

_TEXTS = (SweepColumn.NAME, SweepColumn.STATE, SweepColumn.OWNER, SweepColumn.CLUSTER)


def _direction(order: SweepOrder) -> Literal["ascending", "descending"]:
    return "descending" if order.is_descending else "ascending"


@router.get("/")
def sweeps_page(
    request: Request,
    app: AppOf,
    where: Annotated[SweepFilter, filter_of(SweepFilter, of_form=True)],
    order: SweepOrderOf,
    part: _Part = None,
    number: _Number = 1,
) -> Response:
    """Show the sweeps that match the filters, and the incidents that need attention, such as failed sweeps."""
    asked = Asked(where=where, order=order, number=number)
    now = app.clock.now()
    window = Page(limit=_SWEEPS_PER_PAGE, offset=(number - 1) * _SWEEPS_PER_PAGE)
    found, total = app.store.list_overviews(now=now, where=asked.where, order=order, page=window)
    incidents = app.store.health.attention(now=now)
    return page(
        request,
        "_home.html" if part else "home.html",
        report=sweep_list_report(asked.listed(found, total), incidents, now),
        listed=asked,
        is_empty=not total and not asked.without and number == 1,
        live=urlencode({**asked.query(), "part": "live"}),
        states=list(RunState),
        owners=app.store.sweep_owners(),
        service=service_of(request),
    )


# The page of a search over everything: sweeps, trials and layouts.


@router.get("/find")
def find_page(request: Request, app: AppOf, q: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Show the sweeps and trials that a search text may mean; the id of a sweep or trial redirects to its page."""
    if q.strip() and (place := exact_place(app.store, q)):
        return RedirectResponse(f"{request.scope.get('root_path', '')}{place}", HTTPStatus.SEE_OTHER)
    found = find(app.store, q, now=app.clock.now()) if q.strip() else None
    return page(request, "find.html", asked=q, report=finding_report(q, found))
