"""Reports as one HTML file that needs no network, for a mail or an archive."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from autotuner.report.html import Html
from autotuner.report.report import Report

_LINKS = re.compile(r"</?a\b[^>]*>")

_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}
main > h2 {{ margin-top: var(--s7); padding-top: var(--s4); border-top: 1px solid var(--line); }}
</style>
</head>
<body>
<main id="main">
<h1>{title}</h1>
{inside}
</main>
<script type="application/json" id="data">{data}</script>
</body>
</html>
"""


def without_links(markup: str) -> str:
    """Return HTML with the texts of its links in the place of the links."""
    return _LINKS.sub("", markup)


def html_file(title: str, reports: Sequence[Report], *, data: Any, style: str, url: str | None) -> str:
    """Return a self-contained HTML page: reports with their charts, the style sheet, and the data of the answer.

    Args:
        title: Title and heading of the page.
        reports: Reports, in order; each has its headline as a heading.
        data: The answer as JSON data, for programs that read the file. The page has it in the element with the id
            ``data``.
        style: Style sheet.
        url: Address of the service that links lead to; None: the page has no links.
    """
    html = Html(url or "")
    inside = "\n".join(
        f"<h2>{escape(report.headline)}</h2>\n<p>{html.facts(report)}</p>\n{html.sections(report)}"
        for report in reports
    )
    if url is None:
        inside = without_links(inside)
    written = json.dumps(data).replace("<", "\\u003c")  # no text may end the element
    return _FRAME.format(title=escape(title), style=style, inside=inside, data=written)
