"""ServerEvent: an event of a sweep as the service streams it, read from lines of ``text/event-stream``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from autotuner.client.call import ServiceError
from autotuner.core.errors import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """An event of a sweep."""

    sequence: int
    """Reading goes on behind it after a cut."""
    kind: str
    """Such as ``trial.finished``; docs/api.md lists them."""
    data: dict[str, Any]
    """``at``, epoch seconds, and what is said of such an event."""

    @property
    def is_last(self) -> bool:
        """The sweep is finished."""
        return self.kind == "sweep.finished"


class EventLines:
    """Makes events of a stream's lines, as they come."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def add(self, line: str) -> Iterator[ServerEvent]:
        """The event that this line ends, if it does; comments keep a connection open and say nothing.

        Raises:
            ServiceError: It is none of ours: something else answers in the place of the service.
        """
        name, separator, value = line.partition(": ")
        if name and separator:
            self._fields[name] = value
        elif not line and "data" in self._fields:
            said, self._fields = self._fields, {}
            yield _event(said)


def _event(said: Mapping[str, str]) -> ServerEvent:
    try:
        return ServerEvent(sequence=int(said["id"]), kind=said["event"], data=json.loads(said["data"]))
    except (KeyError, ValueError, RecursionError) as error:
        told = f"what was streamed is no event of a sweep: {quoted(dict(said))}"
        raise ServiceError(HTTPStatus.OK, {"detail": told}) from error
