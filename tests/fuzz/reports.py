"""What ranks and nodes write, and what a service streams to its readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx

from autotuner.core.codec import dumps, to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.node_line import PREFIX, NodeLine
from autotuner.core.sweep import SweepRequest
from autotuner.launch.lines import LineReader, NodeOutputs, RankReports
from autotuner.remote import EventLines, ServiceError, read_answer
from tests.builders import breakdown, measurement, measurements, step_report, step_timeline, sweep_request
from tests.fuzz.target import Target, text_of

_JSON = "application/json"


def _lines(*documents: dict[str, Any], prefix: bytes = b"") -> bytes:
    return b"".join(prefix + json.dumps(document).encode() + b"\n" for document in documents)


def _ranks(data: bytes) -> None:
    """Whatever stands in the file, what was understood can be stored."""
    _hold(LineReader().read(data))


def _hold(lines: Sequence[NodeLine]) -> None:
    reports = RankReports()
    for news in reports.take(lines):
        dumps(news)
    for value in (*reports.failures, reports.measurement, reports.benchmarks):
        if value is not None:
            dumps(value)


def _nodes(data: bytes) -> None:
    """Two nodes print the same, piece by piece; what was understood can be told and stored."""
    outputs = NodeOutputs(num_nodes=2, ranks_per_node=4)
    lines = [
        line for at in range(0, len(data), 1000) for node in (0, 1) for line in outputs.read(node, data[at : at + 1000])
    ]
    assert len(outputs.silent) + len(outputs.ends) == 2
    outputs.attempt_end(timed_out=False).log.encode()
    _hold(lines)


def _events(data: bytes) -> None:
    lines = EventLines()
    for line in text_of(data).splitlines():
        for event in lines.add(line):
            assert event.is_last in (True, False)


def _answer(data: bytes) -> None:
    """What answers begins its body with its kind."""
    status, kind = {b"[": (404, "application/problem+json"), b"<": (502, "text/html")}.get(data[:1], (200, _JSON))
    response = httpx.Response(status, headers={"content-type": kind}, content=data)
    read_answer(response, SweepRequest)


TARGETS = (
    Target(
        name="ranks",
        check=_ranks,
        seeds=(
            _lines(
                {"type": "started", "world_size": 2},
                {"type": "step", **to_plain(step_report(0))},
                {"type": "measurement", **to_plain(measurement())},
                {"type": "timeline", **to_plain(step_timeline())},
                {"type": "breakdown", **to_plain(breakdown(forward_s=0.1))},
                {"type": "failure", "rank": 1, "kind": "oom", "message": "no memory", "traceback": "..."},
            ),
            _lines({"type": "profile", **to_plain(measurements())}),
        ),
        words=('"type"', '"step"', "\n", "null", "NaN", "1e999", "[", "{}", '"collective"', '"schema_version": 1'),
    ),
    Target(
        name="nodes",
        check=_nodes,
        seeds=(
            _lines(
                {"type": "node_started"},
                {"type": "printed", "text": "hello", "at": 1.5},
                {"type": "trainer", "line": "{}"},
                {"type": "log", "local_rank": 1, "text": "Traceback"},
                {"type": "step", **to_plain(step_report(0))},
                {"type": "node", "exit_code": -9, "deaths": [[1, -9]], "timed_out": False, "oom_killed": True},
                prefix=PREFIX,
            ),
            b"plain words\n" + PREFIX + b'{"type": "trainer", "node": 7, "line": "y"}\n',
        ),
        words=(PREFIX.decode(), '"type"', "\\u0000", '"local_rank"', "\n", "1e999", '"node"'),
    ),
    Target(
        name="events",
        check=_events,
        seeds=(
            b'id: 1\nevent: trial.finished\ndata: {"at": 1.0}\n\n: alive\n\nid: 2\nevent: sweep.finished\ndata: {}\n\n',
        ),
        words=("id: ", "event: ", "data: ", "\n\n", "retry: "),
        refusals=(ServiceError,),
    ),
    Target(
        name="answers",
        check=_answer,
        seeds=(json.dumps(to_plain(sweep_request())).encode(), b'["title"]', b"<html>", b"[" * 3000, b"\xff"),
        is_json=True,
        refusals=(ServiceError, InvalidInput),
    ),
)
