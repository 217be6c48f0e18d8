"""Which values a sweep may try."""

from __future__ import annotations

from dataclasses import fields

import pytest

from autotuner.core.choices import Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS
from autotuner.core.space import SearchSpace


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("tensor_parallel_degree", ()),
        ("tensor_parallel_degree", (1, 1)),
        ("micro_batch_size", (0, 1)),
        ("precision", ()),
        ("precision", (Precision.BF16, Precision.BF16)),
    ],
)
def test_a_space_with_a_senseless_axis_is_refused_by_name(field: str, values: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        SearchSpace(**{field: values})
    assert caught.value.field == field


def test_a_choice_whose_integer_is_zero_is_a_legal_value() -> None:
    assert SearchSpace(precision=(Precision.FP32,)).values("precision") == (Precision.FP32,)


def test_there_is_an_axis_for_every_field_but_the_ranks_that_are_left() -> None:
    names = [axis.name for axis in fields(SearchSpace)]  # type: ignore[arg-type]  # a dataclass at run time
    assert names == [name for name in OPTIONS if name != "data_parallel_replicate_degree"]
    assert all(SearchSpace().values(name) == OPTIONS[name].searched for name in names)


def test_an_axis_of_another_name_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="tensor_degree"):
        SearchSpace(tensor_degree=(1,))


def test_a_space_with_other_axes_keeps_the_rest() -> None:
    space = SearchSpace(precision=(Precision.FP32,)).with_axes(tensor_parallel_degree=(2,))
    assert (space.values("precision"), space.values("tensor_parallel_degree")) == ((Precision.FP32,), (2,))
