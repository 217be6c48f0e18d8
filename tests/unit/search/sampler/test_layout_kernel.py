from __future__ import annotations

import numpy as np
import pytest

from autotuner.core.choices import ContextExchange, Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.search.sampler.layout_kernel import similarity
from tests.unit.search.tables import LAYOUTS


def columns(*layouts: Layout) -> LayoutColumns:
    return LayoutColumns.from_layouts(layouts)


def test_a_layout_is_wholly_alike_only_to_itself() -> None:
    alike = similarity(LAYOUTS, LAYOUTS)
    assert ((alike == 1.0) == np.eye(len(LAYOUTS), dtype=bool)).all()


@pytest.mark.parametrize(
    ("near", "far"),
    [
        (Layout(micro_batch_size=2), Layout(micro_batch_size=8)),
        (Layout(fused_norm=False), Layout(fused_norm=False, recompute=Recompute.FULL)),
        (Layout(tensor_parallel_degree=2), Layout(tensor_parallel_degree=2, sequence_parallel=True)),
        (Layout(last_stage_less_layers=1), Layout(last_stage_less_layers=3)),
        (
            Layout(gradient_bucket_bytes=2 * DEFAULT_BUCKET_BYTES),
            Layout(gradient_bucket_bytes=DEFAULT_BUCKET_BYTES // 4),
        ),
        (Layout(compiled=True), Layout(compiled=True, context_exchange=ContextExchange.ALL_GATHER)),
    ],
)
def test_every_doubling_and_every_changed_choice_makes_layouts_less_alike(near: Layout, far: Layout) -> None:
    (alike,) = similarity(columns(Layout()), columns(near, far))
    assert 0 < alike[1] < alike[0] < 1


def test_a_changed_choice_counts_the_same_whatever_the_two_values_are() -> None:
    (alike,) = similarity(
        columns(Layout()), columns(Layout(recompute=Recompute.SELECTIVE), Layout(recompute=Recompute.FULL))
    )
    assert alike[0] == alike[1]


def test_similarity_is_a_covariance() -> None:
    smallest = np.linalg.eigvalsh(similarity(LAYOUTS, LAYOUTS)).min()
    assert smallest > -1e-12  # none is negative but for rounding


def test_with_nothing_to_compare_to_there_is_no_similarity() -> None:
    assert similarity(LAYOUTS, columns()).shape == (len(LAYOUTS), 0)
