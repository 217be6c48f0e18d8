"""The body of ``POST /sweeps`` that a form asks for, without what is as nobody said it."""

from __future__ import annotations

import json
from typing import Any

from api.dashboard.new_sweep.axes import AXES, SUITS
from api.dashboard.new_sweep.given import CATALOG, DESCRIBED, STORED, Given
from api.dashboard.new_sweep.inputs import INPUTS, Input
from autotuner.core.cluster import LOCAL
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace


def body_of(given: Given) -> dict[str, Any]:
    """The body, as JSON; what is no legal value stays in it, to be refused with its name.

    Raises:
        InvalidInput: A description is no JSON, or a line names no link.
    """
    body: dict[str, Any] = {"model": _model(given), "cluster": _cluster(given), "workload": {}}
    for path, one in INPUTS.items():
        if path.startswith("fault_trace"):
            continue  # two inputs make it
        text = given.shown(path).strip()
        value = _read(one, text) if text else None
        if path == "trial_cluster" and text.startswith("{"):
            value = _document(text, path)
        if value is None or value == one.default or (one.kind == "integers" and not value):
            continue
        _put(body, path, value)
    if trace := _fault_trace(given):
        body["fault_trace"] = trace
    if space := _space(given):
        body["space"] = space
    return {name: value for name, value in body.items() if value is not None}


def _model(given: Given) -> Any:
    if given.text("model.from") == DESCRIBED:
        return _document(given.text("model.document"), "model")
    return given.text("model") or None


def _cluster(given: Given) -> Any:
    source = given.text("cluster.from", CATALOG)
    if source == LOCAL:
        return LOCAL
    if source == STORED:
        return given.text("cluster.stored") or None
    if source == DESCRIBED:
        return _document(given.text("cluster.document"), "cluster")
    name = f"{given.text('cluster.accelerator')}:{given.text('cluster.count')}"
    engine, _, queue = given.text("cluster.engine", LOCAL).partition("/")
    if engine in ("", LOCAL):
        return name
    elsewhere = {"base": name, "name": name, "engine": engine}
    return elsewhere | {"queue": queue} if queue else elsewhere


def _space(given: Given) -> dict[str, Any]:
    asked = {name: given.how(name) for name in AXES}
    return {
        name: AXES[name].read(how, given.texts(f"{AXES[name].path}.values"))
        for name, how in asked.items()
        if how != SUITS
    }


def _read(one: Input, text: str) -> Any:
    """What an input says, as the body has it; what is wrong with it is said of the input."""
    try:
        return one.read(text)
    except InvalidInput as error:
        raise InvalidInput(one.path, error.value, error.rule, error.nearest) from error


def _fault_trace(given: Given) -> Any:
    """The lines as they were typed, or the trace in full where it does not last as long as they say by themselves."""
    lines, num_steps = (
        given.text("fault_trace"),
        INPUTS["fault_trace.num_steps"].read(given.text("fault_trace.num_steps")),
    )
    if not lines:
        return None
    if num_steps != "" and (not isinstance(num_steps, int) or num_steps < 1):
        raise InvalidInput("fault_trace.num_steps", num_steps, "must be 1 or more", 1)
    try:
        trace = FaultTrace.parse(lines, num_steps=num_steps or None)
    except InvalidInput as error:
        at = "fault_trace.num_steps" if error.field == "num_steps" else "fault_trace"
        raise InvalidInput(at, error.value, error.rule, error.nearest) from error
    return to_plain(trace) if num_steps else lines


def _document(text: str, field: str) -> Any:
    if not text:
        raise InvalidInput(field, "nothing", "is required: paste a description in JSON")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field, text[:60], f"must be JSON ({error})") from error
    if not isinstance(document, dict):
        raise InvalidInput(field, text[:60], "must be a JSON object")
    return document


def _put(body: dict[str, Any], path: str, value: Any) -> None:
    *groups, name = path.split(".")
    for group in groups:
        body = body.setdefault(group, {})
    body[name] = value
