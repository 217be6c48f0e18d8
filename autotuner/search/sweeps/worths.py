"""Worths: what a step of a sweep's layouts is worth, before and after a trial."""

from __future__ import annotations

from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint, Measurement
from autotuner.core.objective import Metric, Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.costmodel.scenarios import predicted_under


class Worths:
    """What a step is worth by the objective of a request: over a step time in seconds it is a layout's value."""

    def __init__(self, request: SweepRequest) -> None:
        self._objective = request.objective
        self._job = request.trial_job
        self._trace = request.fault_trace
        self._modelled: dict[Layout, Footprint] = {}

    def reached(self, reached: Measurement | TrialEstimate) -> float:
        """Of a layout that was measured, by what it was found to take beside time."""
        return self._objective.worth_per_step(self._job, reached.footprint)

    def predicted(self, layout: Layout) -> float:
        """Of a layout that has not been, by what it is modelled to take."""
        return self._objective.worth_per_step(self._job, self.modelled(layout))

    def front(self, footprint: Footprint | None, step_time_s: float) -> tuple[float, ...]:
        """Values by each metric of the objective's front, of a layout whose step takes so long."""
        return tuple(self._value(metric, footprint, step_time_s) for metric in self._objective.front)

    def modelled(self, layout: Layout) -> Footprint | None:
        """What a layout is modelled to take beside time; None where nothing reads it."""
        if not self._objective.reads_footprint:
            return None
        if layout not in self._modelled:
            prediction = predicted_under(layout, self._job, self._trace)
            self._modelled[layout] = footprint_of(layout, self._job, prediction)
        return self._modelled[layout]

    def _value(self, metric: Metric, footprint: Footprint | None, step_time_s: float) -> float:
        if metric.is_rate:
            return Objective(metric=metric).worth_per_step(self._job, footprint) / step_time_s
        assert footprint is not None  # a request whose cluster cannot tell it is refused
        return metric.share(footprint)
