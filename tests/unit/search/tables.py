"""A small table of layouts with predictions that a test may bend."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from autotuner.core.choices import Precision, Recompute
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.space import SearchSpace
from autotuner.costmodel.predict import PredictionColumns, predict
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.space.legal import legal_layouts
from tests.builders import big_job, tiny_job, tiny_space

JOB = tiny_job(4)
LAYOUTS = legal_layouts(JOB, tiny_space(), (*RULES, *TRIAL_RULES))

BIG_JOB = big_job(1)
BIG_LAYOUTS = legal_layouts(
    BIG_JOB, SearchSpace(recompute=(Recompute.NONE, Recompute.FULL), precision=(Precision.BF16, Precision.FP8))
)


def predictions(*, step_time_s: Floats | None = None, peak_bytes: Floats | None = None) -> PredictionColumns:
    """What the cost model says of ``LAYOUTS``, its parts scaled to these step times and peaks."""
    columns = predict(LAYOUTS, JOB)
    seconds, sizes = columns.step_time, columns.memory
    time_scale = 1.0 if step_time_s is None else step_time_s / seconds.total_s
    size_scale = 1.0 if peak_bytes is None else peak_bytes / sizes.total_bytes
    parts = {f.name: getattr(sizes, f.name) * size_scale for f in fields(sizes) if f.name.endswith("_bytes")}
    return replace(
        columns,
        step_time=replace(seconds, **{f.name: getattr(seconds, f.name) * time_scale for f in fields(seconds)}),
        memory=replace(sizes, **parts),
        mfu=columns.mfu / time_scale,
    )


def sampler(
    *,
    step_time_s: Floats | None = None,
    peak_bytes: Floats | None = None,
    layouts: LayoutColumns = LAYOUTS,
    limit_bytes: float = 2e9,
    seed: int = 0,
    min_gain: float = 0.0,
) -> LayoutSampler:
    """One that believes in these step times (from 1 s to 2 s by row) and in peaks that fit without doubt."""
    seconds = np.linspace(1.0, 2.0, len(LAYOUTS)) if step_time_s is None else step_time_s
    peaks = np.full(len(LAYOUTS), 1e8) if peak_bytes is None else peak_bytes
    predicted = predictions(step_time_s=seconds, peak_bytes=peaks)
    return LayoutSampler(layouts, predicted, job=JOB, limit_bytes=limit_bytes, seed=seed, min_gain=min_gain)
