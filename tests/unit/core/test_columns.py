"""Layouts as columns and back."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.core.choices import PipelineSchedule, Precision, Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout

LAYOUTS = (
    Layout(),
    Layout(tensor_parallel_degree=8, sequence_parallel=True, recompute=Recompute.FULL),
    Layout(
        pipeline_parallel_degree=4,
        virtual_stages_per_rank=2,
        pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
        precision=Precision.FP8,
    ),
)


def test_a_row_is_the_layout_that_went_in() -> None:
    columns = LayoutColumns.from_layouts(LAYOUTS)
    assert len(columns) == 3
    assert tuple(columns.row(index) for index in range(3)) == LAYOUTS


def test_a_row_holds_plain_python_values() -> None:
    row = LayoutColumns.from_layouts(LAYOUTS).row(1)
    assert type(row.tensor_parallel_degree) is int
    assert type(row.sequence_parallel) is bool
    assert row.recompute is Recompute.FULL


def test_rows_are_taken_by_index_mask_and_slice() -> None:
    columns = LayoutColumns.from_layouts(LAYOUTS)
    assert columns.take(np.array([2, 0])).row(0) == LAYOUTS[2]
    assert columns.take(columns.tensor_parallel_degree == 8).row(0) == LAYOUTS[1]
    assert len(columns.take(slice(1, None))) == 2


def test_derived_degrees_are_those_of_the_layouts() -> None:
    columns = LayoutColumns.from_layouts(LAYOUTS)
    assert columns.world_size.tolist() == [layout.world_size for layout in LAYOUTS]
    assert columns.data_parallel_degree.tolist() == [layout.data_parallel_degree for layout in LAYOUTS]
    assert columns.num_stages.tolist() == [layout.num_stages for layout in LAYOUTS]


def test_degrees_do_not_wrap_at_32_bits() -> None:
    huge = Layout(data_parallel_replicate_degree=2**20, pipeline_parallel_degree=2**20)
    assert LayoutColumns.from_layouts([huge]).world_size.tolist() == [2**40]


def test_distinct_rows_are_the_combinations_of_the_named_fields_that_occur() -> None:
    layouts = [
        Layout(tensor_parallel_degree=t, micro_batch_size=b, sequence_parallel=t > 1, pipeline_parallel_degree=p)
        for p, t, b in ((1, 1, 1), (2, 8, 1), (4, 1, 1), (1, 1, 2), (8, 8, 1))
    ]
    few, which = LayoutColumns.from_layouts(layouts).distinct("tensor_parallel_degree", "micro_batch_size")
    pairs = list(zip(few.tensor_parallel_degree.tolist(), few.micro_batch_size.tolist(), strict=True))
    assert sorted(pairs) == [(1, 1), (1, 2), (8, 1)]
    assert [pairs[index] for index in which] == [(row.tensor_parallel_degree, row.micro_batch_size) for row in layouts]


def test_rows_told_apart_by_some_columns_have_no_others() -> None:
    few, _ = LayoutColumns.from_layouts(LAYOUTS).distinct("precision", "data_parallel_degree")
    assert len(few) == 2
    assert few.element_bytes.tolist() == [2.0, 2.0]  # follows from what they have
    assert few.take(slice(0, 1)).data_parallel_degree.tolist() == [1]
    for unknown in ("micro_batch_size", "world_size"):
        with pytest.raises(AttributeError, match=unknown):
            getattr(few, unknown)


def test_layouts_with_some_columns_alone_may_have_others_values_in_them() -> None:
    columns = LayoutColumns.from_layouts(LAYOUTS)
    plain = columns.only("recompute", "precision", recompute=np.zeros_like(columns.recompute))
    assert plain.recompute.tolist() == [Recompute.NONE] * 3
    assert plain.precision.tolist() == columns.precision.tolist()


def test_large_and_many_values_are_told_apart_too() -> None:
    layouts = [Layout(data_parallel_replicate_degree=2**40 + n, micro_batch_size=2**30 + n % 7) for n in range(50)]
    columns = LayoutColumns.from_layouts(layouts)
    few, which = columns.distinct("data_parallel_replicate_degree", "micro_batch_size")
    assert few.data_parallel_replicate_degree[which].tolist() == columns.data_parallel_replicate_degree.tolist()
    assert few.micro_batch_size[which].tolist() == columns.micro_batch_size.tolist()
    few, which = columns.distinct("micro_batch_size")
    assert few.micro_batch_size[which].tolist() == columns.micro_batch_size.tolist()
    assert len(few) == 7


def test_an_empty_table_has_no_distinct_rows() -> None:
    few, which = LayoutColumns.from_layouts([]).distinct("precision")
    assert (len(few), len(which)) == (0, 0)


def test_activations_are_as_wide_as_the_format_they_are_stored_in() -> None:
    columns = LayoutColumns.from_layouts([Layout(precision=precision) for precision in Precision])
    assert columns.element_bytes.tolist() == [4.0, 2.0, 2.0, 2.0, 2.0]
