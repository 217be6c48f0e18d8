"""Pages of questions: a form whose address is the question, and beside it the report of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fastapi import Request, Response

from api.dashboard.render import page
from api.dashboard.views.address import Address
from autotuner.catalog.models import models
from autotuner.catalog.software import stacks
from autotuner.core import documents
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.errors import AutotunerError, Busy, InvalidInput, NotFound, StoreUnavailable, quoted
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.text import Input, input_for, inputs_of, to_document
from autotuner.report.html import Html
from autotuner.report.report import Report
from autotuner.service.build import App

R = TypeVar("R")
A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[R, A]):
    """A question with a page of its own."""

    title: str
    lead: str
    """What it asks, beside the title."""
    topic: str
    """Title of the inputs that have no topic of their own."""
    button: str
    request: type[R]
    """What the form asks; it has an input for each field."""
    ask: Callable[[App, R], A]
    """Returns the answer, or what is known of one that is still computed."""
    report: Callable[[R, A], Report]
    """Says what an answer means."""
    usual: Mapping[str, str]
    """Texts of inputs before anybody types."""
    progress: Callable[[A], tuple[int, int] | None] = lambda answer: None
    """Pieces of work that are done and known, of an answer that is still computed."""
    nothing_asked: str = ""
    """What a page says that nobody asked anything yet; empty: it answers what usually stands in the inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A form as it was sent: its texts, the errors in them, and the answer."""

    texts: Mapping[str, str]
    """By the name of the input."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """By the name of the input; under the empty name what is about no input."""
    report: Report | None = None
    progress: tuple[int, int] | None = None
    """Pieces of work that are done and known; None where nothing is computed."""


def question_page(http: Request, app: App, question: Question[R, A], part: str | None) -> Response:
    """Return the page of a question, or with ``part`` its answer alone."""
    address, inputs = Address.of(http), inputs_of(question.request)
    asked = _answered(app, question, inputs, http.query_params)
    html = Html(http.scope.get("root_path", ""))
    shown: dict[str, Any] = {"question": question, "given": asked, "html": html, "labels": _labels(inputs)}
    if part:
        return page(http, "_answer.html", **shown)
    groups: dict[str, list[Input]] = {}
    for one in inputs:
        groups.setdefault("" if one.is_rare else one.topic or question.topic, []).append(one)
    rare = groups.pop("", [])
    is_open = any(one.name in asked.errors or asked.texts[one.name] not in ("", one.default) for one in rare)
    names = {one.name: _names(app, one) for one in inputs if one.named is not None}
    live = address.with_(part="live")
    return page(http, "question.html", groups=groups, rare=rare, is_open=is_open, names=names, live=live, **shown)


def _answered(app: App, question: Question[R, A], inputs: tuple[Input, ...], query: Mapping[str, str]) -> Asked:
    """Answer what an address asks; what it leaves out is as usual, as far as it must be said."""
    is_asked = any(name != "part" for name in query)
    texts = {one.name: _text(one, query, question.usual, is_asked=is_asked) for one in inputs}
    if question.nothing_asked and not is_asked:
        return Asked(texts=texts)
    try:
        request = documents.read(question.request, to_document(inputs, texts))
        answer = question.ask(app, request)
    except (Busy, StoreUnavailable):
        raise
    except AutotunerError as error:
        return Asked(texts=texts, errors=_by_input(inputs, error, question.usual))
    if (progress := question.progress(answer)) is not None:
        return Asked(texts=texts, progress=progress)
    return Asked(texts=texts, report=question.report(request, answer))


def _text(one: Input, query: Mapping[str, str], usual: Mapping[str, str], *, is_asked: bool) -> str:
    typed = next((query[name].strip() for name in one.names if name in query), "")
    if typed or (is_asked and not one.is_required):
        return typed or ("" if any(name in query for name in one.names) else one.default)
    return usual.get(one.name, one.default)


def _by_input(inputs: tuple[Input, ...], error: AutotunerError, usual: Mapping[str, str]) -> Mapping[str, str]:
    """Return what is wrong beside the input that it is about; what is about none stands under no name."""
    if isinstance(error, NotFound):
        about = input_for(inputs, error.kind) or input_for(inputs, f"{error.kind}s")
        return {about.name if about else "": str(error)}
    if not isinstance(error, InvalidInput):
        return {"": str(error)}
    found: dict[str, str] = {}
    for each in error.complaints:
        about = input_for(inputs, each.field)
        near = usual.get(about.name) if about and each.nearest is None else each.nearest
        said = f"{quoted(each.value)}: {each.rule}" + ("" if near is None else f"; nearest: {near}")
        found.setdefault(about.name if about else "", said if about else f"{each.field} = {said}")
    return found


def _labels(inputs: Iterable[Input]) -> Mapping[str, str]:
    return {one.name: one.label for one in inputs}


def _names(app: App, one: Input) -> Mapping[str, tuple[str, ...]]:
    """Return what an input may name, by where it is known."""
    if one.named is TransformerSpec:
        return {"stored here": tuple(model.name for model in app.store.list_models()), "catalog": models()}
    if one.named is Cluster:
        return {"stored here": (LOCAL, *(cluster.name for cluster in app.store.list_clusters()))}
    return {"catalog": stacks()} if one.named is Stack else {}
