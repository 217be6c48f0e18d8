"""Refusals that are recorded: the first of each kind in a minute, and no flood of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotuner.api.edge.log import Refusals
from autotuner.core.access import AuditEntry

REFUSED = AuditEntry(
    at=1.0, caller="", token_id=None, action="create_sweep", subject="/", status=401, request_id="r", address="10.0.0.7"
)


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_refusal_is_news_once_a_minute() -> None:
    clock = Clock()
    refusals = Refusals(clock)
    assert [refusals.is_news(replace(REFUSED, request_id=str(number))) for number in range(3)] == [True, False, False]
    clock.seconds = 61.0
    assert refusals.is_news(REFUSED)


def test_another_caller_address_action_subject_or_status_is_other_news() -> None:
    refusals = Refusals(Clock())
    others = ({"caller": "ada"}, {"address": "10.0.0.8"}, {"action": "list_sweeps"}, {"subject": "/x"}, {"status": 429})
    assert all(refusals.is_news(replace(REFUSED, **other)) for other in others)


def test_attempts_from_many_addresses_do_not_fill_the_log() -> None:
    refusals = Refusals(Clock())
    assert sum(refusals.is_news(replace(REFUSED, address=f"10.0.{n // 256}.{n % 256}")) for n in range(5000)) == 600
