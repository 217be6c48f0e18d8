from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from api.edge.caller import set_caller
from api.edge.limits import AddressRates, CallerRates
from autotuner.core.access import NOBODY_ASKED, Caller, Quota
from autotuner.core.access import Scope as CallerScope

ANNA = Caller(name="anna", scope=CallerScope.READ, token_id="t1")
CI = Caller(name="ci", scope=CallerScope.RUN, token_id="t2", quota=Quota(requests_per_minute=2))


class CalledBy:
    """Says that all requests come from one caller."""

    def __init__(self, app: ASGIApp, caller: Caller) -> None:
        self._app = app
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        set_caller(scope, self._caller)
        await self._app(scope, receive, send)


answering = PlainTextResponse("served")


def answers(app: ASGIApp, paths: Sequence[str], client: str = "192.0.2.1") -> list[httpx.Response]:
    """What the application answers to requests one after another."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, client=(client, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return [await http.get(path) for path in paths]

    return asyncio.run(ask())


def test_a_caller_may_send_so_many_requests_a_minute() -> None:
    found = answers(CalledBy(CallerRates(answering, per_minute=3), ANNA), ["/"] * 4)
    assert [answer.status_code for answer in found] == [200, 200, 200, 429]
    assert 1 <= int(found[-1].headers["Retry-After"]) <= 120
    assert "anna (3 a minute)" in found[-1].json()["detail"]


def test_what_a_token_says_counts_more() -> None:
    found = answers(CalledBy(CallerRates(answering, per_minute=100), CI), ["/"] * 3)
    assert [answer.status_code for answer in found] == [200, 200, 429]


def test_callers_who_were_not_asked_who_they_are_send_what_they_like() -> None:
    found = answers(CalledBy(CallerRates(answering, per_minute=1), NOBODY_ASKED), ["/"] * 3)
    assert [answer.status_code for answer in found] == [200, 200, 200]


def test_an_address_may_send_so_many_requests_a_minute() -> None:
    app = AddressRates(answering, per_minute=3)
    assert [answer.status_code for answer in answers(app, ["/"] * 4)] == [200, 200, 200, 429]


@pytest.mark.parametrize(("other", "status"), [("2001:db8::2", 429), ("2001:db8:0:1::2", 200), ("192.0.2.9", 200)])
def test_addresses_of_one_household_count_as_one(other: str, status: int) -> None:
    limited = AddressRates(answering, per_minute=1)

    async def both() -> int:
        for client in ("2001:db8::1", other):
            transport = httpx.ASGITransport(limited, client=(client, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                answer = await http.get("/")
        return answer.status_code

    assert asyncio.run(both()) == status
