"""What a training framework does, as data."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from autotuner.core.codec import dumps, from_plain, loads
from autotuner.core.errors import InvalidInput
from autotuner.core.stack import Stack
from tests.builders import tiny_job


def test_a_job_runs_on_the_stack_of_the_trial_job_unless_told_otherwise() -> None:
    assert tiny_job().stack == Stack()
    assert Stack().name == "torch"


def test_a_stack_survives_the_journey_through_json() -> None:
    stack = Stack(name="mine", balances_stages=True, kernel_launch_s=7e-6, allowance_bytes=10**9)
    assert loads(Stack, dumps(stack)) == stack


@pytest.mark.parametrize(
    ("field", "value", "nearest"),
    [
        ("overlaps_data_parallel", 1.5, 1.0),
        ("overlaps_data_parallel", -0.5, 0.0),
        ("matrix_slowdown", 0.0, None),
        ("pointwise_traffic", -1.0, None),
        ("kernel_launch_s", -1e-6, 0),
        ("logits_copies", float("nan"), 0),
        ("allowance_bytes", -1, 0),
        ("scatter", -0.1, 0),
    ],
)
def test_an_impossible_number_is_refused_with_the_nearest(field: str, value: float, nearest: float | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        Stack(**{field: value})  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.nearest) == (field, nearest)


@pytest.mark.parametrize("field", [f.name for f in fields(Stack) if f.type in ("float", "int")])
def test_no_number_of_a_stack_may_be_negative(field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        Stack(**{field: -1})  # type: ignore[arg-type]


def test_a_field_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput) as caught:
        from_plain(Stack, {"block_sends": True})
    assert caught.value.nearest == "blocks_sends"


def test_every_field_but_the_name_is_explained() -> None:
    words = inspect.getdoc(Stack) or ""
    assert all(f"{f.name}: " in words for f in fields(Stack) if f.name != "name")
