from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.search.planning.amounts import (
    read_amount,
    read_duration_s,
    read_listed,
    read_numbers,
    read_prices,
    written_amount,
)


@pytest.mark.parametrize(
    ("text", "value"), [("15.6T", 15.6e12), ("400b", 4e11), ("2e12", 2e12), ("$3.5M", 3.5e6), ("1,000", 1000.0)]
)
def test_an_amount_may_have_a_letter_for_its_size(text: str, value: float) -> None:
    assert read_amount("tokens", text) == pytest.approx(value)


@pytest.mark.parametrize("value", [15.6e12, 4e11, 3.5e6, 12.0, 0.5])
def test_an_amount_that_was_written_is_read_as_it_was(value: float) -> None:
    assert read_amount("tokens", written_amount(value)) == pytest.approx(value)


@pytest.mark.parametrize(("text", "seconds"), [("60d", 60 * 86_400), ("8 weeks", 56 * 86_400), ("36h", 36 * 3600)])
def test_a_time_has_its_unit(text: str, seconds: float) -> None:
    assert read_duration_s("deadline", text) == seconds


def test_a_time_without_a_unit_is_refused_with_one_that_has() -> None:
    with pytest.raises(InvalidInput, match="60d"):
        read_duration_s("deadline", "60")


@pytest.mark.parametrize("text", ["", "-1", "1.2.3", "nan", "1e999", "2 trillion"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="tokens"):
        read_amount("tokens", text)


def test_prices_are_read_by_accelerator() -> None:
    assert read_prices("price", ["h100=2.1", "b200 = $3"]) == {"h100": 2.1, "b200": 3.0}
    with pytest.raises(InvalidInput, match=r"h200=2\.1"):
        read_prices("price", ["h200"])


def test_lists_have_commas() -> None:
    assert read_listed("a, b,") == ("a", "b")
    assert read_numbers("sizes", "8,16.5") == (8.0, 16.5)
    with pytest.raises(InvalidInput, match="must be a number"):
        read_numbers("sizes", "8,x")
