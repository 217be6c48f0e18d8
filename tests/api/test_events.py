from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import httpx
import pytest

from autotuner.api.events import LiveEvents
from autotuner.core.errors import StoreUnavailable
from autotuner.core.run import RunState
from autotuner.core.sweep import Event, Sweep
from autotuner.store.sql import Store
from tests.api.service import StoreDriver
from tests.builders import sweep_request

# ---------------------------------------------------------------- events


@dataclass(frozen=True)
class Received:
    id: int
    kind: str
    data: dict[str, Any]


def stream(client: httpx.Client, sweep_id: str, after: int | None = None) -> Iterator[Received]:
    """Events as they arrive, until the service ends the stream."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", f"/runs/{sweep_id}/events", headers=headers) as answer:
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
    answer = client.get(f"/runs/{sweep.id}/events", params={"wait": False}, headers={"Last-Event-ID": "1"})
    assert [line for line in answer.text.splitlines() if line.startswith("event")] == [
        "event: sweep.started",
        "event: trial.started",
    ]


# ---------------------------------------------------------------- live

SWEEP = Sweep(id="sw-live", request=sweep_request(), state=RunState.RUNNING, created_at=0.0)


@dataclass
class StoreOfEvents:
    """What streams ask of a store, and how often they did."""

    stored: list[Event] = field(default_factory=list)
    sweep: Sweep = SWEEP
    is_away: bool = False
    num_asked: int = 0
    num_read: int = 0

    def happen(self, num_events: int = 1, kind: str = "trial.step") -> None:
        first = len(self.stored) + 1
        self.stored += [
            Event(sweep_id=SWEEP.id, sequence=first + n, at=0.0, kind=kind, data={}) for n in range(num_events)
        ]

    def finish(self) -> None:
        self.happen(kind="sweep.finished")
        self.sweep = replace(SWEEP, state=RunState.COMPLETE)

    @property
    def runs(self) -> StoreOfEvents:
        return self

    def identify(self, run_id: str) -> Sweep:
        assert run_id == SWEEP.id
        self.num_read += 1
        return self.sweep

    def events(self, sweep_id: str, *, after: int = 0, limit: int = 500) -> Sequence[Event]:
        assert sweep_id == SWEEP.id
        if self.is_away:
            raise StoreUnavailable("the database is away")
        self.num_asked += 1
        return self.stored[after : after + limit]


def live(store: StoreOfEvents) -> LiveEvents:
    return LiveEvents(lambda: cast("Store", store))


async def sequences(events: LiveEvents, after: int = 0) -> list[int]:
    return [told.sequence async for told in events.read(SWEEP.id, after=after, wait=True)]


def test_a_hundred_readers_ask_the_store_no_more_often_than_one() -> None:
    async def read(num_readers: int) -> int:
        store = StoreOfEvents()
        store.happen(20)
        store.finish()
        events = live(store)
        assert await asyncio.gather(*[sequences(events) for _ in range(num_readers)]) == [[*range(1, 22)]] * num_readers
        return store.num_asked

    assert asyncio.run(read(100)) == asyncio.run(read(1))


def test_a_reader_who_joins_late_gets_what_happened_before_it_came_and_after() -> None:
    async def read() -> tuple[list[int], list[int]]:
        store = StoreOfEvents()
        store.happen(3)
        events = live(store)
        first = asyncio.create_task(sequences(events))
        while store.num_asked < 2:
            await asyncio.sleep(0.01)
        late = asyncio.create_task(sequences(events, after=1))
        await asyncio.sleep(0)
        store.finish()
        return await first, await late

    assert asyncio.run(read()) == ([1, 2, 3, 4], [2, 3, 4])


def test_a_reader_far_behind_misses_nothing_of_what_is_no_longer_kept() -> None:
    async def read() -> list[int]:
        store = StoreOfEvents()
        store.happen(5000)
        events = live(store)
        first = asyncio.create_task(sequences(events, after=5000))
        while store.num_asked < 12:
            await asyncio.sleep(0.01)
        store.finish()
        assert await first == [5001]
        return await sequences(events)

    assert asyncio.run(read()) == [*range(1, 5002)]


def test_a_store_that_is_away_ends_every_stream_with_the_error_and_the_next_reader_tries_again() -> None:
    async def read() -> list[int]:
        store = StoreOfEvents(is_away=True)
        store.finish()
        events = live(store)
        found = await asyncio.gather(*[sequences(events) for _ in range(3)], return_exceptions=True)
        assert [type(each) for each in found] == [StoreUnavailable] * 3
        store.is_away = False
        return await sequences(events)

    assert asyncio.run(read()) == [1]


def test_nobody_asks_the_store_once_the_last_reader_has_left() -> None:
    async def read() -> int:
        store = StoreOfEvents()
        store.happen()
        reader = live(store).read(SWEEP.id, after=0, wait=True)
        await anext(reader)
        await reader.aclose()  # type: ignore[attr-defined]  # an asynchronous generator
        while len(asyncio.all_tasks()) > 1:  # the follower's, which ends by itself
            await asyncio.sleep(0.01)
        return store.num_asked

    assert asyncio.run(read()) <= 3


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_reader_that_does_not_wait_gets_what_there_is(after: int) -> None:
    async def read() -> list[int]:
        store = StoreOfEvents()
        store.happen(2)
        return [told.sequence async for told in live(store).read(SWEEP.id, after=after, wait=False)]

    assert asyncio.run(read()) == [*range(after + 1, 3)]


def test_many_readers_who_come_at_once_ask_once_whether_there_is_such_a_sweep() -> None:
    async def ask() -> int:
        store = StoreOfEvents()
        events = live(store)
        await asyncio.gather(*[events.require(SWEEP.id) for _ in range(100)])
        return store.num_read

    assert asyncio.run(ask()) == 1


def test_a_sweep_that_is_followed_already_is_not_asked_for() -> None:
    async def ask() -> tuple[int, int]:
        store = StoreOfEvents()
        store.happen()
        events = live(store)
        reader = events.read(SWEEP.id, after=0, wait=True)
        await anext(reader)
        before = store.num_read
        await events.require(SWEEP.id)
        await reader.aclose()  # type: ignore[attr-defined]  # an asynchronous generator
        return before, store.num_read

    before, after = asyncio.run(ask())
    assert before == after == 0


def test_the_sweep_is_read_only_where_its_newest_event_says_that_it_may_be_over() -> None:
    async def read() -> list[int]:
        store = StoreOfEvents()
        store.happen()
        events = live(store)
        reader = asyncio.create_task(sequences(events))
        while store.num_asked < 3:
            await asyncio.sleep(0.01)
        seen = store.num_read
        store.finish()
        await reader
        return [seen, store.num_read]

    assert asyncio.run(read()) == [0, 1]
