"""Inputs: the values that a person types on a command line or into a form to make a request.

A request is a tree of values, and people type the leaves of the tree. ``inputs_of`` lists the leaves:
``goal.deadline_s`` is the flag ``--deadline`` and the input *Deadline*. ``to_document`` converts the texts to the JSON
document that REST accepts, so that every surface checks them in the same way.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from itertools import pairwise
from os.path import isfile
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from autotuner.core.amounts import listed, read_count, read_number
from autotuner.core.choices import Choice
from autotuner.core.cluster import Cluster
from autotuner.core.codec import parse_json, to_plain, without_defaults
from autotuner.core.documents import GivenFields, InWords, Name
from autotuner.core.errors import InvalidDocument, InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import JobPhase
from autotuner.core.layout import Layout
from autotuner.core.lines import (
    read_lengths,
    read_links,
    read_measured,
    read_phases,
    written_lengths,
    written_links,
)
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.named import named_within
from autotuner.core.requests import MeasuredRun
from autotuner.core.value import AsJson, Caption, Flag, Hint, Rare, Topic, Typed, mark_of
from autotuner.core.workload import LengthDistribution


# ---------------------------------------------------------------- inputs
@dataclass(frozen=True, kw_only=True)  # no slots: cached properties need a dictionary
class Input:
    """One field of a request that people fill in as text, on a command line or in a form."""

    name: str
    """Name of the input in a form and in a URL: ``price_limit``."""
    path: tuple[str, ...]
    """Path of the field in the request."""
    hint: Any
    """Type of the field, with its annotations."""
    doc: str
    """Description of the field."""
    topic: str
    """Topic that the input shares with other inputs; empty: the input belongs to the question itself."""
    is_rare: bool
    """True if few people set the input."""
    is_required: bool
    """True if the request cannot be made without the input."""
    preset: Any
    """Default of the field; ``MISSING`` if it is required."""

    @property
    def flag(self) -> str:
        """The name of the input on the command line, such as ``--price-limit``."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a web address may use for the input: its own, the field's, and a short form of the field's."""
        return (self.name, _short(self.path[-1]), self.path[-1])

    @cached_property
    def label(self) -> str:
        """The name of the input that people see. It ends with the unit if people do not type one: ``Storage, GB/s``."""
        caption, whole = mark_of(self.hint, Caption), _short(self.path[-1])
        name = whole if whole == f"{self.name}s" else self.name
        unit = self.example.removeprefix("in ") if self.example.startswith("in ") else ""
        if not self.example and self.path[-1] != _short(self.path[-1]) and self.path[-1].endswith("_s"):
            unit = "s"
        words = caption.text if caption else name.replace("_", " ").capitalize()
        return ", ".join(filter(None, (words, unit)))

    @cached_property
    def kind(self) -> Any:
        """The type of the field without ``None`` and without marks."""
        return _plain(self.hint)

    @cached_property
    def item(self) -> Any:
        """The type of one item if the field is a list, otherwise the type of the field; annotations are included."""
        return _without_none(get_args(self.kind)[0]) if self.is_list else self.hint

    @property
    def is_list(self) -> bool:
        """True if the field is a list of items."""
        return get_origin(self.kind) is tuple

    @property
    def is_flag(self) -> bool:
        """True if the field is a boolean, so that it is a flag without a value on the command line."""
        return self.kind is bool

    @property
    def has_lines(self) -> bool:
        """True if the text usually has several lines, so that a form shows a larger box."""
        return _plain(self.item) in (FaultTrace, JobPhase, LinkHealth, MeasuredRun)

    @property
    def may_repeat(self) -> bool:
        """True if the command-line option may be given several times, once per item."""
        return (self.is_list and self.named is not None) or (get_origin(self.kind) is dict and not self.is_object)

    @cached_property
    def named(self) -> type[Any] | None:
        """The type of the objects whose names may be typed, such as ``Cluster``; None if no name may be typed."""
        return named_within(self.item)

    @cached_property
    def takes_name_alone(self) -> bool:
        """True if only the name of an object may be typed, and not its description."""
        mark = mark_of(self.item, Name)
        return mark is not None and mark.alone

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The words that may be typed; empty if other texts are allowed, too."""
        kind: Any = self.kind
        if self.is_flag:
            return ("yes", "no")
        if get_origin(kind) is Literal:
            return tuple(map(str, get_args(kind)))
        if isinstance(kind, type) and issubclass(kind, Choice):
            return tuple(kind.labels())
        return tuple(str(one.value) for one in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()

    @cached_property
    def nouns(self) -> Mapping[str, str]:
        """The noun for each word that may be typed, by that word; words without a noun are left out."""
        members: Any = self.kind if isinstance(self.kind, type) and issubclass(self.kind, Enum) else ()
        return {str(one.value): one.noun for one in members if hasattr(one, "noun")}

    @cached_property
    def default(self) -> str:
        """The default value as a person would type it; empty if there is none."""
        is_said = self.preset is not MISSING and mark_of(self.hint, AsJson) is None
        return to_text(self.preset, self) if is_said else ""

    @property
    def placeholder(self) -> str:
        """The grey text that an empty input shows."""
        hint = mark_of(self.hint, Hint)
        return hint.text if hint else "" if self.example.startswith("in ") else self.example

    @cached_property
    def example(self) -> str:
        """Examples of texts to type; empty if the kind of the field makes them obvious."""
        typed = _typed(self)
        written = typed or mark_of(self.hint, AsJson)
        return written.example if written else _EXAMPLES.get(self.named or _plain(self.item), "")

    @cached_property
    def help(self) -> str:
        """The first sentence of the field's description, followed by an example."""
        said = " ".join(self.doc.replace("``", "").split())
        first = re.sub(r"; (?!empty: ).*", "", re.split(r"(?<=\.) ", said)[0].rstrip("."))
        example = f" ({self.example})" if self.example and self.example not in first else ""
        return f"{first}{example}."

    @property
    def is_object(self) -> bool:
        """True if the text is JSON, or words that stand for JSON."""
        return any(mark_of(self.hint, kind) is not None for kind in (AsJson, GivenFields, InWords))

    @property
    def may_be_file(self) -> bool:
        """True if the path of a file with the value may be given on a command line."""
        return self.is_object or self.named in (TransformerSpec, Cluster) or _plain(self.item) in _LINES

    @property
    def has_words(self) -> bool:
        """True if words may be typed instead of JSON."""
        given = mark_of(self.hint, GivenFields)
        return given.takes_name if given else mark_of(self.hint, AsJson) is None


