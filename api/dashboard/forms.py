"""Pages that answer a question: a form whose address contains the question, beside the report of the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request, Response

from autotuner.api.dashboard.render import page
from autotuner.api.dashboard.views.address import Address
from autotuner.catalog.models import models
from autotuner.catalog.software import stacks
from autotuner.core import documents
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.errors import AutotunerError, Busy, InvalidInput, NotFound, StoreUnavailable, quoted
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.text import Input, input_for, inputs_of, to_document, to_text
from autotuner.core.trial_spec import Trainer
from autotuner.report.report import Report
from autotuner.service.build import App

R = TypeVar("R")
A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[R, A]):
    """A page with a form for one kind of question: its texts, its request type, and the function that answers it."""

    title: str
    lead: str
    """Text below the title that explains the form."""
    topic: str
    """Title of the group of inputs that name no group."""
    button: str
    request: type[R]
    """Request type of the form, which has an input for each field."""
    ask: Callable[[App, R], A]
    """Function that returns the answer; if it is still being computed, the part that is known."""
    report: Callable[[R, A], Report]
    """Function that makes the report of an answer."""
    usual: Mapping[str, str]
    """Texts in the inputs before the user types anything, by name of the input."""
    progress: Callable[[A], tuple[int, int] | None] = lambda answer: None
    """Function that returns the numbers of finished and of known pieces of work while the answer is still being
    computed."""
    nothing_asked: str = ""
    """Text of the page before its form was sent; empty: the page answers with the default inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The content of a page's form after the form was sent: the user's texts, the errors in them, and the answer."""

    texts: Mapping[str, str]
    """Text of each input, by its name."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Errors by the name of the input; errors about no input are under the empty name."""
    report: Report | None = None
    progress: tuple[int, int] | None = None
    """Numbers of finished and of known pieces of work; None if nothing is being computed."""


def question_page(http: Request, app: App, question: Question[R, A], part: str | None) -> Response:
    """Return the page of a question, with its form and its answer.

    Args:
        http: The request of the page; its query holds the texts of the form.
        app: The application that answers.
        question: The question of the page.
        part: Not empty if a script asks for the answer alone, without the form.
    """
    address, inputs = Address.of(http), inputs_of(question.request)
    asked = _answered(app, question, inputs, http.query_params)
    shown: dict[str, Any] = {"question": question, "given": asked, "labels": {one.name: one.label for one in inputs}}
    if part:
        return page(http, "_answer.html", **shown)
    groups = group_inputs(inputs, lambda one: "" if one.is_rare else one.topic or question.topic)
    rare = groups.pop("", [])
    is_open = any(one.name in asked.errors or asked.texts[one.name] not in ("", one.default) for one in rare)
    live = address.with_(part="live")
    names = names_of(app, inputs)
    return page(http, "question.html", groups=groups, rare=rare, is_open=is_open, names=names, live=live, **shown)


def group_inputs(inputs: Iterable[Input], title: Callable[[Input], str]) -> dict[str, list[Input]]:
    """Return the inputs grouped by title; each group keeps the order of its inputs.

    Args:
        inputs: Inputs of a form.
        title: Returns the title of the group that an input belongs to.
    """
    groups: dict[str, list[Input]] = {}
    for one in inputs:
        groups.setdefault(title(one), []).append(one)
    return groups


def _answered(app: App, question: Question[R, A], inputs: tuple[Input, ...], query: Mapping[str, str]) -> Asked:
    """Answer the question in an address; inputs that the address leaves out have their usual texts."""
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
        return Asked(texts=texts, errors=errors_of(inputs, error, question.usual))
    if (progress := question.progress(answer)) is not None:
        return Asked(texts=texts, progress=progress)
    return Asked(texts=texts, report=question.report(request, answer))


async def read_texts(request: Request) -> tuple[tuple[str, str], ...]:
    """Return the texts of a form that a browser sent, as pairs of element name and text; files are left out."""
    form = await request.form()
    return tuple((name, text) for name, text in form.multi_items() if isinstance(text, str))


