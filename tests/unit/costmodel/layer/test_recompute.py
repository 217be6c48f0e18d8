"""What a selective recomputation repeats of products in 8 bits."""

from __future__ import annotations

from autotuner.core.choices import Precision
from autotuner.core.layout import Layout
from autotuner.core.recompute import RecomputePolicy
from autotuner.costmodel.layer.recompute import product_share
from tests.unit.costmodel.works import columns, with_stack


def test_a_policy_by_operation_computes_compiled_products_in_fp8_again() -> None:
    job = with_stack(selective_recompute=(RecomputePolicy.EVERY_OTHER_PRODUCT,), repeats_fp8_products=True)
    bf16, eager, compiled = (
        Layout(compiled=True),
        Layout(precision=Precision.FP8),
        Layout(precision=Precision.FP8, compiled=True),
    )
    shares = product_share(columns(bf16, eager, compiled), job, sparse=False)
    assert 0 < shares[0] == shares[1] < shares[2] == 1.0
