"""Links that are not healthy, as people write them down: a line each, ``2_3; 0.06; 200mbit``, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkHealth
from autotuner.core.wire import from_dict, without_defaults

__all__ = ["read_links", "written_links"]

_CLASSES = ("intra_node", "inter_node")

_STAND_IN = "0_1"
"""Ends in the place of a class while the state behind it is read."""


def read_links(text: str) -> tuple[LinkHealth, ...]:
    """Links that a text says: lines of ``link; state[; state]``, or a JSON list of objects with a link's fields.

    A link is the numbers of its ends, ``2_3``, or ``intra_node`` or ``inter_node`` for all of a class; a state is
    seconds of one-way delay, a rate such as ``200mbit``, or ``dead``. ``|`` may part lines, too.

    Raises:
        InvalidInput: A line says no link, with the line.
    """
    text = text.strip()
    if text.startswith("["):
        return tuple(_of_json(text))
    lines = (line.strip() for line in text.replace("|", "\n").splitlines())
    return tuple(_of_line(line) for line in lines if line and not line.startswith("#"))


def written_links(links: Iterable[LinkHealth]) -> str:
    """What ``read_links`` reads as those links: lines, or JSON where lines cannot say all of them."""
    links = tuple(links)
    text = "\n".join(map(_line, links))
    if read_links(text) == links:
        return text
    return json.dumps([without_defaults(link) for link in links], indent=1)


def _of_line(line: str) -> LinkHealth:
    where, *states = (part.strip() for part in line.split(";"))
    if not states:
        raise InvalidInput("link_health", line, "must be link; state", f"{where[:20]}; 0.06")
    named = where.lower().replace("-", "_") in _CLASSES
    found = [_state(_STAND_IN if named else where, state, line) for state in states]
    ends = {"ends": None, "link_class": where.lower().replace("-", "_")} if named else {"ends": found[0].ends}
    said = {name: value for one in found for name, value in _said(one).items()}
    return replace(LinkHealth(ends=(0, 1)), **ends, **said)


def _state(where: str, state: str, line: str) -> LinkHealth:
    """A state of one link, as a line of a fault trace has it."""
    try:
        (fault,) = FaultTrace.parse(f"0;{where};{state}").faults
    except InvalidInput as error:
        rule = "must be link; state, where a state is seconds of delay, a rate such as 200mbit, or dead"
        raise InvalidInput("link_health", line, rule, "2_3; 0.06") from error
    except ValueError as error:
        raise InvalidInput("link_health", line, "must name one link: two ends, or a class", "2_3; 0.06") from error
    return fault.health


def _said(health: LinkHealth) -> dict[str, Any]:
    names = ("delay_s", "bandwidth_bytes_per_s", "is_dead")
    return {name: value for name in names if (value := getattr(health, name))}


def _line(health: LinkHealth) -> str:
    return "; ".join((str(health), *_states(health)))


def _states(health: LinkHealth) -> Iterator[str]:
    if health.is_dead:
        yield "dead"
    if health.bandwidth_bytes_per_s is not None:
        yield f"{8 * health.bandwidth_bytes_per_s / 1e6:.12g}mbit"
    if health.delay_s or not (health.is_dead or health.bandwidth_bytes_per_s is not None):
        yield f"{health.delay_s:.12g}"


def _of_json(text: str) -> Iterator[LinkHealth]:
    try:
        documents = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("link_health", text[:60], f"must be lines or JSON ({error})") from error
    for number, document in enumerate(documents):
        if not isinstance(document, Mapping):
            raise InvalidInput("link_health", document, "must be an object with a link's fields", '{"ends": [2, 3]}')
        yield from_dict(LinkHealth, document, f"link_health.{number}")
