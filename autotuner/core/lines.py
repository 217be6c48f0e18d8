"""Readers of phases, sequence lengths, link states and measured runs that people write as lines of text or as JSON."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from io import StringIO
from itertools import groupby
from typing import Any, TypeAlias, TypeVar, cast

from autotuner.core import documents
from autotuner.core.choices import Precision
from autotuner.core.codec import parse_json, without_defaults
from autotuner.core.errors import InvalidInput, quoted
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import JobPhase
from autotuner.core.layout import Layout, parse_words
from autotuner.core.link import LinkHealth
from autotuner.core.value import require_one_of
from autotuner.core.workload import LengthDistribution

T = TypeVar("T")

# ---------------------------------------------------------------- phases
_PHASE_EXAMPLE = "long: 5 %; seq_len 131072; batch 64"
_CHANGE = re.compile(r"(\w+)\s*[= ]\s*(\S+)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)\s*%")


def read_phases(text: str) -> tuple[JobPhase, ...]:
    """Return the phases of a training from a text: lines of ``name: share %[; change]``, or a JSON list of objects.

    A share is the phase's share of the job's tokens. A change is ``seq_len`` and a number of tokens, ``batch`` and a
    number of sequences, ``bandwidth`` and a rate such as ``10gbit`` for one accelerator's port, or ``precision`` and a
    number format. ``|`` may separate lines, too, and ``#`` begins a comment. JSON objects have the fields of
    ``JobPhase``.

    Raises:
        InvalidInput: A line does not describe a phase. The error quotes the line.
    """
    text = text.strip()
    if text.startswith("["):
        names = ", ".join(field.name for field in fields(JobPhase))
        return tuple(_read_objects(JobPhase, text, "phases", f"must be an object with a phase's fields: {names}"))
    lines = (line.partition("#")[0].strip() for line in text.replace("|", "\n").splitlines())
    return tuple(_read_phase(line) for line in lines if line)


def _read_phase(line: str) -> JobPhase:
    name, colon, rest = line.rpartition(":")
    share, *changes = (part.strip() for part in rest.split(";"))
    found = _SHARE.fullmatch(share)
    if not (colon and name.strip() and found):
        raise InvalidInput(
            "phases", line[:60], f"must be a line of the form NAME: SHARE %; CHANGE, for example {_PHASE_EXAMPLE}"
        )
    try:
        changed = dict(_read_change(change) for change in changes if change)
        return JobPhase(name=name.strip(), token_share=float(found[1]) / 100, **changed)
    except InvalidInput as error:
        rule = f"has {error.field} {quoted(error.value)}, which {error.rule}"
        raise InvalidInput("phases", line[:60], rule, error.nearest) from error


def _read_change(change: str) -> tuple[str, Any]:
    """Return the name of the field that a change such as ``batch=1024`` sets, and the value."""
    found = _CHANGE.fullmatch(change)
    if not found:
        raise InvalidInput(
            "a change",
            change[:60],
            f"must be one of {', '.join(_CHANGES)}, then a space and its new value, for example batch 64",
        )
    word = found[1].lower()
    require_one_of("a change", word, _CHANGES)
    field, read = _CHANGES[word]
    return field, read(found[2])


def _read_whole(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise InvalidInput("a number", text[:30], "must be a whole number below 1,000,000,000, for example 8192")
    return int(text)


def _read_rate(text: str) -> float:
    """Return the bytes per second of a rate that is written as in a fault trace."""
    with suppress(ValueError):
        (fault,) = FaultTrace.parse(f"0;{_ANY_ENDS};{text}").faults
        if fault.health.bandwidth_bytes_per_s is not None:
            return fault.health.bandwidth_bytes_per_s
    raise InvalidInput("bandwidth", text[:30], "must be a number of bits per second with its unit, for example 10gbit")


_CHANGES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "seq_len": ("seq_len", _read_whole),
    "batch": ("global_batch_size", _read_whole),
    "bandwidth": ("bandwidth_bytes_per_s", _read_rate),
    "precision": ("precision", lambda text: Precision.from_label(text, "precision")),
}
"""Fields that the words of a change set, each with the reader of its value."""


# ---------------------------------------------------------------- lengths of sequences
_LENGTHS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\S+))?")
_LENGTHS_EXAMPLE = "1-128:6, 512:3"
_MOST_LENGTHS = 1 << 20
"""Most different sequence lengths; the longest contexts have as many tokens."""


def read_lengths(text: str) -> LengthDistribution:
    """Return the distribution of sequence lengths that a text describes: a list, a histogram, or JSON.

    In a list, ``96 512 512`` are the tokens of each sequence. In a histogram, ``512:3`` gives the length 512 the weight
    3, and ``1-128:6`` spreads the weight 6 evenly over the lengths 1 to 128. Weights of a length that occurs several
    times are added. Spaces, commas and line ends separate numbers, and ``#`` begins a comment. A JSON object has
    ``lengths`` and ``weights``.

    Raises:
        InvalidInput: A part of the text is not a length (the error quotes it), or there is no length.
    """
    if text.lstrip().startswith("{"):
        document = parse_json(text, "lengths", "a histogram or JSON", _LENGTHS_EXAMPLE)
        return documents.read(LengthDistribution, document, "lengths")
    weights: dict[int, float] = {}
    for line in text.splitlines():
        for item in line.partition("#")[0].replace(",", " ").split():
            first, last, weight = _read_range(item)
            for length in range(first, last + 1):
                weights[length] = weights.get(length, 0.0) + weight / (last + 1 - first)
    if not weights:
        raise InvalidInput(
            "lengths", text[:60], f"must have at least one length in tokens, for example {_LENGTHS_EXAMPLE}"
        )
    rising = sorted(weights)
    return LengthDistribution(lengths=tuple(rising), weights=tuple(weights[length] for length in rising))


def written_lengths(lengths: LengthDistribution) -> str:
    """Return a distribution of lengths as a text that ``read_lengths`` reads.

    The text is a histogram, or JSON if a histogram would round the weights.
    """
    text = ", ".join(_ranges(lengths))
    if read_lengths(text) == lengths:
        return text
    return json.dumps({"lengths": lengths.lengths, "weights": lengths.weights})


def _read_range(item: str) -> tuple[int, int, float]:
    """Return the first and the last length of a range, and the weight of the whole range."""
    found = _LENGTHS.fullmatch(item)
    if not found:
        rule = "must be a number of tokens, or tokens:weight, or first-last:weight, for example 512, 512:3 or 1-128:6"
        raise InvalidInput("lengths", item[:60], rule)
    first, last = int(found[1]), int(found[2] or found[1])
    if not 1 <= first <= last <= _MOST_LENGTHS:
        raise InvalidInput(
            "lengths",
            item[:60],
            f"must be from 1 to {_MOST_LENGTHS:,} tokens, with the smaller number first, for example 1-128:6",
        )
    try:
        return first, last, float(found[3] or last + 1 - first)
    except ValueError as error:
        raise InvalidInput(
            "lengths", item[:60], "must have a number after the colon, which is the weight, for example 512:3"
        ) from error


def _ranges(lengths: LengthDistribution) -> Iterator[str]:
    """Yield the text of each range of consecutive lengths that have equal weights."""
    pairs = enumerate(zip(lengths.lengths, lengths.weights, strict=True))
    for (_, weight), group in groupby(pairs, key=lambda pair: (pair[1][0] - pair[0], pair[1][1])):
        among = [length for _, (length, _) in group]
        if len(among) == 1:
            yield f"{among[0]}:{weight:.12g}"
        else:
            yield f"{among[0]}-{among[-1]}:{weight * len(among):.12g}"


# ---------------------------------------------------------------- states of links
_LINK_CLASSES = ("intra_node", "inter_node")
_ANY_ENDS = "0_1"
"""Placeholder for the two ends of a link, for lines that state only the link's state."""


