"""A client that is not put off: it asks until it is answered, with one idempotency key for one wish."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import httpx

from tests.chaos.members import Member

_TIMEOUT_S = 3.0
_DEADLINE_S = 90.0
_RETRY_S = 0.1


def create_sweep(services: Sequence[Member], body: dict[str, Any], key: str) -> str:
    """The id of the sweep, once a service has said that there is one."""
    deadline = time.monotonic() + _DEADLINE_S
    last: object = None
    while time.monotonic() < deadline:
        for service in services:
            try:
                answer = httpx.post(
                    f"{service.url}/sweeps", json=body, headers={"Idempotency-Key": key}, timeout=_TIMEOUT_S
                )
            except httpx.TransportError as error:
                last = error
                continue
            if answer.is_success:
                sweep_id: str = answer.json()["id"]
                return sweep_id
            assert answer.status_code in (503, 504), f"{answer.status_code}: {answer.text}"
            last = answer.text
        time.sleep(_RETRY_S)
    raise TimeoutError(f"no service took the sweep: {last}")


def unexpected_answer(service: Member, path: str) -> str | None:
    """What a service says to a reader that no fault excuses; it may be away, or say that the database is."""
    try:
        answer = httpx.get(f"{service.url}{path}", timeout=_TIMEOUT_S)
    except httpx.TransportError:
        return None
    if answer.is_success or answer.status_code in (503, 504):
        return None
    return f"GET {path} of {service.spec.name}: {answer.status_code} {answer.text[:300]}"
