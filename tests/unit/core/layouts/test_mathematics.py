from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from autotuner.core.layouts.choice import GradientClip, GradientSync, PayloadPrecision, Precision
from autotuner.core.layouts.layout import Layout
from autotuner.core.layouts.mathematics import mathematics, trains_no_better
from autotuner.costmodel.columns import LayoutColumns

DEMO = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)


def test_layouts_that_differ_in_speed_alone_have_the_same_mathematics() -> None:
    other = replace(DEMO, tensor_parallel_degree=2, micro_batch_size=4, compiled=True)
    assert mathematics(DEMO) == mathematics(other)


@pytest.mark.parametrize(
    "other",
    [
        Layout(data_parallel_replicate_degree=2),
        replace(DEMO, data_parallel_replicate_degree=4),
        replace(DEMO, sync_sign=False),
        replace(DEMO, precision=Precision.FP8),
    ],
)
def test_exchange_replicas_and_format_are_mathematics(other: Layout) -> None:
    assert mathematics(DEMO) != mathematics(other)


def test_replicas_are_no_mathematics_where_they_exchange_all() -> None:
    assert mathematics(Layout()) == mathematics(Layout(data_parallel_replicate_degree=8))


def test_buckets_are_mathematics_where_each_has_a_norm_of_its_own() -> None:
    large = Layout(data_parallel_replicate_degree=2, gradient_clip=GradientClip.BUCKET)
    assert mathematics(replace(large, gradient_bucket_bytes=2**20)) != mathematics(large)


def test_over_how_many_ranks_a_matrix_is_split_is_mathematics_in_8_bits_alone() -> None:
    assert mathematics(Layout()) == mathematics(Layout(tensor_parallel_degree=2))
    split = Layout(precision=Precision.FP8, tensor_parallel_degree=2)
    assert mathematics(Layout(precision=Precision.FP8)) != mathematics(split)


@pytest.mark.parametrize(
    ("less", "is_less"),
    [
        (replace(DEMO, sync_top_k=2), True),
        (replace(DEMO, payload_precision=PayloadPrecision.BF16), True),
        (DEMO, False),
    ],
)
def test_what_sends_less_trains_no_better_and_what_sends_more_may(less: Layout, is_less: bool) -> None:
    assert trains_no_better(less, DEMO)
    assert trains_no_better(DEMO, less) is not is_less


def test_another_exchange_that_sends_less_may_train_better() -> None:
    diloco = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DILOCO, sync_period=1000)
    assert not trains_no_better(diloco, DEMO)


def test_columns_are_judged_as_layouts_are() -> None:
    rows = [DEMO, Layout(), replace(DEMO, sync_top_k=2)]
    judged = trains_no_better(cast("Layout", LayoutColumns.from_layouts(rows)), DEMO)
    assert judged.tolist() == [trains_no_better(row, DEMO) for row in rows] == [True, False, True]
