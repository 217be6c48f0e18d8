"""Optimizer studies over REST: queued once, listed, read with curves and front, cancelled."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.bodies import STUDY

KEY = {"Idempotency-Key": "ci-1"}


@pytest.fixture
def study(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/optimizer-studies", json=STUDY, headers=KEY)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_a_key_creates_one_study(client: httpx.Client, study: dict[str, Any]) -> None:
    again = client.post("/optimizer-studies", json=STUDY, headers=KEY)
    assert (again.status_code, again.json()["id"]) == (200, study["id"])
    other = client.post("/optimizer-studies", json=STUDY | {"target_loss": 4.0}, headers=KEY)
    assert other.status_code == 409
