"""Flags: ``@flags(PlanRequest)`` gives a command an option for each input of a request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_type_hints

import typer

from autotuner.catalog.named import load  # noqa: F401  # which has requests read the short forms of models and clusters
from autotuner.cli.inputs import read_text
from autotuner.cli.options import SELDOM, Json
from autotuner.core import documents
from autotuner.core.errors import InvalidInput
from autotuner.core.text import Input, in_words_of, inputs_of, to_document

R = TypeVar("R")

Output: TypeAlias = Annotated[
    Literal["text", "markdown", "json"], typer.Option("--output", help="Form of the answer; --json is short for json.")
]


def flags(
    request: type[R], *, usual: Mapping[str, str] | None = None, unless: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the first parameter of a command, a request, by an option for each of its inputs.

    Typer reads the options from the signature that is set here. All but those that are so or not are texts, which are
    read as those of forms are, so that bounds and errors are the same. A parameter ``output`` comes with ``--json``.

    Args:
        request: The type of the request.
        usual: Texts of inputs that the request requires, where nobody gives them.
        unless: The command's own argument in whose place the request stands: with it the command gets None.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        inputs, presets = inputs_of(request), usual or {}
        first, *own = inspect.signature(command).parameters.values()
        hints = get_type_hints(command, include_extras=True)

        @wraps(command)
        def with_flags(**given: Any) -> None:
            texts = {one.name: _text(given.pop(one.name)) for one in inputs}
            if "output" in given and given.pop("as_json"):
                given["output"] = "json"
            stands_in = None if not unless else given[unless]
            command(**{first.name: _asked(request, inputs, texts, unless, stands_in)}, **given)

        parameters = [_parameter(one, presets, is_required=one.is_required and not unless) for one in inputs]
        others = [one.replace(annotation=hints[one.name]) for one in own]
        if "output" in hints:
            json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
            others.append(json)
        arguments = [one for one in others if one.name == unless]
        plain = [*arguments, *parameters, *(one for one in others if one.name != unless)]
        keyword_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in plain]
        with_flags.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {one.name: one.annotation for one in keyword_only}
        return with_flags

    return decorate


def _parameter(one: Input, presets: Mapping[str, str], *, is_required: bool) -> inspect.Parameter:
    preset, panel = presets.get(one.name), SELDOM if one.is_rare else one.topic or None
    words = f" One of {', '.join(one.choices)}." if one.choices and not one.is_flag else ""
    file = " Or a file that holds it." if one.may_be_file else ""
    shown = one.default if not one.is_required else preset or ""
    names = (f"{one.flag}/--no-{one.flag[2:]}",) if one.is_flag else (one.flag,)
    option = typer.Option(
        *names,
        help=f"{one.help}{words}{file}",
        rich_help_panel=panel,
        metavar=None if one.is_flag else "TOKENS" if one.name == "seq_len" else "TEXT",
        show_default=shown or False,
    )
    kind: Any = list[str] if one.may_repeat else bool if one.is_flag else str
    is_needed = is_required and preset is None
    default = inspect.Parameter.empty if is_needed else preset
    annotation: Any = Annotated[kind if is_needed else kind | None, option]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _text(given: str | bool | Sequence[str] | None) -> str:
    """Return what was given as a form would send it; what stands for nothing is empty."""
    match given:
        case None:
            return ""
        case bool():
            return "yes" if given else "no"
        case str():
            return given
    return "\n".join(given)


def _asked(
    request: type[R], inputs: Sequence[Input], texts: Mapping[str, str], unless: str, stands_in: object
) -> R | None:
    """Return the request that the options describe; None where the argument stands in its place."""
    if stands_in is not None:
        for one in inputs:
            if texts[one.name]:
                raise InvalidInput(one.flag, texts[one.name], f"must be left out when a {unless} is given")
        return None
    for one in inputs if unless else ():
        if one.is_required and not texts[one.name]:
            raise InvalidInput(one.flag, None, f"is required, unless the id of a stored {unless} is given")
    try:
        return documents.read(request, to_document(inputs, texts, read_file=read_text))
    except InvalidInput as error:
        raise in_words_of(inputs, error) from error
