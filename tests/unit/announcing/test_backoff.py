from __future__ import annotations

import pytest

from autotuner.announcing.backoff import DELAYS_S, MOST_ATTEMPTS, delay_s


def test_every_delay_is_longer_than_the_one_before_and_the_last_attempt_is_the_last() -> None:
    delays = [delay_s(attempt, 0.0) for attempt in range(1, MOST_ATTEMPTS)]
    assert delays == sorted(DELAYS_S)
    assert (MOST_ATTEMPTS, delay_s(MOST_ATTEMPTS, 0.0), delay_s(MOST_ATTEMPTS + 5, 0.0)) == (8, None, None)
    assert sum(DELAYS_S) / 3600 == pytest.approx(20.6, abs=0.05)  # hours, as the page says


def test_luck_makes_a_delay_longer_by_a_quarter_at_most() -> None:
    assert (delay_s(1, 0.0), delay_s(1, 0.5), delay_s(1, 1.0)) == (10.0, 11.25, 12.5)


def test_a_receiver_may_ask_for_more_time_and_not_for_less() -> None:
    assert delay_s(1, 0.0, retry_after_s=90.0) == 90.0
    assert delay_s(3, 0.0, retry_after_s=90.0) == 300.0
    assert delay_s(1, 0.0, retry_after_s=999_999.0) == DELAYS_S[-1]