def read_links(text: str) -> tuple[LinkHealth, ...]:
    """Return the states of links from a text: lines of ``link; state[; state]``, or a JSON list of objects.

    A link is given by the numbers of its two ends (``2_3``), or is ``intra_node`` or ``inter_node``, which mean all
    links of that class. A state is a one-way delay in seconds, a rate such as ``200mbit``, or ``dead``. ``|`` may
    separate lines, too. JSON objects have the fields of ``LinkHealth``.

    Raises:
        InvalidInput: A line does not describe a link. The error quotes the line.
    """
    text = text.strip()
    if text.startswith("["):
        rule = "must be an object with a link's fields"
        return tuple(_read_objects(LinkHealth, text, "link_health", rule, '{"ends": [2, 3]}'))
    lines = (line.strip() for line in text.replace("|", "\n").splitlines())
    return tuple(_read_link(line) for line in lines if line and not line.startswith("#"))


def written_links(links: Iterable[LinkHealth]) -> str:
    """Return the states of links as a text that ``read_links`` reads.

    The text has one line per link, or is JSON if lines cannot hold all fields.
    """
    links = tuple(links)
    text = "\n".join("; ".join((str(link), *_states(link))) for link in links)
    with suppress(InvalidInput):  # a name that no line can have
        if read_links(text) == links:
            return text
    return json.dumps([without_defaults(link) for link in links], indent=1)


