"""What somebody gave the form, as text by the name of the input, and the body of ``POST /sweeps`` that it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from api.dashboard.new_sweep.inputs import AXES, CHOSEN, INPUTS, SUITS, Input, axis_values
from api.dashboard.views.address import DEFAULT
from autotuner.catalog.hardware import load_accelerator
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.codec import parse_object, to_plain, without_defaults
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.fault_trace import FaultTrace, at_worst
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import SweepRequest
from autotuner.search.space.trainers import trial_space
from autotuner.service.build import App

# What somebody gave the form, as text by the name of the input: nothing that was typed is lost, legal or not.

BY_NAME, DESCRIBED = "name", "described"
CATALOG, STORED = "catalog", "stored"
"""Where a cluster comes from, beside ``local`` and a description."""

_OF_SWEEP = "sweep:"

_SHORT = {
    "seq_len": "workload.seq_len",
    "global_batch_size": "workload.global_batch_size",
    "lengths": "workload.lengths",
    "optimizer_state_precision": "workload.optimizer_state_precision",
}
"""What addresses of a job call inputs of the form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The texts of the form."""

    values: Mapping[str, tuple[str, ...]]
    """By name of the input, in the order of the form; checkboxes of one name have several."""
    is_form: bool = False
    """They are all of a form's, so that a checkbox that is missing is one that was cleared."""

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str]], *, is_form: bool = False) -> Self:
        """Of what a form sent, or a query."""
        values: dict[str, tuple[str, ...]] = {}
        for name, value in pairs:
            values[name] = (*values.get(name, ()), value)
        return cls(values=values, is_form=is_form)

    @classmethod
    def of_query(cls, pairs: Iterable[tuple[str, str]], app: App) -> Self:
        """Of an address: inputs by their names, and a job as pages that explore say it.

        Raises:
            NotFound: It names a sweep that is not stored.
            InvalidInput: A word of its layout is unknown.
        """
        said = {_SHORT.get(name, name): value for name, value in pairs if value}
        given = dict(cls.of_pairs((name, value) for name, value in pairs if "." in name or name in INPUTS).values)
        given |= {name: (said[name],) for name in _SHORT.values() if name in said}
        given.setdefault(_SHORT["seq_len"], (str(DEFAULT.seq_len),))
        given.setdefault(_SHORT["global_batch_size"], (str(DEFAULT.global_batch_size),))
        given |= _model_said(said.get("model", DEFAULT.model), app)
        given |= _cluster_said(said.get("cluster", DEFAULT.cluster), app)
        return cls(values=given)

    @classmethod
    def of_request(cls, request: SweepRequest, app: App) -> Self:
        """What asks for such a sweep."""
        job = request.job
        cluster, links = _healthy(job.cluster, app)
        plain = to_plain(request) | {
            "workload": to_plain(job.workload),
            "trainer": None,
            "link_health": to_plain(links),
        }
        plainly = [path for path in INPUTS if path != "trial_cluster" and not path.startswith("fault_trace")]
        values: dict[str, tuple[str, ...]] = {path: (INPUTS[path].shown(_at(plain, path)),) for path in plainly}
        values["trainer"] = ("" if request.trainer is None else request.trainer.name,)
        if request.trial_cluster is not None:
            values["trial_cluster"] = (_short_cluster(request.trial_cluster, app),)
        if request.fault_trace is not None:
            values |= _trace_of(request.fault_trace)
        worst = at_worst(job, request.fault_trace)
        suiting = trial_space(worst, request.trainer, {}, is_gated=request.loss_gate.enabled)
        return cls(
            values=values | _model_of(job.model, app) | _cluster_of(cluster, app) | _space(request.space, suiting)
        )

    def holding(self, words: str, suiting: SearchSpace) -> Given:
        """With a space that holds a layout: its values beside those that suit the job.

        Raises:
            InvalidInput: A word of the layout is unknown.
        """
        layout: Layout = Layout.parse(words)
        changed: dict[str, tuple[str, ...]] = {}
        for name, axis in AXES.items():
            values, value = suiting.values(name), getattr(layout, name)
            if values is not None and value not in values and axis.path not in self.values:
                how, said = axis_values(axis, (*values, value), values)
                changed |= {axis.path: (how,), f"{axis.path}.values": said}
        return Given(values={**self.values, **changed})

    def text(self, name: str, default: str = "") -> str:
        """The text of an input, without space around it."""
        return self.values.get(name, (default,))[-1].strip()

    def texts(self, name: str) -> tuple[str, ...]:
        """All texts of an input."""
        return self.values.get(name, ())

    def shown(self, path: str) -> str:
        """The text that an input shows: what was given, or its default."""
        one = INPUTS[path]
        if path in self.values:
            return self.values[path][-1]
        if one.kind == "switch" and self.is_form:
            return "off"
        return one.shown_default

    def how(self, axis: str) -> str:
        """How an axis is set."""
        path = AXES[axis].path
        return self.text(path, CHOSEN if f"{path}.values" in self.values and not self.is_form else SUITS)


