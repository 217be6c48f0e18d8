"""Renders a template with typed values as a page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotuner.api.dashboard import words
from autotuner.api.dashboard.style import style_version
from autotuner.api.edge.caller import caller_in, csrf_in
from autotuner.core.access import Scope
from autotuner.core.sweep import EVENT_KINDS
from autotuner.report import layouts
from autotuner.report.cells import key
from autotuner.report.html import Html
from autotuner.report.report import Report

STATIC = Path(__file__).parent / "static"
_TEMPLATES = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {name: getattr(words, name) for name in words.__all__}
    environment.globals |= {"key": lambda *entries: key(entries, "span"), "event_kinds": " ".join(EVENT_KINDS)}
    environment.filters |= {"degrees": layouts.degrees, "chips": layouts.chips, "in_short": layouts.in_short}
    return environment


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return an HTML page: the template rendered with the given values, all of which are escaped.

    Args:
        request: The request of the page.
        template: Path of the template in the folder of templates.
        status: HTTP status of the answer.
        values: Values for the template by name, in addition to the values that every page has.
    """
    content = _environment().get_template(template).render(**_around(request) | values)
    return Response(content, status, media_type="text/html")


def report_page(
    request: Request,
    report: Report,
    *,
    part: str | None = None,
    every_s: float | None = None,
    parent: tuple[str, str] | None = None,
    template: str = "report.html",
    **values: Any,
) -> Response:
    """Return a report as an HTML page, or only its sections.

    Args:
        request: The request of the page.
        report: The report to show.
        part: Not empty if a script asks for the sections alone; None: the whole page.
        every_s: Seconds after which the page asks for its sections again; None: never.
        parent: Words and path of a link to the page above this one; None: no link.
        template: Template of the page. A page with forms has its own template.
        values: Further values for the template by name, such as ``json``, the path of the REST route with the same
            content; and ``status``, the HTTP status of the answer.
    """
    html = Html(request.scope.get("root_path", ""), csrf_in(request.scope) or "")
    if part:
        return Response(html.sections(report), media_type="text/html")
    live = urlencode({**request.query_params, "part": "live"})
    around = {"live": live, "every_s": every_s, "parent": parent, "json": ""}
    return page(request, template, report=report, html=html, **around | values)


def service_of(request: Request) -> str:
    """Return the address under which the caller reached the service, for commands that pages show.

    The address has no slash at its end.
    """
    return str(request.base_url).rstrip("/")


def _around(request: Request) -> dict[str, Any]:
    """Return the values that every page needs: the path of the service, the caller, and the token for forms."""
    caller = caller_in(request.scope)
    return {
        "html": Html(request.scope.get("root_path", ""), csrf_in(request.scope) or ""),
        "place": _place(request),
        "style_version": style_version(),
        "root": request.scope.get("root_path", ""),
        "caller_name": "" if caller is None else caller.name,
        "is_admin": caller is not None and caller.scope.covers(Scope.ADMIN),
        "csrf": csrf_in(request.scope),
    }


def _place(request: Request) -> str:
    """Return the path of the menu entry to which the page belongs."""
    first = request.url.path.removeprefix(request.scope.get("root_path", "")).strip("/").partition("/")[0]
    return "/" if first in ("sweeps", "trials") else f"/{first}"


def wants_page(request: Request) -> bool:
    """Return True if a browser asked for a page of the dashboard, and not for JSON of the REST service.

    An error is then answered with a page.
    """
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")
