"""A fault trace as callers write it: lines of text, or the object that these stand for."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema
from pydantic_core.core_schema import CoreSchema

from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace

MAX_STEPS = 10_000
"""Steps under faults that a trial may run; at 20 ms each these take minutes."""

MAX_FAULTS = 256
"""Distinct states of links are predicted one after the other, for the whole table of layouts."""

_MAX_TEXT = 1 << 14

_TEXT = {
    "type": "string",
    "pattern": "^[^\\x00]*$",
    "maxLength": _MAX_TEXT,
    "description": (
        "A line per fault: `iteration;link[,link];state`, where a link is the numbers of its two ends (`2_3`: nodes, "
        "or accelerators of a single node), and a state is seconds of one-way delay (`0.06`; `0` heals), a rate "
        "(`200mbit`), or `dead`. It lasts as long after its last fault as it took to get there."
    ),
    "examples": ["7;2_3;0.06\n30;2_3;0"],
}


class _AsFaultsAreWritten:
    """Metadata of a ``FaultTrace`` that may also be lines of text."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook."""
        read = core_schema.no_info_before_validator_function(_whole, handler(source))
        return core_schema.no_info_after_validator_function(_within_limits, read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Pydantic's hook."""
        return {"anyOf": [_TEXT, handler(schema)]}


GivenFaultTrace: TypeAlias = Annotated[FaultTrace, _AsFaultsAreWritten()]


def _whole(given: object) -> object:
    """The document that a text stands for; anything else as it is."""
    if not isinstance(given, str):
        return given
    if len(given) > _MAX_TEXT:
        raise InvalidInput("fault_trace", f"{len(given)} characters", "must be shorter", _MAX_TEXT)
    return to_plain(FaultTrace.parse(given))


def _within_limits(trace: FaultTrace) -> FaultTrace:
    """The trace, if trials can run it in a bearable time."""
    for name, found, most in (("num_steps", trace.num_steps, MAX_STEPS), ("faults", len(trace.faults), MAX_FAULTS)):
        if found > most:
            raise InvalidInput(name, found, f"a fault trace may have {most} of them at most", most)
    return trace
