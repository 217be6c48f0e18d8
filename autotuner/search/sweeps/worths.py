"""Worths: what a step of a sweep's layouts is worth, before and after a trial."""

from __future__ import annotations

from autotuner.costmodel.footprint import footprint_of
from autotuner.costmodel.under_faults import predicted_under
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.estimate import TrialEstimate
from autotuner.domain.runs.sweep import SweepRequest
from autotuner.domain.runs.trial import Measurement

__all__ = ["Worths"]


class Worths:
    """What a step is worth by the objective of a request: over a step time in seconds it is a layout's value."""

    def __init__(self, request: SweepRequest) -> None:
        self._objective = request.objective
        self._job = request.trial_job
        self._trace = request.fault_trace
        self._predicted: dict[Layout, float] = {}

    def reached(self, reached: Measurement | TrialEstimate) -> float:
        """Of a layout that was measured, by what it was found to take beside time."""
        return self._objective.worth_per_step(self._job, reached.footprint)

    def predicted(self, layout: Layout) -> float:
        """Of a layout that has not been, by what it is modelled to take."""
        if not self._objective.reads_footprint:
            return self._objective.worth_per_step(self._job)
        if layout not in self._predicted:
            prediction = predicted_under(layout, self._job, self._trace)
            footprint = footprint_of(layout, self._job, prediction)
            self._predicted[layout] = self._objective.worth_per_step(self._job, footprint)
        return self._predicted[layout]