def _read_link(line: str) -> LinkHealth:
    ends, *states = (part.strip() for part in line.split(";"))
    if not states:
        raise InvalidInput("link_health", line, "must be a line of the form LINK; STATE, for example 2_3; 0.06")
    link_class = ends.lower().replace("-", "_")
    is_class = link_class in _LINK_CLASSES
    found = [_read_state(_ANY_ENDS if is_class else ends, state, line) for state in states]
    link = {"ends": None, "link_class": link_class} if is_class else {"ends": found[0].ends}
    names = ("delay_s", "bandwidth_bytes_per_s", "is_dead")
    stated = {name: value for one in found for name in names if (value := getattr(one, name))}
    return replace(LinkHealth(ends=(0, 1)), **link, **stated)


def _read_state(ends: str, state: str, line: str) -> LinkHealth:
    """Return the state of one link from a line in the format of a fault trace."""
    try:
        (fault,) = FaultTrace.parse(f"0;{ends};{state}").faults
    except InvalidInput as error:
        rule = (
            "must be a line of the form LINK; STATE, where STATE is seconds of delay such as 0.06, a rate such as "
            "200mbit, or dead"
        )
        raise InvalidInput("link_health", line, rule) from error
    except ValueError as error:
        raise InvalidInput(
            "link_health",
            line,
            "must name one link by its two ends such as 2_3, or a class of links such as inter_node",
        ) from error
    return fault.health


def _states(health: LinkHealth) -> Iterator[str]:
    if health.is_dead:
        yield "dead"
    if health.bandwidth_bytes_per_s is not None:
        yield f"{8 * health.bandwidth_bytes_per_s / 1e6:.12g}mbit"
    if health.delay_s or not (health.is_dead or health.bandwidth_bytes_per_s is not None):
        yield f"{health.delay_s:.12g}"


# ---------------------------------------------------------------- measured runs
_SPEEDS = ("step_time_s", "tokens_per_s")
_WORKLOAD = ("seq_len", "global_batch_size")
_COLUMNS = ("layout", *_SPEEDS, "model", "cluster", *_WORKLOAD)
"""Columns of a table of measured runs: the layout, one of two speeds, and values that differ from the request's own
job."""

Describe: TypeAlias = Callable[[str, str, str], Any]
"""A function that makes the document of a model or of a cluster. Its arguments are the kind, the text in the row, and
the path for errors."""


