"""How much of a trial's gradients is reduced under its backward passes, by where it clips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.choices import GradientClip
from autotuner.core.layout import Layout
from tests.trials.specs import PIPELINE, THREE_STEPS, ZBV, ddp, fsdp, trial_spec, zero
from tests.trials.zygote import Zygote

SMALL: dict[str, Any] = {"gradient_bucket_bytes": 2**14}
"""Some 40 buckets of the tiny model."""
PRE: dict[str, Any] = {"gradient_clip": GradientClip.PRE}
BUCKET: dict[str, Any] = {"gradient_clip": GradientClip.BUCKET}


def share(layout: Layout, zygote: Zygote, folder: Path) -> float | None:
    spec = trial_spec(layout, settings=replace(THREE_STEPS, max_gradient_norm=1.0))
    return zygote.run(spec, folder).measurement.overlapped_share


def oracle(layout: Layout) -> Any:
    return pytest.param(layout, marks=pytest.mark.oracle)


@pytest.mark.parametrize(
    "layout",
    [
        ddp(2, **SMALL, micro_batch_size=2),
        ddp(2, **SMALL, **BUCKET, micro_batch_size=2),
        oracle(zero(2, **SMALL, micro_batch_size=2)),
        oracle(zero(2, **SMALL, **BUCKET, micro_batch_size=2)),
        oracle(ddp(2, **SMALL, **PIPELINE, micro_batch_size=2)),
        oracle(ddp(2, **SMALL, **BUCKET, **PIPELINE, micro_batch_size=2)),
    ],
    ids=str,
)
def test_small_buckets_are_mostly_reduced_under_the_backward_pass(
    layout: Layout, zygote: Zygote, tmp_path: Path
) -> None:
    found = share(layout, zygote, tmp_path)
    assert found is not None
    assert 0.5 <= found < 1.0


@pytest.mark.parametrize(
    "layout",
    [
        ddp(2, **SMALL, **PRE, micro_batch_size=2),
        oracle(ddp(2, micro_batch_size=2)),  # one bucket
        oracle(zero(2, **SMALL, **PRE, **ZBV, micro_batch_size=2)),
    ],
    ids=str,
)
def test_what_waits_for_the_last_gradient_is_reduced_behind_it(layout: Layout, zygote: Zygote, tmp_path: Path) -> None:
    assert share(layout, zygote, tmp_path) == 0.0


@pytest.mark.oracle
def test_a_stage_is_reduced_under_the_backward_passes_of_another_on_its_rank(zygote: Zygote, tmp_path: Path) -> None:
    """The first of the V's stages of a rank is done while the second still computes, or the other way round."""
    found = share(ddp(2, **ZBV, **BUCKET, micro_batch_size=2), zygote, tmp_path)
    assert found is not None
    assert 0.2 < found < 0.8


@pytest.mark.oracle
@pytest.mark.parametrize("layout", [fsdp(2, micro_batch_size=2), ddp(1, micro_batch_size=8)], ids=str)
def test_where_no_hook_hears_of_a_reduction_nothing_is_said(layout: Layout, zygote: Zygote, tmp_path: Path) -> None:
    assert share(layout, zygote, tmp_path) is None
