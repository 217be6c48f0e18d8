"""Predictions of the cost model as they were recorded.

* 2,000 of them, 100 layouts for each of 20 jobs of all kinds: 30 of them part by part, 70 by their totals.
  ``mfu`` and ``tokens_per_s`` are a constant of the job over the step time, so the least and the greatest of that
  constant are recorded and not one number for each layout; HFU is recorded as a multiple of MFU.
* A digest of every column of ``predict`` over six whole spaces, with how many layouts are legal and in which order they
  come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import pytest

from autotuner.core.choices import (
    AttentionKernel,
    OptimizerKernel,
    P2PTransport,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.columns import LayoutColumns
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import OPTIONS
from autotuner.core.prediction import Memory, Prediction, StepTime
from autotuner.core.space import default_space
from autotuner.costmodel.predict import predict
from autotuner.costmodel.scenarios import predict_under
from autotuner.costmodel.shared.table import row
from autotuner.search.space.legal import legal_layouts
from tests.golden.golden import Golden
from tests.golden.jobs import JOBS, abbreviate, column_sums, few_digits, file_name, hash_of, job_of, layouts_of

_DIGITS = 10

_NUM_IN_PARTS = 30
"""Layouts of a job whose parts are recorded; of the others the step time, its error, the peak and the chance to fit."""

_BESIDE_PARTS = ("hfu / mfu", "fit_probability", "relative_error")

SPACES: Mapping[str, tuple[str, Mapping[str, tuple[int, ...] | None]]] = {
    "dense": ("dense", {"optimizer_kernel": tuple(OptimizerKernel), "precision": (Precision.BF16,)}),
    "experts": ("experts, latent attention", {}),
    "cores": (
        "cores",
        {
            "precision": (Precision.FP32, Precision.BF16),
            "attention_kernel": (AttentionKernel.MATH, AttentionKernel.FLASH),
            "pipeline_schedule": tuple(PipelineSchedule),
            "p2p_transport": tuple(P2PTransport),
            "fused_norm": (True, False),
            "loss_parallel": (True, False),
            "recompute_every": (1, 2),
            "gradient_bucket_bytes": (2**20, 25 * 2**20),
        },
    ),
    "lengths": ("nodes of cores, lengths", {}),
    "hashed routes": ("hashed routes", {"precision": (Precision.BF16,), "fp32_gradient_reduce": (True,)}),
    "slow links": (
        "slow links",
        {
            "precision": (Precision.BF16,),
            "shard_level": (ShardLevel.NONE, ShardLevel.OPTIMIZER),
            "recompute": (Recompute.NONE,),
            "micro_batch_size": (1,),
            "tensor_parallel_degree": (1, 2),
        },
    ),
}
"""A job of ``JOBS`` and what is searched beside its default space, for each space."""

_TRACE = "3;0_1;0.06\n5;2_3;100mbit\n9;0_1;0"
"""Faults that the layouts of the slow links run under."""

_ONE_IN = 8
"""Of so many layouts of a space one is hashed in words, which take longer than their predictions."""


@pytest.mark.parametrize("name", JOBS)
def test_predictions_are_those_that_were_recorded(golden: Golden, name: str) -> None:
    job, layouts = job_of(name), layouts_of(name)
    table = predict(LayoutColumns.from_layouts(layouts), job)
    predictions = [row(table, number) for number in range(len(layouts))]
    constants = {
        figure: [
            few_digits(end(getattr(one, figure) * one.step_time.total_s for one in predictions)) for end in (min, max)
        ]
        for figure in ("mfu", "tokens_per_s")
    }
    names = [*_names(StepTime), *_names(Memory), *_BESIDE_PARTS]
    rows = [_numbers(one) for one in predictions[:_NUM_IN_PARTS]]
    used = [place for place in range(len(names)) if any(row[place] for row in rows)]
    found = {
        "x step time": constants,
        "always 0": [name for place, name in enumerate(names) if place not in used],
        "columns": ["layout", *(names[place] for place in used)],
        "rows": [[str(layout), *(row[place] for place in used)] for layout, row in zip(layouts, rows, strict=False)],
        "totals": [
            [str(layout), *abbreviate(one)]
            for layout, one in zip(layouts[_NUM_IN_PARTS:], predictions[_NUM_IN_PARTS:], strict=True)
        ],
    }
    golden.check(f"predictions/{file_name(name)}", found)


def test_every_option_has_an_unusual_value_in_some_of_the_predictions() -> None:
    layouts = [layout for name in JOBS for layout in layouts_of(name)]
    usual = [name for name, one in OPTIONS.items() if all(getattr(layout, name) == one.default for layout in layouts)]
    assert not usual


@pytest.mark.parametrize("name", SPACES)
def test_every_column_over_a_whole_space_is_as_it_was_recorded(golden: Golden, name: str) -> None:
    job_name, axes = SPACES[name]
    job = job_of(job_name)
    layouts = legal_layouts(job, default_space(job).with_axes(**axes))
    trace = FaultTrace.parse(_TRACE) if name == "slow links" else None
    words = [str(layouts.row(row)) for row in range(0, len(layouts), _ONE_IN)]
    found = {
        "num_legal": len(layouts),
        "layouts": hash_of(words),
        "options": {name: places for name in OPTIONS if len(places := _places(layouts, name)) > 1},
        "columns": dict(column_sums(predict_under(layouts, job, trace))),
    }
    golden.check(f"predictions/spaces/{file_name(name)}", found)


def _places(layouts: LayoutColumns, option: str) -> Mapping[str, list[float]]:
    """Return how many layouts have each value of an option, and their mean place in the space."""
    values, which = np.unique(getattr(layouts, option), return_inverse=True)
    counts, sums = np.bincount(which), np.bincount(which, np.arange(len(layouts)))
    words = [str(OPTIONS[option].value_of(int(value))) for value in values]
    return {
        word: [int(count), few_digits(total / count)] for word, count, total in zip(words, counts, sums, strict=True)
    }


def _names(parts: type[StepTime | Memory]) -> list[str]:
    return [field.name for field in fields(parts)]


def _numbers(one: Prediction) -> list[float]:
    """Return the numbers of a row in the order of its columns."""
    parts = [getattr(whole, name) for whole in (one.step_time, one.memory) for name in _names(type(whole))]
    assert one.fit_probability is not None
    assert one.relative_error is not None
    beside = (one.hfu / one.mfu, one.fit_probability, one.relative_error)
    return [few_digits(float(number), _DIGITS) for number in (*parts, *beside)]
