"""Reads the address of a sweep's page as a query of its ranking."""

from __future__ import annotations

from autotuner.api.dashboard.views.address import Address
from autotuner.core.errors import InvalidInput
from autotuner.report.ranking import Asked
from autotuner.report.report import Link
from autotuner.search.results.trial_query import TableQuery

_FORM = ("where", "sort", "columns", "page")
"""Query parameters that belong to the form beside the ranking."""


def asked_of(address: Address, sweep_id: str, *, is_untried: bool) -> tuple[Asked, InvalidInput | None]:
    """Return the reader's choices for the ranking in the query of a sweep's page, and the error if it cannot be read.

    The choices are the filter, order, columns and page of the table. With an error, the table has its defaults.

    Args:
        address: Query of the sweep's page.
        sweep_id: Id of the sweep, for links.
        is_untried: True if the table shows predicted layouts that no trial tried, instead of trials.
    """
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
    """Return a link to the REST route that answers with the same rows of the ranking.

    Args:
        asked: Filter, order and columns of the table on the page.
        kind: End of the route's path: ``table`` for JSON, or ``table.csv``.
        more: Further query parameters, such as ``limit``.
    """
    rest = {name: value for name, value in asked.address.query.items() if name in _FORM[:3]}
    rows = {"rows": "untried"} if asked.is_untried else {}
    return Link(kind, f"api/v1/sweeps/{asked.address.id}/{kind}", query={**rest, **rows, **more})
