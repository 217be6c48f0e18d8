"""Constructors' checks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autotuner.core import check
from autotuner.core.errors import InvalidInput


@dataclass
class Thing:
    count: int = 1
    share: float = 0.5


def test_values_inside_their_limits_pass() -> None:
    check.positive(Thing(), "count", "share")
    check.non_negative(Thing(count=0), "count")
    check.fraction(Thing(share=1.0), "share")
    check.one_of("kind", "cpu", ("cpu", "cuda"))
    check.divides("num_kv_heads", 4, 8, "num_heads")


def test_zero_is_not_positive_and_one_is_offered() -> None:
    with pytest.raises(InvalidInput) as caught:
        check.positive(Thing(count=0), "count")
    assert (caught.value.field, caught.value.nearest) == ("count", 1)


def test_no_number_is_not_positive() -> None:
    with pytest.raises(InvalidInput):
        check.positive(Thing(share=float("nan")), "share")


def test_below_zero_offers_zero() -> None:
    with pytest.raises(InvalidInput) as caught:
        check.non_negative(Thing(count=-1), "count")
    assert caught.value.nearest == 0


@pytest.mark.parametrize(("share", "nearest"), [(-0.1, 0.0), (1.1, 1.0)])
def test_a_fraction_outside_offers_the_nearer_end(share: float, nearest: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        check.fraction(Thing(share=share), "share")
    assert caught.value.nearest == nearest


def test_an_unknown_word_gets_the_list_of_known_ones() -> None:
    with pytest.raises(InvalidInput, match="must be one of cpu, cuda"):
        check.one_of("kind", "tpu", ("cpu", "cuda"))


@pytest.mark.parametrize(("value", "nearest"), [(3, 2), (5, 4), (7, 8), (100, 8)])
def test_the_nearest_divisor_is_offered_and_a_tie_goes_down(value: int, nearest: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        check.divides("num_kv_heads", value, 8, "num_heads")
    assert caught.value.nearest == nearest


def test_of_a_huge_number_a_divisor_is_named_without_a_search() -> None:
    with pytest.raises(InvalidInput) as caught:
        check.divides("num_kv_heads", 6, 2**200, "num_heads")
    assert caught.value.nearest == 2
