"""A report as each surface shows it, as plain text."""

from __future__ import annotations

import html
import io
import re

from rich.console import Console

from autotuner.report.html import Html
from autotuner.report.markdown import markdown
from autotuner.report.report import Report
from autotuner.report.terminal import render as to_terminal


def surfaces(report: Report) -> tuple[str, str, str]:
    """Return what a terminal, a page and Markdown show, each with single spaces between words."""
    written = io.StringIO()
    Console(file=written, width=10_000).print(to_terminal(report))
    page = Html()
    shown = f"{html.escape(report.headline)} {page.facts(report)} {page.sections(report)}"
    text = html.unescape(re.sub(r"<[^>]+>", " ", shown))
    plain = re.sub(r"\\(.)", r"\1", markdown(report))
    return _single(written.getvalue()), _single(text), _single(plain)


def _single(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text)