SentOf = Annotated[tuple[tuple[str, str], ...], Depends(read_texts)]


def text_in(one: Input, query: Mapping[str, str]) -> str | None:
    """Return the text for an input in a query, under any name of the input; None if the query has none of the names."""
    return next((query[name].strip() for name in one.names if name in query), None)


def _text(one: Input, query: Mapping[str, str], usual: Mapping[str, str], *, is_asked: bool) -> str:
    text = text_in(one, query)
    if text or (is_asked and not one.is_required):
        return one.default if text is None else text
    return usual.get(one.name, one.default)


def errors_of(
    inputs: tuple[Input, ...],
    error: AutotunerError,
    usual: Mapping[str, str] | None = None,
    others: Collection[str] = (),
) -> Mapping[str, str]:
    """Return the error messages by the name of the input that each is about.

    A message that is about no input has the empty name.

    Args:
        inputs: Inputs of the form.
        error: The error that the form's request caused.
        usual: Usual text of each input, by the input's name. A message shows it as an example if the error has no
            nearest legal value.
        others: Paths of request fields for which the form has elements of its own. A message about such a field gets
            this path as its name, even if the field also belongs to an input.
    """
    if isinstance(error, NotFound):
        about = input_for(inputs, error.kind) or input_for(inputs, f"{error.kind}s")
        if about is None and error.kind in _PARTS_OF_CLUSTERS:
            about = next((one for one in inputs if one.named is Cluster), None)
        return {about.name if about else "": str(error)}
    if not isinstance(error, InvalidInput):
        return {"": str(error)}
    found: dict[str, str] = {}
    for each in error.complaints:
        name = next((one for one in others if f"{each.field}.".startswith(f"{one}.")), "")
        about = None if name else input_for(inputs, each.field)
        example = (usual or {}).get(about.name) if about else None
        value = f"{quoted(each.value)}: " if about is None or about.has_words else ""
        said = f"{value}{each.rule}{_hint(each, about, example)}"
        place = name or (about.name if about else "")
        found.setdefault(place, f"{inside} = {said}" if (inside := _inside(each.field, about, name)) else said)
    return found


def _inside(field: str, about: Input | None, name: str) -> str:
    """Return the rest of a field's path, below the input beside which its error is shown."""
    path = ".".join(about.path) if about else name
    return field[len(path) :].strip(".") if field.startswith(f"{path}.") or not path else ""


_PARTS_OF_CLUSTERS = ("accelerator", "link", "profile")
"""Names of the descriptions to which a cluster refers by name."""


def _hint(error: InvalidInput, about: Input | None, example: str | None) -> str:
    """Return the nearest legal value; without one, the example, unless the rule has an example itself."""
    if error.nearest is not None:
        return f"; nearest: {_near(error, about)}"
    return f"; for example {example}" if example and not re.search("for example|such as", error.rule) else ""


def _near(error: InvalidInput, about: Input | None) -> object:
    """Return the nearest legal value, written as in the input if the error is about the whole input."""
    is_number = isinstance(error.nearest, (int, float)) and not isinstance(error.nearest, bool)
    is_whole = about is not None and error.field == ".".join(about.path) and not about.is_list
    return to_text(error.nearest, about) if about and is_number and is_whole else error.nearest


def names_of(app: App, inputs: Iterable[Input]) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the names to choose from, such as names of models, for each input that takes the name of something.

    The first key is the name of the input. The second key is the source of the names: "stored here", "catalog" or
    "registered". Inputs that take no name, such as a batch size, are not in the result.
    """
    return {one.name: _names(app, one.named) for one in inputs if one.named is not None}


def _names(app: App, kind: type[Any]) -> Mapping[str, tuple[str, ...]]:
    if kind is TransformerSpec:
        return {"stored here": app.store.descriptions.names(TransformerSpec), "catalog": tuple(sorted(models()))}
    if kind is Cluster:
        return {"stored here": (LOCAL, *app.store.descriptions.names(Cluster))}
    return {Stack: {"catalog": stacks()}, Trainer: {"registered": tuple(app.trainers)}}.get(kind, {})
