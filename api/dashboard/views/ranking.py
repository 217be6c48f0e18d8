"""Addresses of a sweep's page, read as questions to its ranking."""

from __future__ import annotations

from api.dashboard.views.address import Address
from autotuner.core.errors import InvalidInput
from autotuner.report.ranking import Asked
from autotuner.report.report import Link
from autotuner.search.results.trial_query import TableQuery

_FORM = ("where", "sort", "columns", "page")
"""Query parameters of the form beside the ranking."""


def asked_of(address: Address, sweep_id: str, *, is_untried: bool) -> tuple[Asked, InvalidInput | None]:
    """Return what an address asks for; the usual table beside what could not be read of it."""
    given = dict.fromkeys(name for name, _ in address.chosen)
    page, problem, query = address.get("page"), None, TableQuery()
    try:
        query = TableQuery.read(*map(address.get, ("where", "sort", "columns")))
    except InvalidInput as error:
        problem = error
    asked = Asked(
        query=query,
        are_columns_chosen=bool(address.get("columns")),
        is_untried=is_untried,
        page=int(page) if page.isdecimal() and len(page) < 7 else 1,
        address=Link("", "sweeps", sweep_id, query={name: address.get(name) for name in given}),
    )
    return asked, problem


def taken_along(asked: Asked, kind: str, **more: int) -> Link:
    """Return the same rows by the REST service, as ``table`` or ``table.csv``."""
    rest = {name: value for name, value in asked.address.query.items() if name in _FORM[:3]}
    rows = {"rows": "untried"} if asked.is_untried else {}
    return Link(kind, f"api/v1/sweeps/{asked.address.id}/{kind}", query={**rest, **rows, **more})