_EXAMPLES: Mapping[Any, str] = {
    Cluster: "h100:64",
    Layout: "fsdp8 tp4 mb1 sp",
    TransformerSpec: "llama-3-8b",
    LengthDistribution: "1-128:6, 512:3",
    LinkHealth: "2_3; 0.06 | inter_node; 200mbit",
    FaultTrace: "7;2_3;0.06 | 30;2_3;0",
    JobPhase: "main: 95 % | long: 5 %; seq_len 131072; batch 64",
    MeasuredRun: "a CSV table with the columns layout and step_time_s or tokens_per_s",
}


def inputs_of(request: type[Any], *, has_all: bool = False) -> tuple[Input, ...]:
    """Return the inputs of a request in the order in which people see them.

    Common inputs come first, in the order of the fields and grouped by topic; rare ones come last.

    Args:
        request: Type of the request.
        has_all: Whether each rare field inside a value has an input of its own. Otherwise one text holds all of them.
    """
    return _inputs_of(request, has_all=has_all)  # type: ignore[arg-type]  # a class is hashable


@cache
def _inputs_of(request: type[Any], *, has_all: bool) -> tuple[Input, ...]:
    found = tuple(_leaves(request, (), "", is_rare=False, is_required=True, has_all=has_all))
    topics = list(dict.fromkeys(one.topic for one in found))
    return tuple(sorted(found, key=lambda one: (one.is_rare, bool(one.topic), topics.index(one.topic))))


