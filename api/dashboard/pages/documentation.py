"""The documentation site under /docs, as ``make docs`` built it."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.staticfiles import StaticFiles
from starlette.responses import RedirectResponse

from autotuner.api.dashboard.render import page
from autotuner.api.dependencies import AppOf
from autotuner.api.edge.log import PAGE_POLICY

router = APIRouter(include_in_schema=False, default_response_class=Response)

_POLICY = PAGE_POLICY.replace("img-src 'self'", "img-src 'self' data:")
"""Security policy of the site: the theme's style sheet embeds its icons as data; everything else is a file, as on other
pages."""

_HEADERS = {"Content-Security-Policy": _POLICY, "Cache-Control": "private, no-cache"}
"""Response headers: browsers may cache files of the site, but ask each time if they have changed."""


@router.get("/docs")
@router.get("/docs/")
def documentation_home(request: Request, app: AppOf) -> Response:
    """Redirect to the first page of the documentation site, or show how to build the site."""
    if not _is_built(app.settings.site_dir):
        return page(request, "unbuilt.html")
    return RedirectResponse(f"{request.scope.get('root_path', '')}/docs/index.html")


@router.get("/docs/{path:path}")
async def documentation_file(request: Request, app: AppOf, path: str) -> Response:
    """Answer with the file at ``path`` of the documentation site.

    If the site is not built, the answer is a page that shows how to build it, with status 404.
    """
    if not _is_built(app.settings.site_dir):
        return page(request, "unbuilt.html", status=404)
    response = await StaticFiles(directory=app.settings.site_dir).get_response(path, request.scope)
    response.headers.update(_HEADERS)
    return response


def _is_built(folder: Path) -> bool:
    return (folder / "index.html").is_file()
