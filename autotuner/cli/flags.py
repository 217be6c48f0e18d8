"""Flags: ``@flags(PlanRequest)`` gives a command an option for each input of a request.

Common options are defined here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_type_hints

import typer

from autotuner.catalog.named import load  # noqa: F401  # which has requests read the short forms of models and clusters
from autotuner.cli.complete import completing, sweeps
from autotuner.cli.files import read_text
from autotuner.core import documents
from autotuner.core.errors import InvalidInput
from autotuner.core.text import Input, in_words_of, inputs_of, to_document

SELDOM = "Advanced"
"""Panel in a command's help for options that few people need."""


# ---------------------------------------------------------------- ids
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_TRIAL_ID = re.compile(r"sw-[A-Za-z0-9]+-\d+")
"""Pattern of a trial's id; no layout in words matches it."""

_LISTS = {
    "sweep": "list",
    "trial": "show",
    "comment": "comments",
    "delivery": "webhook deliveries",
    "study": "optimizer list",
}
"""Commands that print the ids of each kind of stored object."""


def stored_id(text: str, kind: str, *, otherwise: str = "") -> str:
    """Return the text if it has the form of an id of a stored object, such as a sweep.

    Args:
        text: The argument of the command.
        kind: The kind of object, for the error message.
        otherwise: Words for the end of the error message: the other things that the argument may be.

    Raises:
        InvalidInput: The text cannot be an id; it may be a path, for example.
    """
    if (_TRIAL_ID if kind == "trial" else _ID).fullmatch(text):
        return text
    raise InvalidInput(kind, text, f"must be the id of a {kind}, as `autotuner {_LISTS[kind]}` prints it{otherwise}")


def _sweep_id(text: str) -> str:
    return stored_id(text, "sweep")


def _trial_id(text: str | None) -> str | None:
    return None if text is None else stored_id(text, "trial")


SweepId: TypeAlias = Annotated[
    str,
    typer.Argument(
        callback=_sweep_id,
        help="Id of the sweep, as `autotuner list` prints it (sw-k3v7q2mxn5).",
        autocompletion=sweeps,
    ),
]
TrialId: TypeAlias = Annotated[
    str,
    typer.Argument(
        callback=_trial_id, help="Id of the trial: its sweep's id, a dash and four digits (sw-k3v7q2mxn5-0003)."
    ),
]
OptionalTrialId: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        callback=_trial_id,
        help="Id of a stored trial (sw-k3v7q2mxn5-0003). Leave it out to describe a job and a layout by options.",
    ),
]

# ---------------------------------------------------------------- options of many commands
Output: TypeAlias = Annotated[
    Literal["text", "markdown", "json"], typer.Option("--output", help="Form of the answer; --json is short for json.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="AUTOTUNER_SERVER",
        help="URL of a running service. Without it, this process does the work itself.",
    ),
]
Wait: TypeAlias = Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it to its end.")]


# ---------------------------------------------------------------- options of a request
R = TypeVar("R")


def flags(
    request: type[R],
    *,
    usual: Mapping[str, str] | None = None,
    unless: str = "",
    arguments: Collection[str] = (),
    leaves_out: Collection[str] = (),
    also: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command one command-line option for each input of a request.

    The first parameter of the command is the request. The decorator takes it out of the signature that Typer reads and
    puts the options in its place. The decorated command builds the request from the options.

    A switch stays a switch. All other options are texts, which are parsed like the fields of the dashboard's forms, so
    that both have the same limits and errors. A command with a parameter ``output`` also gets the option ``--json``. A
    command may have a parameter of its own with the name of an input. Its value then sets the input, and the command
    gets it as well.

    Args:
        request: The type of the request.
        usual: Values for inputs that the request requires but the user may leave out, as texts.
        unless: The name of a parameter of the command that the user may give instead of the request. If it is given,
            or if an input of that name holds the id of a trial, the command gets None for the request.
        arguments: Names of inputs that are positional arguments, not options.
        leaves_out: Names of inputs for which there is no option, since the command sets them itself.
        also: A second option for an input, by the name of the input, such as ``{"cluster": "--for"}``. The user must
            give exactly one of the two options.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        first, *own = inspect.signature(command).parameters.values()
        hints = get_type_hints(command, include_extras=True)
        inputs = [one for one in inputs_of(request) if one.name not in leaves_out]
        others = [one for one in inputs if one.name not in hints]
        spellings, has_forms = also or {}, hints.get("output") == Output

        @wraps(command)
        def with_flags(**given: Any) -> None:
            texts = {one.name: _text(given[one.name] if one.name in hints else given.pop(one.name)) for one in inputs}
            for name, flag in spellings.items():
                texts[name] = _either(f"--{name}", texts[name], flag, given.pop(f"{name}_too"))
            if has_forms and given.pop("as_json"):
                given["output"] = "json"
            stored, kind = given.get(unless), "trial" if unless in texts else unless
            if stored is not None and (unless not in texts or _TRIAL_ID.fullmatch(stored)):
                _refuse_beside(kind, {one.flag: texts[one.name] for one in others})
                command(**{first.name: None}, **given)
            else:
                command(**{first.name: _asked(request, inputs, texts, kind)}, **given)

        presets = {one.name: (usual or {}).get(one.name) for one in others}
        may_miss = {*(presets if unless else ()), *spellings}
        made = [_parameter(one, presets[one.name], may_miss, is_argument=one.name in arguments) for one in others]
        kept = [one.replace(annotation=hints[one.name], kind=_KEYWORD) for one in own]
        kept += [_spelling(name, flag) for name, flag in spellings.items()]
        kept += [_keyword("as_json", Json, default=False)] if has_forms else []
        num_usual = sum(not one.is_rare for one in others)  # rare options come last
        _sign(with_flags, [*made[:num_usual], *kept, *made[num_usual:]])
        return with_flags

    return decorate


def _sign(command: Any, parameters: Sequence[inspect.Parameter]) -> None:
    """Give a command the signature from which Typer reads its options."""
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, _KEYWORD, annotation=annotation, default=default)


