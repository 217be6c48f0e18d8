"""The constructor of a value checks the bounds of its fields."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any, Generic, Literal, TypeVar, cast

import pytest

from autotuner.core import documents
from autotuner.core.errors import InvalidInput
from autotuner.core.value import (
    Count,
    CountFromZero,
    FromOne,
    NonNegative,
    Positive,
    PositiveShare,
    Share,
    divisors,
    nearest_divisor,
    require_one_of,
    value,
)

T = TypeVar("T")


@value
class Thing:
    """A thing with a field of each kind."""

    count: Count = 1
    steps: CountFromZero = 0
    rate: Positive = 1.0
    delay_s: NonNegative = 0.0
    share: Share = 0.0
    part: PositiveShare = 1.0
    factor: FromOne = 1.0
    limit: Positive | None = None
    kind: Literal["cpu", "cuda"] = "cpu"


@value
class LimitedThing(Thing):
    """A thing with a rule of its own."""

    most: Count = 8

    def __post_init__(self) -> None:
        if self.count > self.most:
            raise InvalidInput("count", self.count, f"must not exceed {self.most}", self.most)


@value
class NamedThing(LimitedThing):
    """A thing that inherits the rule."""

    name: str = ""


@value
class Box(Generic[T]):
    """A box for anything."""

    content: T
    size: Count = 1


WRONG = [
    ("count", 0, "must be above 0", 1),
    ("count", -3, "must be above 0", 1),
    ("steps", -1, "must be 0 or more", 0),
    ("rate", 0.0, "must be above 0", None),
    ("delay_s", -0.5, "must be 0 or more", 0),
    ("share", -0.1, "must lie in 0..1", 0.0),
    ("share", 1.1, "must lie in 0..1", 1.0),
    ("part", 0.0, "must be above 0", None),
    ("part", 1.1, "must lie in 0..1", 1.0),
    ("factor", 0.5, "must be 1.0 or more", 1.0),
    ("limit", 0.0, "must be above 0", None),
    ("kind", "cuba", "must be one of cpu, cuda", "cuda"),
]


@pytest.mark.parametrize(("field", "number", "rule", "nearest"), WRONG)
def test_a_number_out_of_its_bounds_is_refused_with_the_rule_and_the_nearest(
    field: str, number: Any, rule: str, nearest: object
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Thing(**{field: number})
    error = caught.value
    assert (error.field, error.value, error.rule, error.nearest) == (field, number, rule, nearest)


@pytest.mark.parametrize(("field", "number", "rule", "nearest"), WRONG)
def test_a_document_is_refused_in_the_words_of_the_constructor(
    field: str, number: Any, rule: str, nearest: object
) -> None:
    with pytest.raises(InvalidInput) as caught:
        documents.read(Thing, {field: number}, "thing")
    assert (caught.value.field, caught.value.rule, caught.value.nearest) == (f"thing.{field}", rule, nearest)


@pytest.mark.parametrize("field", ["rate", "delay_s", "share", "part", "factor", "limit"])
def test_a_number_that_is_not_a_number_keeps_no_bound(field: str) -> None:
    with pytest.raises(InvalidInput):
        replace(Thing(), **{field: cast("Any", math.nan)})


def test_a_field_that_is_not_stated_has_no_bounds() -> None:
    assert Thing(limit=None).limit is None


def test_a_changed_copy_is_checked_as_well() -> None:
    with pytest.raises(InvalidInput):
        replace(Thing(), count=0)


def test_a_value_is_frozen_and_slotted() -> None:
    with pytest.raises(FrozenInstanceError):
        Thing().count = 2  # type: ignore[misc]
    assert not hasattr(Thing(), "__dict__")


@pytest.mark.parametrize("cls", [LimitedThing, NamedThing])
def test_a_derived_value_keeps_the_bounds_and_the_rules_that_it_inherits(cls: type[LimitedThing]) -> None:
    wrongs: list[dict[str, Any]] = [{"count": 0}, {"most": 0}, {"count": 9}]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            cls(**wrong)
    assert cls(count=8).most == 8


def test_a_generic_value_is_checked() -> None:
    assert Box(content="x").size == 1
    with pytest.raises(InvalidInput):
        Box(content=1, size=0)


def test_a_value_pickles() -> None:
    assert pickle.loads(pickle.dumps(Thing(count=3))) == Thing(count=3)


def test_an_unknown_word_gets_the_list_of_known_ones() -> None:
    with pytest.raises(InvalidInput, match="must be one of cpu, cuda"):
        require_one_of("kind", "tpu", ("cpu", "cuda"))


@pytest.mark.parametrize(("number", "nearest"), [(3, 2), (5, 4), (7, 8), (100, 8)])
def test_the_nearest_divisor_is_the_smaller_one_on_a_tie(number: int, nearest: int) -> None:
    assert nearest_divisor(number, 8) == nearest
    assert divisors(8) == (1, 2, 4, 8)


def test_the_divisor_of_a_huge_number_is_found_without_a_search() -> None:
    assert nearest_divisor(6, 2**200) == 2
