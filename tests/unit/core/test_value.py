"""Values, what their constructors check, and how JSON is read into them."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any, Generic, Literal, TypeVar, cast

import pytest

from autotuner.core import documents
from autotuner.core.choices import Precision
from autotuner.core.codec import SCHEMA_VERSION, dumps, from_plain, loads, to_plain, without_defaults
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import SweepRequest
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
    value,
)
from autotuner.core.workload import Workload
from tests.builders import measurement, sweep_request, tiny_job, tiny_model

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


def test_an_unstated_field_has_no_bounds_and_a_changed_or_generic_value_is_checked() -> None:
    assert Thing(limit=None).limit is None
    with pytest.raises(InvalidInput):
        replace(Thing(), count=0)
    assert Box(content="x").size == 1
    with pytest.raises(InvalidInput):
        Box(content=1, size=0)


def test_a_value_is_frozen_slotted_and_pickles() -> None:
    with pytest.raises(FrozenInstanceError):
        Thing().count = 2  # type: ignore[misc]
    assert not hasattr(Thing(), "__dict__")
    assert pickle.loads(pickle.dumps(Thing(count=3))) == Thing(count=3)


@pytest.mark.parametrize("cls", [LimitedThing, NamedThing])
def test_a_derived_value_keeps_the_bounds_and_the_rules_that_it_inherits(cls: type[LimitedThing]) -> None:
    wrongs: list[dict[str, Any]] = [{"count": 0}, {"most": 0}, {"count": 9}]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            cls(**wrong)
    assert cls(count=8).most == 8


@pytest.mark.parametrize(("number", "nearest"), [(3, 2), (5, 4), (7, 8), (100, 8)])
def test_the_nearest_divisor_is_the_smaller_one_on_a_tie(number: int, nearest: int) -> None:
    assert nearest_divisor(number, 8) == nearest
    assert divisors(8) == (1, 2, 4, 8)


def test_the_divisor_of_a_huge_number_is_found_without_a_search() -> None:
    assert nearest_divisor(6, 2**200) == 2


def test_documents_leave_out_defaults_take_words_for_integers_and_null_for_no_number() -> None:
    assert to_plain(Layout())["precision"] == "bf16"
    assert to_plain(SearchSpace(precision=(Precision.FP8,)))["precision"] == ["fp8"]
    assert from_plain(Layout, {"tensor_parallel_degree": 2}) == Layout(tensor_parallel_degree=2)
    assert from_plain(Measurement, {**to_plain(measurement()), "step_time_s": 2}).step_time_s == 2.0
    text = dumps(replace(measurement(), losses=(math.nan, 1.0)))
    assert json.loads(text)["losses"] == [None, 1.0]
    assert math.isnan(loads(Measurement, text).losses[0])
    request = sweep_request(job=tiny_job(model=tiny_model(qk_norm=True)), seed=3)
    short = without_defaults(request)
    assert short["seed"] == 3
    assert short["job"]["model"]["qk_norm"] is True
    assert not {"name", "trainer", "challenge"} & short.keys()
    assert not {"norm", "experts"} & short["job"]["model"].keys()
    assert from_plain(SweepRequest, short) == request


@pytest.mark.parametrize(
    ("document", "field", "nearest"),
    [
        ({"seq_len": 1, "global_batch_size": 1, "seqlen": 2}, "seqlen", "seq_len"),
        ({"seq_len": 1}, "global_batch_size", None),
        ({"seq_len": "1", "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": True, "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": 1.5, "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": 0, "global_batch_size": 1}, "seq_len", 1),
        ({"seq_len": 1, "global_batch_size": 1, "optimizer_state_precision": "fp8"}, "optimizer_state_precision", None),
    ],
)
def test_a_field_that_does_not_fit_is_named(document: dict[str, object], field: str, nearest: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_plain(Workload, document)
    assert (caught.value.field, caught.value.nearest) == (field, nearest)


def test_the_path_of_a_refusal_leads_through_objects_and_lists() -> None:
    document = to_plain(sweep_request())
    document["space"]["precision"] = ["bf16", "fp4"]
    with pytest.raises(InvalidInput) as caught:
        from_plain(SweepRequest, document)
    assert caught.value.field == "space.precision.1"
    document = to_plain(sweep_request())
    document["job"]["workload"]["seq_len"] = 0
    with pytest.raises(InvalidInput) as caught:
        from_plain(SweepRequest, document)
    assert (caught.value.field, caught.value.nearest) == ("job.workload.seq_len", 1)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", "3"])
def test_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Workload"):
        loads(Workload, text)


def test_another_schema_version_and_numbers_that_no_computer_reckons_with_are_refused() -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION + 1, "seq_len": 1, "global_batch_size": 1})
    with pytest.raises(InvalidInput) as caught:
        loads(Workload, text)
    assert (caught.value.field, caught.value.nearest) == ("schema_version", SCHEMA_VERSION)
    with pytest.raises(InvalidInput, match=r"step_time_s.*exceeds the range"):
        from_plain(Measurement, {**to_plain(measurement()), "step_time_s": 10**400})
    with pytest.raises(InvalidInput, match="must be JSON"):
        loads(Layout, "[" * 5_000)
