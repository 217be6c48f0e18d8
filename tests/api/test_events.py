from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.api.service import StoreDriver


@dataclass(frozen=True)
class Received:
    id: int
    kind: str
    data: dict[str, Any]


def stream(client: httpx.Client, sweep_id: str, after: int | None = None) -> Iterator[Received]:
    """Events as they arrive, until the service ends the stream."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", f"/sweeps/{sweep_id}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            name, separator, value = line.partition(": ")
            if separator and name:
                fields[name] = value
            elif fields:
                yield Received(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                fields = {}


def test_events_arrive_while_they_happen(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    events = stream(client, sweep.id)
    assert [next(events).kind, next(events).kind] == ["sweep.created", "sweep.started"]
    trial = driver.running(sweep, 0, num_steps=0)
    assert next(events).kind == "trial.started"
    driver.step(trial, 0)
    assert next(events).data["step"] == 0
    driver.end(trial)
    assert next(events).kind == "trial.finished"
    driver.finish(sweep)
    assert [event.kind for event in events] == ["sweep.finished"]


def test_a_reader_resumes_behind_the_last_event_it_saw(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    driver.finish(sweep)
    whole = list(stream(client, sweep.id))
    assert list(stream(client, sweep.id, after=whole[2].id)) == whole[3:]
    assert list(stream(client, sweep.id, after=whole[-1].id)) == []


def test_a_long_history_is_streamed_whole(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.end(driver.running(sweep, 0, num_steps=600))  # more than the store returns at once
    driver.finish(sweep)
    steps = [event.data["step"] for event in stream(client, sweep.id) if event.kind == "trial.step"]
    assert steps == list(range(600))


def test_a_reader_that_does_not_wait_gets_what_there_is_and_an_end(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.running(sweep, 0, num_steps=0)
    answer = client.get(f"/sweeps/{sweep.id}/events", params={"wait": False}, headers={"Last-Event-ID": "1"})
    assert [line for line in answer.text.splitlines() if line.startswith("event")] == [
        "event: sweep.started",
        "event: trial.started",
    ]
