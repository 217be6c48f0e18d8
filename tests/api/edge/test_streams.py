from __future__ import annotations

from contextlib import ExitStack

import httpx
import pytest

from api.edge.limits import OpenStreams
from autotuner.core.access import NOBODY_ASKED, Caller, Scope
from autotuner.core.errors import QuotaExceeded
from autotuner.store.sql import memory_store
from tests.api.service import StoreDriver, app_on, serve
from tests.api.test_problems import problem
from tests.patience import PATIENCE_S

ANNA, BEN = (Caller(name=name, scope=Scope.READ) for name in ("anna", "ben"))


def test_so_many_streams_are_open_at_once_and_the_next_when_one_has_ended() -> None:
    driver = StoreDriver(store=memory_store())
    sweep = driver.sweep()
    path = f"/sweeps/{sweep.id}/events"
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