def read_measured(text: str, field: str, workload: Mapping[str, Any], describe: Describe) -> list[dict[str, Any]]:
    """Return the measured runs that a table lists, as JSON data for a field of a request.

    Args:
        text: CSV with a header, or a JSON list of objects with the same names.
        field: Name of the request's field, for error messages.
        workload: Workload of the request's job, as JSON data. If a run states its own sequence length or batch, these
            replace the values of this workload.
        describe: Function that reads the model or cluster that a row states.

    Raises:
        InvalidInput: The text is not such a table, or a row lacks a layout or does not have exactly one speed.
    """
    rows = _measured_objects(text, field) if text.lstrip()[:1] in ("[", "{") else _measured_rows(text, field)
    return [_measured(row, f"{field}.{number}", workload, describe) for number, row in enumerate(rows)]


def _measured_rows(text: str, field: str) -> list[dict[str, Any]]:
    table = csv.DictReader(StringIO(text, newline=""))
    _require_columns(table.fieldnames or (), field)
    return list(table)


def _measured_objects(text: str, field: str) -> list[dict[str, Any]]:
    rows = parse_json(text, field, "a CSV table or JSON")
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise InvalidInput(field, text[:60], "must be a JSON list of objects")
    return rows


def _require_columns(names: Iterable[str], path: str) -> None:
    if unknown := [name for name in names if name not in (*_COLUMNS, "is_simulated")]:
        raise InvalidInput(path, unknown[0], f"is not a column of measured runs; the columns are {', '.join(_COLUMNS)}")


def _measured(row: Mapping[str, Any], path: str, workload: Mapping[str, Any], describe: Describe) -> dict[str, Any]:
    given = {name: value for name, value in row.items() if value not in (None, "")}
    if given.pop("is_simulated", False) not in (False, "false", "False", "0"):
        raise InvalidInput(
            f"{path}.is_simulated",
            True,
            "must be false, because predictions are corrected (calibrated) only with measured runs",
        )
    _require_columns(given, path)
    if "layout" not in given or sum(name in given for name in _SPEEDS) != 1:
        rule = f"are the columns of this run, which must have layout and exactly one of {' and '.join(_SPEEDS)}"
        raise InvalidInput(path, ", ".join(given), rule)
    layout = given["layout"]
    run: dict[str, Any] = {"layout": layout if isinstance(layout, dict) else _measured_layout(given, path)}
    run |= {name: _measured_number(given, name, path) for name in _SPEEDS if name in given}
    for kind in ("model", "cluster"):
        if kind in given:
            whole = given[kind]
            run[kind] = whole if isinstance(whole, dict) else describe(kind, _measured_text(given, kind, path), path)
    own = {name: int(_measured_number(given, name, path)) for name in _WORKLOAD if name in given}
    return run | ({"workload": {**workload, **own}} if own else {})


def _measured_layout(row: Mapping[str, Any], path: str) -> dict[str, Any]:
    text = _measured_text(row, "layout", path)
    if not text.lstrip().startswith("{"):
        return parse_words(text)
    document = parse_json(text, f"{path}.layout", "the words of a layout, or JSON")
    documents.read(Layout, document, f"{path}.layout")
    return cast("dict[str, Any]", document)


def _measured_number(row: Mapping[str, Any], name: str, path: str) -> float:
    try:
        if math.isfinite(value := float(row[name])):
            return value
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(f"{path}.{name}", row[name], "must be a number")


def _measured_text(row: Mapping[str, Any], name: str, path: str) -> str:
    if not isinstance(row[name], str):
        raise InvalidInput(f"{path}.{name}", row[name], "must be text or an object")
    return str(row[name])


# ---------------------------------------------------------------- shared
def _read_objects(cls: type[T], text: str, field: str, rule: str, example: str | None = None) -> Iterator[T]:
    """Read a JSON list of objects, and check that each of them is valid for the type ``cls``."""
    for number, document in enumerate(parse_json(text, field, "lines of text, or JSON")):
        if not isinstance(document, Mapping):
            raise InvalidInput(field, document, rule, example)
        yield documents.read(cls, document, f"{field}.{number}")