def _spelling(name: str, flag: str) -> inspect.Parameter:
    option = typer.Option(flag, help=f"The same as --{name}: one of both must be given.", metavar="TEXT")
    return _keyword(f"{name}_too", Annotated[str | None, option], None)


def _parameter(one: Input, usual: str | None, may_miss: Collection[str], *, is_argument: bool) -> inspect.Parameter:
    words = f" One of {', '.join(one.choices)}." if one.choices and not one.is_flag else ""
    file = " Or a file that holds it." if one.may_be_file else ""
    shown = one.default if not one.is_required else usual or ""
    names = (f"{one.flag}/--no-{one.flag[2:]}",) if one.is_flag else (one.flag,)
    option = typer.Option(
        *names,
        help=f"{one.help}{words}{file}",
        rich_help_panel=SELDOM if one.is_rare else one.topic or None,
        metavar=_metavar(one),
        show_default=shown or False,
        autocompletion=completing(one.name),
    )
    kind: Any = list[str] if one.may_repeat else bool if one.is_flag else str
    needed = one.is_required and one.name not in may_miss and usual is None
    info: Any = typer.Argument(help=one.help, metavar=one.path[-1].upper()) if is_argument else option
    return _keyword(
        one.name,
        Annotated[kind if needed else kind | None, info],
        inspect.Parameter.empty if needed else usual,
    )


def _metavar(one: Input) -> str | None:
    """Return what help shows for the value of an option."""
    if one.is_flag or one.name == "seq_len":
        return None if one.is_flag else "TOKENS"
    is_plain = not one.example or one.example.startswith("in ")
    return {int: "INTEGER", float: "NUMBER"}.get(one.kind, "TEXT") if is_plain else "TEXT"


def _text(given: str | bool | Sequence[str] | None) -> str:
    """Return an option's value as a form would send it; empty if the option was not given."""
    match given:
        case None:
            return ""
        case bool():
            return "yes" if given else "no"
        case str():
            return given
    return "\n".join(given)


def _either(flag: str, text: str, other: str, said: str | None) -> str:
    """Return the value of one of two options with the same meaning, of which exactly one must be given.

    Raises:
        InvalidInput: Both options are given, or none.
    """
    if bool(text) == bool(said):
        raise InvalidInput(other, said, f"has the same meaning as {flag}; give exactly one of the two")
    return text or said or ""


def _refuse_beside(kind: str, texts: Mapping[str, str]) -> None:
    for flag, text in texts.items():
        if text:
            rule = f"cannot be used together with the id of a {kind}, which has its own value; leave out one of the two"
            raise InvalidInput(flag, text, rule)


def _asked(request: type[R], inputs: Sequence[Input], texts: Mapping[str, str], kind: str) -> R:
    """Return the request that the options describe.

    If the id of a stored object may be given instead (``kind``), the required options are checked here.

    Raises:
        InvalidInput: A required option is missing, or a value is not allowed.
    """
    for one in inputs if kind else ():
        if one.is_required and not texts[one.name]:
            raise InvalidInput(one.flag, None, f"is required if no id of a stored {kind} is given")
    try:
        return documents.read(request, to_document(inputs, texts, read_file=read_text))
    except InvalidInput as error:
        raise in_words_of(inputs, error) from error
