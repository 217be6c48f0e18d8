"""Shows the request of a form in other forms: for curl, in Python and on the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pprint import pformat
from typing import Any

from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.text import inputs_of
from autotuner.report.report import Code, Section

_TOKEN = "AUTOTUNER_TOKEN"


def elsewhere(texts: Mapping[str, str], document: Mapping[str, Any], service: str, *, asks: bool) -> Section:
    """Return a section that shows how to send the request of a form with curl, in Python and on the command line.

    Args:
        texts: Texts of the form by the name of the input.
        document: The body of ``POST /sweeps`` that these texts ask for.
        service: Address of the service, without a slash at the end.
        asks: True if the service requires a token; the examples then send a token.
    """
    return Section(
        blocks=(
            Code(_curl(document, service, asks=asks), "curl"),
            Code(_python(document, service, asks=asks), "Python"),
            Code(_command(texts, document, service), "Command line"),
        )
    )


def _curl(document: Mapping[str, Any], service: str, *, asks: bool) -> str:
    token = f' -H "Authorization: Bearer ${_TOKEN}"' if asks else ""
    body = shlex.quote(json.dumps(document, indent=1))
    return f"curl -sS{token} -H 'Content-Type: application/json' \\\n  {service}/api/v1/sweeps -d {body}\n"


def _python(document: Mapping[str, Any], service: str, *, asks: bool) -> str:
    first = "import os\n\n" if asks else ""
    token = f', token=os.environ["{_TOKEN}"]' if asks else ""
    return f"""{first}from autotuner.core import documents
from autotuner.core.sweep_requests import SweepCreate
from autotuner.remote import Remote

SWEEP = {pformat(document, width=100, sort_dicts=False)}

with Remote("{service}"{token}) as service:
    sweep = service.create_sweep(documents.read(SweepCreate, SWEEP))
    print(sweep.id)
"""


def _command(texts: Mapping[str, str], document: Mapping[str, Any], service: str) -> str:
    return " \\\n  ".join(["autotuner sweep", f"--server {service} --no-wait", *_flags(texts, document)]) + "\n"


def _flags(texts: Mapping[str, str], document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the command-line flag for each text of the form.

    Settings of trials that have no flag of their own are joined in ``--trial``.
    """
    inputs = inputs_of(SweepCreate)
    for one in inputs:
        if one.is_flag and one.name in texts:
            yield one.flag if texts[one.name] == "yes" else f"--no-{one.flag[2:]}"
        elif one.name in texts:
            yield f"{one.flag} {shlex.quote(texts[one.name])}"
    own = {one.path[-1] for one in inputs if one.path[0] == "trial"}
    if more := {name: value for name, value in document.get("trial", {}).items() if name not in own}:
        yield f"--trial {shlex.quote(json.dumps(more))}"
