"""One request in three ways: as curl, as Python, as the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pprint import pformat
from typing import Any

from autotuner.core import documents
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.convergence_gate import LossGate
from autotuner.core.lines import written_lengths, written_links
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.text import Input, inputs_of, to_text
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import LengthDistribution, Workload

_TOKEN = "AUTOTUNER_TOKEN"

_GROUPS: Mapping[str, type[Any]] = {
    "workload": Workload,
    "budget": Budget,
    "trial": TrialSettings,
    "loss_gate": LossGate,
    "objective": Objective,
}
"""Fields of the body that are objects of their own in Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The request as somebody would send it without a page."""

    curl: str
    python: str
    command: str


def said(body: Mapping[str, Any], request: SweepRequest, service: str, *, asks: bool) -> Said:
    """The request in three ways.

    Args:
        body: Of ``POST /sweeps``.
        request: What it was read as; described models and clusters are files of the command line.
        service: Its address, without a slash at the end.
        asks: Whether the service wants to see a token.
    """
    return Said(
        curl=_curl(body, service, asks=asks),
        python=_python(body, service, asks=asks),
        command=_command(body, request, service),
    )


def _curl(body: Mapping[str, Any], service: str, *, asks: bool) -> str:
    token = f' -H "Authorization: Bearer ${_TOKEN}"' if asks else ""
    document = shlex.quote(json.dumps(body, indent=1))
    return f"curl -sS{token} -H 'Content-Type: application/json' \\\n  {service}/api/v1/sweeps -d {document}\n"


def _python(body: Mapping[str, Any], service: str, *, asks: bool) -> str:
    used = sorted((cls for name, cls in _GROUPS.items() if name in body), key=lambda cls: cls.__module__)
    used += [LengthDistribution] if "lengths" in body["workload"] else []
    objective = body.get("objective", {})
    used += [Metric] if {"metric", "front", "profile"} & objective.keys() else []
    used += [Weight] if "profile" in objective else []
    imports = [f"from {cls.__module__} import {cls.__name__}" for cls in used]
    first = ["import os", ""] if asks else []
    token = f', token=os.environ["{_TOKEN}"]' if asks else ""
    lines = [
        *first,
        "from autotuner.remote import Remote",
        *imports,
        "from autotuner.core.sweep_requests import SweepCreate",
        "",
        f'with Remote("{service}"{token}) as client:',
        "    sweep = client.create_sweep(",
        "        SweepCreate(",
        *(f"            {name}={_expression(name, value)}," for name, value in body.items()),
        "        )",
        "    )",
        "    print(sweep.id)",
    ]
    return "\n".join(lines) + "\n"


def _expression(name: str, value: Any) -> str:
    if name in _GROUPS:
        fields = ", ".join(f"{field}={_inner(field, inner)}" for field, inner in value.items())
        return f"{_GROUPS[name].__name__}({fields})"
    if isinstance(value, dict):
        return pformat(value, width=100, sort_dicts=False).replace("\n", "\n" + " " * 12)
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _inner(field: str, value: Any) -> str:
    match field:
        case "lengths":
            return repr(documents.read(LengthDistribution, value))
        case "metric":
            return f"Metric({value!r})"
        case "front":
            return f"({''.join(f'Metric({name!r}), ' for name in value)})"
        case "profile":
            weights = (f"Weight(metric=Metric({one['metric']!r}), weight={one['weight']!r}), " for one in value)
            return f"({''.join(weights)})"
    return repr(value)


def _command(body: Mapping[str, Any], request: SweepRequest, service: str) -> str:
    options, files = [f"--server {service}", "--no-wait"], []
    for option, field, value in _named(body, request):
        if isinstance(value, str):
            options.append(f"{option} {shlex.quote(value)}")
        else:
            files.append(f"cat > {field}.json <<'EOF'\n{json.dumps(value, indent=1)}\nEOF\n")
            options.append(f"{option} {field}.json")
    options += _plain_options(body, request)
    return "".join(files) + "autotuner sweep " + " \\\n  ".join(options) + "\n"


def _named(body: Mapping[str, Any], request: SweepRequest) -> Iterator[tuple[str, str, Any]]:
    """What is a name or, as a file, an object: whole, since a file's name would be its own."""
    small = body.get("trial_cluster")
    yield "--model", "model", _name_or(body["model"], request.job.model)
    yield "--cluster" if small is None else "--for", "cluster", _name_or(body["cluster"], _without_given(body, request))
    if small is not None:
        yield "--on", "trial_cluster", _name_or(small, request.trial_cluster)


def _without_given(body: Mapping[str, Any], request: SweepRequest) -> Cluster:
    """The cluster less what the body itself says of its links, which is an option of its own."""
    cluster = request.job.cluster
    num_known = len(cluster.link_health) - len(body.get("link_health", ()))
    return replace(cluster, link_health=cluster.link_health[:num_known])


def _name_or(given: object, thing: object) -> Any:
    return given if isinstance(given, str) else to_plain(thing)


def _plain_options(body: Mapping[str, Any], request: SweepRequest) -> Iterator[str]:
    """Yield the flags of everything that the body says, but for what is a name or a file."""
    asked = documents.read(SweepCreate, body)
    for one in inputs_of(SweepCreate):
        given = _at(body, one.path)
        if given is None or one.named is Cluster or one.named is TransformerSpec or one.path[:-1] == ("trial",):
            continue  # what is said of trials is one option
        if one.is_flag:
            yield one.flag if given else f"--no-{one.flag[2:]}"
        else:
            yield f"{one.flag} {shlex.quote(_text(one, given, attrgetter('.'.join(one.path))(asked), request))}"
    if isinstance(body.get("fault_trace"), dict) and request.fault_trace:
        yield f"--fault-steps {request.fault_trace.num_steps}"


def _at(body: Mapping[str, Any], path: Sequence[str]) -> Any:
    for name in path:
        body = body.get(name, {})
    return None if body == {} else body


def _text(one: Input, given: Any, value: Any, request: SweepRequest) -> str:
    match value:
        case LengthDistribution():
            return written_lengths(value)
        case (LinkHealth(), *_):
            return written_links(value)
        case float() if not one.example:
            return repr(value)  # with every digit
    if one.name == "fault_trace":
        return str(request.fault_trace)
    return json.dumps(given) if isinstance(given, dict) else to_text(value, one)