def _leaves(
    cls: type[Any],
    path: tuple[str, ...],
    topic: str,
    *,
    is_rare: bool,
    is_required: bool,
    has_all: bool,
    is_partial: bool = False,
) -> Iterator[Input]:
    """Yield the inputs for a value of a request: one for each leaf of its tree of fields.

    Args:
        cls: Type of the value.
        path: Path of the value in the request.
        topic: Topic that the value belongs to.
        is_rare: Whether few people set the value.
        is_required: Whether the request cannot be made without the value.
        has_all: Whether rare fields of a value that people write as a whole have separate inputs.
        is_partial: Whether fields that are left out differ from the defaults of the type.
    """
    hints = get_type_hints(cls, include_extras=True)
    texts = {name: text for base in reversed(cls.__mro__) for name, text in field_texts(base).items()}
    for field in fields(cls):
        hint, here = hints[field.name], (*path, field.name)
        about = mark_of(hint, Topic)
        title, rare = about.title if about else topic, is_rare or mark_of(hint, Rare) is not None
        preset = None if is_partial else _preset(field)
        required = is_required and preset is MISSING
        if (kind := _fields_in(hint)) is not None and _is_tree(hint):
            is_part = is_partial or preset is None or mark_of(hint, GivenFields) is not None
            leaves = _leaves(kind, here, title, is_rare=rare, is_required=required, has_all=has_all, is_partial=is_part)
            if has_all or mark_of(hint, AsJson) is None:
                yield from leaves
                continue
            yield from (one for one in leaves if not one.is_rare)
            rare = True
        flag = mark_of(hint, Flag)
        name = flag.name.replace("-", "_") if flag else _short(field.name)
        yield Input(
            name=name,
            path=here,
            hint=hint,
            doc=texts.get(field.name, name),
            topic=title,
            is_rare=rare,
            is_required=required,
            preset=preset,
        )


def _fields_in(hint: Any) -> type[Any] | None:
    """Return the dataclass whose fields a value has, in full or in part; None for any other type."""
    given, kind = mark_of(hint, GivenFields), _plain(hint)
    return given.cls if given else kind if isinstance(kind, type) and is_dataclass(kind) else None


def _is_tree(hint: Any) -> bool:
    """Return True if people write a value field by field, and not as one text."""
    as_json = mark_of(hint, AsJson)
    is_text = any(mark_of(hint, kind) is not None for kind in (InWords, Typed, Name)) or _plain(hint) in _LINES
    return not is_text and (as_json is None or as_json.beside_fields)


