"""Verdicts: what the loss gates of a sweep say of layouts that were not gated themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np

from autotuner.core.columns import Integers, LayoutColumns
from autotuner.core.convergence_gate import GateOutcome, GateResult, function_key, trains_no_better
from autotuner.core.layout import Layout
from autotuner.core.trial import Trial


def verdict_of(layout: Layout, trials: Iterable[Trial]) -> GateResult | None:
    """What a gated trial says of another layout; None where none does.

    A verdict holds for every layout with the same mathematics. One that failed holds for those too that send less of
    what they learn, all else being the same: what was lost already is not found by sending less.
    """
    for trial in trials:
        found = trial.gate
        if found is None or found.shared_from is not None or not found.is_verdict:
            continue
        if found.outcome is GateOutcome.PASSED and function_key(layout) == function_key(trial.layout):
            return found.shared(trial.number, "has the same mathematics")
        if found.outcome is GateOutcome.FAILED and trains_no_better(layout, trial.layout):
            is_same = function_key(layout) == function_key(trial.layout)
            return found.shared(trial.number, "has the same mathematics" if is_same else "sends more")
    return None


def rejected_rows(layouts: LayoutColumns, trials: Iterable[Trial]) -> Integers:
    """Rows that a failed gate says need not be tried."""
    failed = [
        trial.layout
        for trial in trials
        if trial.gate is not None and trial.gate.outcome is GateOutcome.FAILED and trial.gate.is_verdict
    ]
    is_rejected = np.zeros(len(layouts), dtype=bool)
    for layout in failed:
        is_rejected |= trains_no_better(cast("Layout", layouts), layout)
    return np.flatnonzero(is_rejected)
