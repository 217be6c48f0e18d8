"""Candidates: every layout that a sweep may try, with its prediction and what runs in its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Integers, LayoutColumns, concatenate
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import PastTrial
from autotuner.costmodel.predict import PredictionColumns
from autotuner.costmodel.scenarios import predict_under
from autotuner.search.sampler.layout_sampler import LayoutSampler
from autotuner.search.space.legal import legal_layouts
from autotuner.search.space.moves import neighbours
from autotuner.search.space.trainers import trial_rules
from autotuner.search.sweeps.challenge_runs import incumbent_problems
from autotuner.search.sweeps.small_scale import SmallScale


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """What a sweep may try.

    Attributes:
        layouts: The legal ones of its space, and its incumbent where that is none of them.
        predictions: Of these.
        small: What runs in their place, where trials have fewer ranks than the job.
    """

    layouts: LayoutColumns
    predictions: PredictionColumns
    small: SmallScale | None

    @classmethod
    def of(cls, request: SweepRequest) -> Candidates:
        """Those of a request."""
        layouts = _layouts(request)
        small = SmallScale(request, request.small_cluster, layouts) if request.small_cluster else None
        layouts = small.trials.layouts if small else layouts
        predictions = predict_under(layouts, request.trial_job, request.fault_trace)
        return cls(layouts=layouts, predictions=predictions, small=small)

    def __len__(self) -> int:
        return len(self.layouts)

    @property
    def num_fitting(self) -> int:
        """How many are predicted to fit in memory."""
        return int(np.count_nonzero(self.predictions.fits))

    @property
    def least_bytes(self) -> float:
        """The smallest predicted peak; infinite where there is no candidate."""
        return float(self.predictions.memory.total_bytes.min(initial=math.inf))

    def sampler(self, request: SweepRequest, past: Sequence[PastTrial] = ()) -> LayoutSampler:
        """Proposes one after the other, knowing these trials of earlier sweeps."""
        return LayoutSampler(
            self.layouts,
            self.predictions,
            job=request.trial_job,
            objective=request.objective,
            seed=request.seed,
            scale_down=self.small.stand_in if self.small else None,
            same_trial=self.small.trials.which if self.small else None,
            past=past,
        )


def rows_beside_incumbent(request: SweepRequest, layouts: LayoutColumns) -> Integers:
    """Rows of the layouts one step away from the incumbent of a challenge; none without one."""
    if request.challenge is None or request.challenge.incumbent is None:
        return np.empty(0, dtype=np.int64)
    steps = neighbours(request.challenge.incumbent, request.trial_job)
    return np.concatenate([np.empty(0, dtype=np.int64), *(_rows(layouts, step) for step in steps)])


def _layouts(request: SweepRequest) -> LayoutColumns:
    challenge = request.challenge
    if challenge is None or challenge.incumbent is None:
        return legal_layouts(request.legal_job, request.space, trial_rules(request.trainer))
    own = LayoutColumns.from_layouts([] if incumbent_problems(request) else [challenge.incumbent])
    if not challenge.searches:
        return own
    searched = legal_layouts(request.legal_job, request.space, trial_rules(request.trainer))
    return searched if _rows(searched, challenge.incumbent).size else concatenate((searched, own))


def _rows(layouts: LayoutColumns, layout: Layout) -> Integers:
    """Every row that is the layout."""
    rows = np.arange(len(layouts))
    for name in OPTIONS:
        rows = rows[getattr(layouts, name)[rows] == int(getattr(layout, name))]
    return rows
