"""Layouts as columns and back."""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.choice import PipelineSchedule, Precision, Recompute
from autotuner.domain.layout import Layout

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
