from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from api.edge.limits import OpenStreams
from autotuner.core.access import NOBODY_ASKED, Caller, Scope
from autotuner.core.errors import QuotaExceeded
from autotuner.core.listed import Stored
from autotuner.core.named import Described
from autotuner.store.schema import memory_engine
from autotuner.store.sql import Store, memory_store
from tests.api.service import StoreDriver, app_on, serve
from tests.api.test_problems import problem
from tests.patience import PATIENCE_S

# ---------------------------------------------------------------- streams

ANNA, BEN = (Caller(name=name, scope=Scope.READ) for name in ("anna", "ben"))


def test_so_many_streams_are_open_at_once_and_the_next_when_one_has_ended() -> None:
    driver = StoreDriver(store=memory_store())
    sweep = driver.sweep()
    path = f"/runs/{sweep.id}/events"
    with serve(app_on(driver.store, max_streams=2)) as address, ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=f"{address}/api/v1", timeout=PATIENCE_S))
        for _ in range(2):
            stream = stack.enter_context(client.stream("GET", path))
            assert stream.status_code == 200
        refused = client.get(path)
        problem(refused, 429, "quota-exceeded")
        assert int(refused.headers["Retry-After"]) > 0
        driver.finish(sweep)
        while client.get(path).status_code != 200:
            pass


def test_each_caller_has_streams_of_their_own() -> None:
    streams = OpenStreams(at_once=3, per_caller=2)
    with streams.opened(ANNA), streams.opened(ANNA):
        with pytest.raises(QuotaExceeded, match="anna has 2"), streams.opened(ANNA):
            pass
        with (
            streams.opened(BEN),
            pytest.raises(QuotaExceeded, match="3 streams of events are open"),
            streams.opened(BEN),
        ):
            pass
    with streams.opened(ANNA), streams.opened(ANNA):
        pass


def test_callers_who_were_not_asked_who_they_are_share_what_there_is() -> None:
    streams = OpenStreams(at_once=3, per_caller=1)
    with streams.opened(NOBODY_ASKED), streams.opened(NOBODY_ASKED), streams.opened(NOBODY_ASKED):
        pass


# ---------------------------------------------------------------- deadlines


class SlowStore(Store):
    """A store that is not done with a list of models before it is told to."""

    def __init__(self) -> None:
        super().__init__(memory_engine())
        self.go_on = threading.Event()
        self.descriptions.stored = self._wait  # type: ignore[method-assign]

    def _wait(self, cls: type[Described]) -> Stored[Described]:  # noqa: ARG002
        self.go_on.wait(PATIENCE_S)
        raise ZeroDivisionError("nobody hears of this any more")


@pytest.fixture
def store() -> Iterator[SlowStore]:
    store = SlowStore()
    yield store
    store.go_on.set()


@pytest.fixture
def address(store: SlowStore) -> Iterator[str]:
    with serve(app_on(store, request_s=0.3)) as address:
        yield address
        store.go_on.set()


def test_a_request_that_takes_too_long_is_answered_with_when_to_come_again(address: str) -> None:
    answer = httpx.get(f"{address}/api/v1/models", timeout=PATIENCE_S)
    found = problem(answer, 503, "too-slow")
    assert "within 0.3 s" in found["detail"]
    assert int(answer.headers["Retry-After"]) > 0


def test_what_a_slow_route_ends_with_reaches_nobody(address: str, store: SlowStore) -> None:
    with httpx.Client(base_url=f"{address}/api/v1", timeout=PATIENCE_S) as client:
        problem(client.get("/models"), 503, "too-slow")
        store.go_on.set()
        assert client.get("/health").json() == {"status": "ok"}


def test_a_stream_that_began_goes_on() -> None:
    driver = StoreDriver(store=memory_store())
    sweep = driver.sweep()
    trial = driver.running(sweep, 0)
    with (
        serve(app_on(driver.store, request_s=2.0)) as address,
        httpx.stream("GET", f"{address}/api/v1/runs/{sweep.id}/events", timeout=PATIENCE_S) as answer,
    ):
        lines = answer.iter_lines()
        assert any(line == "event: trial.step" for line in lines)
        threading.Event().wait(2.5)
        driver.end(trial)
        driver.finish(sweep)
        assert any(line == "event: sweep.finished" for line in lines)
