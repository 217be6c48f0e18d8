"""Trials of a sweep for tests of what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotuner.core.layout import Layout
from autotuner.core.trial import FailureKind, Trial, TrialState
from tests import builders
from tests.builders import failure, measurement, prediction

BASE = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=2, data_parallel_replicate_degree=8)
"""A layout of 64 ranks; the other layouts differ from it in what a test is about."""


def trial(number: int, layout: Layout, state: TrialState, **changes: Any) -> Trial:
    return builders.trial(layout, number, **{"state": state, "prediction": prediction(relative_error=0.1), **changes})


def ran(number: int, layout: Layout, step_time_s: float, *, measured: Any = None, **changes: Any) -> Trial:
    """A trial that was measured, undivided: 0.4 MFU at one second a step, known within 0.2 %."""
    found = measurement(
        step_time_s=step_time_s,
        step_time_interval_s=0.002 * step_time_s,
        mfu=0.4 / step_time_s,
        tokens_per_s=1000.0 / step_time_s,
        phases=None,
    )
    return trial(number, layout, TrialState.COMPLETE, measurement=replace(found, **(measured or {})), **changes)


def died(number: int, layout: Layout, kind: FailureKind = FailureKind.OOM, **changes: Any) -> Trial:
    return trial(number, layout, TrialState.FAILED, failure=failure(kind, **changes))
