"""Phases of a job as people write them down: a line each, ``long: 5 %; seq_len 131072; batch 64``, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from autotuner.core import check
from autotuner.core.choices import Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import JobPhase
from autotuner.core.wire import from_dict, without_defaults

__all__ = ["read_phases", "written_phases"]

_EXAMPLE = "long: 5 %; seq_len 131072; batch 64"
_CHANGE = re.compile(r"(\w+)\s*[= ]\s*(\S+)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)\s*%")


def read_phases(text: str) -> tuple[JobPhase, ...]:
    """Phases that a text says: lines of ``name: share %[; change]``, or a JSON list of objects with a phase's fields.

    A change is ``seq_len`` and tokens, ``batch`` and sequences, ``bandwidth`` and a rate such as ``10gbit`` of one
    accelerator's port, or ``precision`` and a number format. ``|`` may part lines, too, and ``#`` begins a remark.

    Raises:
        InvalidInput: A line says no phase, with the line.
    """
    text = text.strip()
    if text.startswith("["):
        return tuple(_of_json(text))
    lines = (line.partition("#")[0].strip() for line in text.replace("|", "\n").splitlines())
    return tuple(_of_line(line) for line in lines if line)


def written_phases(phases: Iterable[JobPhase]) -> str:
    """What ``read_phases`` reads as those phases: lines, or JSON where lines cannot say all of them."""
    phases = tuple(phases)
    text = "\n".join(map(_line, phases))
    if _says(text, phases):
        return text
    return json.dumps([without_defaults(phase) for phase in phases], indent=1)


def _says(text: str, phases: tuple[JobPhase, ...]) -> bool:
    try:
        return read_phases(text) == phases
    except InvalidInput:  # a name that no line can have
        return False


def _of_line(line: str) -> JobPhase:
    name, colon, rest = line.rpartition(":")
    share, *changes = (part.strip() for part in rest.split(";"))
    found = _SHARE.fullmatch(share)
    if not (colon and name.strip() and found):
        raise InvalidInput("phases", line[:60], "must be name: share %; change", _EXAMPLE)
    try:
        changed = dict(_changed(change, line) for change in changes if change)
        return JobPhase(name=name.strip(), token_share=float(found[1]) / 100, **changed)
    except InvalidInput as error:
        raise InvalidInput("phases", line[:60], f"{error.field} {error.rule}", error.nearest) from error


def _changed(change: str, line: str) -> tuple[str, Any]:
    """The field that a change sets, and its value."""
    found = _CHANGE.fullmatch(change)
    if not found:
        raise InvalidInput(change[:30], line[:60], "must be a word and a value", "batch 64")
    word = found[1].lower()
    check.one_of("a change", word, _READERS)
    field, read = _READERS[word]
    return field, read(found[2])


def _whole(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise InvalidInput("a number", text[:30], "must be whole and below a thousand million", 8192)
    return int(text)


def _bytes_per_s(text: str) -> float:
    """A rate as fault traces write it."""
    try:
        (fault,) = FaultTrace.parse(f"0;0_1;{text}").faults
    except (InvalidInput, ValueError) as error:
        raise InvalidInput("bandwidth", text[:30], "must be a rate", "10gbit") from error
    if fault.health.bandwidth_bytes_per_s is None:
        raise InvalidInput("bandwidth", text[:30], "must be a rate", "10gbit")
    return fault.health.bandwidth_bytes_per_s


def _precision(text: str) -> Precision:
    labels = {precision.label: precision for precision in Precision}
    check.one_of("precision", text, labels)
    return labels[text]


_READERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "seq_len": ("seq_len", _whole),
    "batch": ("global_batch_size", _whole),
    "bandwidth": ("bandwidth_bytes_per_s", _bytes_per_s),
    "precision": ("precision", _precision),
}


def _line(phase: JobPhase) -> str:
    changes = "".join(f"; {word} {_written(getattr(phase, field))}" for word, field in _words(phase))
    return f"{phase.name}: {100 * phase.token_share:.12g} %{changes}"


def _words(phase: JobPhase) -> Iterator[tuple[str, str]]:
    return ((word, field) for word, (field, _) in _READERS.items() if getattr(phase, field) is not None)


def _written(value: int | float | Precision) -> str:
    if isinstance(value, Precision):
        return value.label
    return f"{8 * value / 1e6:.12g}mbit" if isinstance(value, float) else str(value)


def _of_json(text: str) -> Iterator[JobPhase]:
    try:
        documents = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("phases", text[:60], f"must be lines or JSON ({error})") from error
    names = ", ".join(field.name for field in fields(JobPhase))
    for number, document in enumerate(documents):
        if not isinstance(document, Mapping):
            raise InvalidInput("phases", document, f"must be an object with a phase's fields: {names}")
        yield from_dict(JobPhase, document, f"phases.{number}")
