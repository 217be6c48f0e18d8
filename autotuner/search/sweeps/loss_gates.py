"""LossGates: which trial of a sweep a loss gate should look at next, and what the running ones cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autotuner.core.convergence_gate import function_key
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import EngineJob, Trial
from autotuner.search.sweeps.instructions import RunGate
from autotuner.search.sweeps.loss_gate_cost import GateCost
from autotuner.search.sweeps.verdicts import verdict_of


class LossGates:
    """The loss gates of one sweep, of which those that run are known by their trial's number."""

    def __init__(self, request: SweepRequest) -> None:
        self._is_enabled = request.loss_gate.enabled
        self._precisions = request.job.cluster.accelerator.precisions
        self._in_use = request.challenge.incumbent if request.challenge else None
        self._running: dict[int, GateCost] = {}
        self._looked_at: dict[int, Layout] = {}  # by those that run

    def __bool__(self) -> bool:
        return bool(self._running)

    def due(self, leaders: Iterable[Trial]) -> RunGate | None:
        """The gate that one of the leaders needs: it changes the mathematics, and nobody looked yet.

        The layout in use is not gated where it may be ranked without: it trains already. A leader whose mathematics a
        running gate looks at waits for that one's verdict.
        """
        looked_at = [function_key(layout) for layout in self._looked_at.values()]
        for trial in leaders:
            if self._is_open(trial) and function_key(trial.layout) not in looked_at:
                return RunGate(trial=trial, reference=self._reference(trial))
        return None

    def answered(self, trials: Iterable[Trial]) -> RunGate | None:
        """The gate of a trial that needs one and whose answer another trial's gate has given, however fast it is."""
        known = list(trials)
        for trial in known:
            if trial.measurement and self._is_open(trial) and (verdict := verdict_of(trial.layout, known)):
                return RunGate(trial=trial, reference=self._reference(trial), known=verdict)
        return None

    def _is_open(self, trial: Trial) -> bool:
        layout = trial.layout
        trains_already = layout == self._in_use and not layout.needs_passed_gate
        asks = self._is_enabled and not layout.is_equivalent and not trains_already
        is_first = trial.gate is None and trial.repeats is None
        return asks and is_first and trial.number not in self._running

    def _reference(self, trial: Trial) -> Layout:
        return trial.ran.equivalent_reference(self._precisions)

    def started(self, trial: Trial, now: float) -> None:
        """The gate runs; from now on it costs."""
        self._running[trial.number] = GateCost(began_at=now)
        self._looked_at[trial.number] = trial.layout

    def waits(self, trial: Trial, now: float, *, is_waiting: bool) -> None:
        """A running gate waits for devices, or goes on."""
        self._running[trial.number] = self._running[trial.number].waits(now, is_waiting=is_waiting)

    def placed(self, trial: Trial, job: EngineJob) -> None:
        """A job of a running gate stands elsewhere now, which says what it costs."""
        self._running[trial.number] = self._running[trial.number].placed(job)

    def ended(self, trial: Trial) -> None:
        """The gate runs no longer; what it cost stands in its result."""
        self._running.pop(trial.number)
        self._looked_at.pop(trial.number)

    def jobs(self, trial: Trial) -> tuple[EngineJob, ...]:
        """What engines were given for the trial's running gate."""
        return tuple(self._running[trial.number].jobs.values())

    def hours(self, trial: Trial, now: float) -> float:
        """Accelerator-hours of the trial's running gate."""
        return self._running[trial.number].seconds(now) * trial.ran.world_size / 3600

    def all_hours(self, trials: Mapping[int, Trial], now: float) -> float:
        """Accelerator-hours of all that run."""
        return sum(self.hours(trials[number], now) for number in self._running)