def _preset(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _short(name: str) -> str:
    """Return the name of a field without the prefix ``num_`` and without its unit."""
    short = name.removeprefix("num_")
    return short if short.endswith("per_s") else short.removesuffix("_s")


def _plain(hint: Any) -> Any:
    """Return a type without ``None`` in its union, and without annotations."""
    hint = _without_none(hint)
    return _plain(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def _without_none(hint: Any) -> Any:
    inner = [each for each in get_args(hint) if each is not NoneType]
    return inner[0] if NoneType in get_args(hint) and len(inner) == 1 else hint


def _typed(one: Input) -> Typed | None:
    return mark_of(one.hint, Typed) or mark_of(one.item, Typed)


# ---------------------------------------------------------------- what is said of fields
def field_texts(cls: type[Any]) -> Mapping[str, str]:
    """Return the docstrings below the fields of a class by field name; inherited fields are left out."""
    return {} if cls is object else _texts_by_class(cls.__module__).get(cls.__name__, {})


@cache
def _texts_by_class(module: str) -> dict[str, dict[str, str]]:
    classes = [
        node for node in ast.parse(inspect.getsource(sys.modules[module])).body if isinstance(node, ast.ClassDef)
    ]
    return {
        one.name: {
            declared.target.id: text.value.value
            for declared, text in pairwise(one.body)
            if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        }
        for one in classes
    }


# ---------------------------------------------------------------- texts to a document
ReadFile: TypeAlias = Callable[[str, str], str]
"""A function that returns the text of the file at a path. Its second argument is the field, for error messages."""


def to_document(
    inputs: Iterable[Input], texts: Mapping[str, str], *, read_file: ReadFile | None = None
) -> dict[str, Any]:
    """Return the JSON document of a request from the texts that people typed. Empty texts are left out.

    Args:
        inputs: Inputs of the request.
        texts: Texts by the name of the input.
        read_file: Function that reads a file, if a text may be the path of a file with the value; None: no text may be
            a path. Only command lines have such a function.

    Raises:
        InvalidDocument: Some texts are not valid for their inputs. The error lists all of them by the request's fields.
    """
    document: dict[str, Any] = {}
    wrong: list[InvalidInput] = []
    for one in inputs:
        text = texts.get(one.name, "").strip()
        if not text:
            continue
        holder = document
        for name in one.path[:-1]:
            holder = holder.setdefault(name, {})
        try:
            value, others = _parsed(one, text, document.get("workload", {}), read_file), holder.get(one.path[-1])
            both = isinstance(value, dict) and isinstance(others, dict)
            holder[one.path[-1]] = value | others if both else value
        except InvalidInput as error:
            wrong += error.complaints
    if wrong:
        raise InvalidDocument(wrong)
    return document


def input_for(inputs: Iterable[Input], path: str) -> Input | None:
    """Return the input that an error about this field of the request concerns; None if there is none.

    Args:
        inputs: Inputs of the request.
        path: Path of the field, dots between names.
    """
    words, known = path.split("."), tuple(inputs)
    by_path = (one for one in known if tuple(words[: len(one.path)]) == one.path)
    within = (one for one in known if one.path[: len(words)] == tuple(words))
    by_name = (one for word in reversed(words) for one in known if word in one.names)
    return next(by_path, None) or next(within, None) or next(by_name, None)


def in_words_of(inputs: Iterable[Input], error: InvalidInput) -> InvalidDocument:
    """Return the error in the words of the command line: fields are replaced by options such as ``--cluster``.

    Args:
        inputs: Inputs of the request.
        error: Error with the paths of fields.
    """
    known, found = tuple(inputs), []
    for each in error.complaints:
        about = input_for(known, each.field)
        path = "" if about is None else ".".join(about.path)
        rest = each.field[len(path) + 1 :] if each.field.startswith(f"{path}.") else ""
        field = _flags_of(known, each.field) or (each.field if about is None else f"{about.flag} {rest}".strip())
        found.append(InvalidInput(field, each.value, each.rule, each.nearest))
    return InvalidDocument(found)


def _flags_of(inputs: Iterable[Input], path: str) -> str:
    """Return the flags with which people write the fields of a value: the required ones, or all if none is required."""
    words = tuple(path.split("."))
    within = [one for one in inputs if one.path[: len(words)] == words != one.path]
    return ", ".join(one.flag for one in [one for one in within if one.is_required] or within)


def _parsed(one: Input, text: str, workload: Mapping[str, Any], read_file: ReadFile | None) -> Any:
    """Return the JSON value of a text, or of the file that the text names. Objects and lists may be written as JSON."""
    field = ".".join(one.path)
    if _plain(one.item) is MeasuredRun:
        text = read_file(text, field) if read_file and not text.startswith("[") else text
        return read_measured(text, field, workload, lambda kind, said, path: described(said, path, read_file))
    if typed := mark_of(one.hint, Typed):
        return typed.read(field, text)
    if one.is_list and _plain(one.item) not in _LINES and text[:1] != "[":
        return [_one(one, part, field, read_file) for part in listed(text)]
    return _one(one, text, field, read_file)


def _one(one: Input, text: str, field: str, read_file: ReadFile | None) -> Any:
    """Return the JSON value of a text that states one value, or several values in lines."""
    item = _plain(one.item)
    if typed := mark_of(one.item, Typed):
        return typed.read(field, text)
    if one.named is not None:
        return described(text, field, read_file)
    if item is str and not one.is_object:
        return text  # plain text, even if it begins like JSON
    may_be_file = read_file is not None and (item in _LINES or one.is_object)
    if read_file is not None and may_be_file and _is_file(text):
        text = read_file(text, field).strip()
    if item in _LINES:
        value = _LINES[item](text)
        return [without_defaults(each) for each in value] if isinstance(value, tuple) else to_plain(value)
    if text[:1] == "{" or (one.is_object and not one.has_words):
        return parse_json(text, field, "the short form of this field, or JSON" if one.has_words else "JSON")
    if item is bool:
        return _yes(field, text)
    if item is int or item is float:
        return _number(field, text, item, ", or several of them with commas between" if one.is_list else "")
    return text.lower() if one.is_object else text


def described(text: str, field: str, read_file: ReadFile | None) -> Any:
    """Return the JSON data of a model or cluster that somebody typed: its name, or its whole description.

    A description that lacks a name gets the name of its file.

    Args:
        text: Name, JSON, or path of a file with JSON.
        field: Name of the request's field, for error messages.
        read_file: Function that reads a file; None: the text cannot be a path.
    """
    if text[:1] == "{":
        return parse_json(text, field, "a name or JSON")
    if read_file is None or not _is_file(text):
        return text
    document, path = parse_json(read_file(text, field), field), Path(text)
    if not isinstance(document, dict):
        raise InvalidInput(field, text[:60], "must be a JSON object")
    if "model_type" not in document:
        return {"name": path.stem, **document}
    name = path.parent.name if path.stem == "config" else path.stem
    return {"_name_or_path": name, **document} if name else document


def _is_file(text: str) -> bool:
    return text.endswith(".json") or isfile(text)  # it accepts a text of any length


def _number(field: str, text: str, kind: type[Any], others: str) -> Any:
    try:
        return (read_count if kind is int else read_number)(field, text)
    except InvalidInput as error:
        raise InvalidInput(field, error.value, f"{error.rule}{others}", error.nearest) from error


def _yes(field: str, text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise InvalidInput(field, text, "must be yes or no")
    return text.lower() == "yes"


_LINES: Mapping[Any, Callable[[str], Any]] = {
    LengthDistribution: read_lengths,
    LinkHealth: read_links,
    JobPhase: read_phases,
    MeasuredRun: str,
}
"""Readers of values that people write in lines, by the type of the value."""


# ---------------------------------------------------------------- values to texts
def to_text(value: Any, one: Input) -> str:
    """Return the value of a field as a person would type it; empty for None and for empty lists.

    Args:
        value: Value of the field.
        one: Input of the field.
    """
    typed = mark_of(one.hint, Typed)
    if value is None or (not value and isinstance(value, (tuple, Mapping))):
        return ""
    if typed:
        return typed.written(value)
    if written := _WRITTEN.get(_plain(one.item)):
        return written(value)
    if isinstance(value, tuple):
        each = mark_of(one.item, Typed)
        return ", ".join(each.written(item) if each else _word(item) for item in value)
    return _word(value)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    plain = to_plain(value)
    if isinstance(plain, float):
        return repr(plain).removesuffix(".0")
    return plain if isinstance(plain, str) else json.dumps(plain)


def _trace_text(trace: FaultTrace) -> str:
    """Return the lines of a fault trace.

    Return JSON if the trace does not end where its lines alone would end it.
    """
    return str(trace) if FaultTrace.parse(str(trace)) == trace else json.dumps(to_plain(trace))


_WRITTEN: Mapping[Any, Callable[[Any], str]] = {
    LengthDistribution: written_lengths,
    LinkHealth: written_links,
    FaultTrace: _trace_text,
}
"""Functions that write values as people write them, by the type of the value."""
