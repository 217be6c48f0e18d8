"""What is kept and sent in 8 bits or fewer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import Fp8Recipe, Precision
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.low_precision import gathers_parameters, is_narrow, saved_share, sent_share, weight_bytes
from tests.builders import big_job
from tests.unit.costmodel.works import columns, first, with_stack

DELAYED, BLOCKS = (Layout(precision=Precision.FP8, fp8_recipe=r) for r in (Fp8Recipe.DELAYED, Fp8Recipe.MXFP8))


def engine(name: str = "h100", **fields: bool) -> Job:
    """The big job with Transformer Engine, on that accelerator."""
    job = with_stack(None, fp8_implementation="transformer_engine", **fields)
    return replace(job, cluster=replace(job.cluster, accelerator=load_cluster(name).accelerator))


def test_emulation_multiplies_and_keeps_16_bits() -> None:
    precisions = (Precision.BF16, Precision.FP8_EMULATED, Precision.FP8, Precision.NVFP4)
    assert is_narrow(columns(*(Layout(precision=p) for p in precisions))).tolist() == [False, False, True, True]


def test_transformer_engine_keeps_inputs_rounded_and_torchao_does_not() -> None:
    x = columns(Layout(), DELAYED)
    assert saved_share(x, engine()).tolist() == [1.0, 0.5]
    assert saved_share(x, big_job()).tolist() == [1.0, 1.0]


def test_what_tensor_ranks_gather_is_rounded_where_the_software_does_so_and_the_scale_allows_it() -> None:
    rows = Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.ROWWISE)
    x = columns(Layout(), DELAYED, BLOCKS, rows)
    assert sent_share(x, engine(gathers_fp8_activations=True)).tolist() == [1.0, 0.5, 0.75, 1.0]
    assert sent_share(x, engine()).tolist() == [1.0, 1.0, 1.0, 1.0]


def test_weights_are_gathered_rounded_with_one_scale_for_all_ranks_alone() -> None:
    x = columns(Layout(), DELAYED, BLOCKS)
    assert gathers_parameters(x, engine(gathers_fp8_parameters=True)).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("accelerator", "layout", "gathers", "expected"),
    [
        ("h100", Layout(), False, 2.0),
        ("h100", DELAYED, False, 4.0),  # 16 bits, and both layouts
        ("h100", DELAYED, True, 2.0),  # both layouts alone
        ("b200", DELAYED, False, 3.0),  # one layout serves all products
        ("b200", DELAYED, True, 1.0),
        ("b200", BLOCKS, True, 4.0),  # rounded along both directions, and gathered in 16 bits
    ],
)
def test_a_weight_has_the_copies_that_products_read(
    accelerator: str, layout: Layout, gathers: bool, expected: float
) -> None:
    job = engine(accelerator, gathers_fp8_parameters=gathers)
    assert first(weight_bytes(columns(layout), job)) == expected


def test_torchao_keeps_no_copies_of_weights() -> None:
    assert first(weight_bytes(columns(DELAYED), big_job())) == 2.0