def _model_said(name: str, app: App) -> dict[str, tuple[str, ...]]:
    if name.startswith(_OF_SWEEP):
        return _model_of(app.store.get_sweep(name.removeprefix(_OF_SWEEP)).request.job.model, app)
    return {"model.from": (BY_NAME,), "model": (name,)}


def _model_of(model: TransformerSpec, app: App) -> dict[str, tuple[str, ...]]:
    """By its name, where that still means the same; else in full."""
    try:
        if app.model(model.name) == model:
            return {"model.from": (BY_NAME,), "model": (model.name,)}
    except AutotunerError:
        pass
    return {"model.from": (DESCRIBED,), "model.document": (json.dumps(without_defaults(model), indent=1),)}


def _cluster_said(name: str, app: App) -> dict[str, tuple[str, ...]]:
    if name.startswith(_OF_SWEEP):
        return _cluster_of(app.store.get_sweep(name.removeprefix(_OF_SWEEP)).request.job.cluster, app)
    if name == LOCAL:
        return {"cluster.from": (LOCAL,)}
    accelerator, _, count = name.partition(":")
    if count and _is_accelerator(accelerator):
        return {"cluster.from": (CATALOG,), "cluster.accelerator": (accelerator,), "cluster.count": (count,)}
    return {"cluster.from": (STORED,), "cluster.stored": (name,)}


def _is_accelerator(name: str) -> bool:
    try:
        load_accelerator(name)
    except AutotunerError:
        return False
    return True


def _cluster_of(cluster: Cluster, app: App) -> dict[str, tuple[str, ...]]:
    if _is_named(cluster, app):
        return _cluster_said(cluster.name, app)
    return {"cluster.from": (DESCRIBED,), "cluster.document": (json.dumps(without_defaults(cluster), indent=1),)}


def _healthy(cluster: Cluster, app: App) -> tuple[Cluster, tuple[LinkHealth, ...]]:
    """The cluster as its name says it, and what of its links that does not know."""
    named = replace(cluster, link_health=())
    knows = cluster.name != LOCAL and _is_named(cluster, app)
    if not knows and _is_named(named, app):
        return named, cluster.link_health
    return cluster, ()


def _trace_of(trace: FaultTrace) -> dict[str, tuple[str, ...]]:
    """Its lines, and how long it lasts where they do not say that."""
    lines = str(trace)
    told = FaultTrace.parse(lines).num_steps == trace.num_steps
    return {"fault_trace": (lines,), "fault_trace.num_steps": ("" if told else str(trace.num_steps),)}


def _short_cluster(cluster: Cluster, app: App) -> str:
    return cluster.name if _is_named(cluster, app) else json.dumps(without_defaults(cluster))


def _is_named(cluster: Cluster, app: App) -> bool:
    if cluster.name == LOCAL:
        return True  # whatever this machine is now
    try:
        return app.cluster(cluster.name) == cluster
    except AutotunerError:
        return False


def _space(space: SearchSpace, suiting: SearchSpace) -> dict[str, tuple[str, ...]]:
    said: dict[str, tuple[str, ...]] = {}
    for name, axis in AXES.items():
        how, values = axis_values(axis, space.values(name), suiting.values(name))
        if how != SUITS:
            said |= {axis.path: (how,), f"{axis.path}.values": values}
    return said


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document[name]
    return document


# The body of ``POST /sweeps`` that a form asks for, without what is as nobody said it.


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
    if space := _body_space(given):
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


def _body_space(given: Given) -> dict[str, Any]:
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
    return parse_object(text, field)


def _put(body: dict[str, Any], path: str, value: Any) -> None:
    *groups, name = path.split(".")
    for group in groups:
        body = body.setdefault(group, {})
    body[name] = value
