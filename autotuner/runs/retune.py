"""The run of a retune as a durable run: it awaits the sweep that measures, then says what that means."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from autotuner.core.run import Finish
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.upkeep import RetuneOutcome, RetuneRequest, Verdict
from autotuner.ports import Store
from autotuner.runs.hold import Hold
from autotuner.runs.kind import Kind, Work
from autotuner.search.sweeps.findings import findings
from autotuner.search.sweeps.history import all_trials
from autotuner.search.upkeep.retunes.outcome import end_of, outcome_of

_NOTHING_LEFT = "no sweep was started, as its maker's quota had nothing left"

_log = structlog.get_logger(__name__)


class RetuneMachine:
    """Ends a run by what its sweep measured. It performs nothing: no worker takes a run before its sweep has ended.

    Args:
        request: Of the retune.
        sweep: The sweep that measured for the run; None: none was started.
        trials: Of the sweep.
    """

    def __init__(self, request: RetuneRequest, sweep: Sweep | None, trials: Sequence[Trial]) -> None:
        self._request = request
        self._sweep = sweep
        self._trials = trials

    def next(self, now: float) -> Finish:  # noqa: ARG002
        """Return how the run ends."""
        outcome = self._outcome()
        _log.info("retune.concluded", retune=self._request.name, verdict=outcome.verdict.value)
        return end_of(outcome)

    def _outcome(self) -> RetuneOutcome:
        if self._sweep is None:
            return RetuneOutcome(verdict=Verdict.COULD_NOT_RUN, detail=_NOTHING_LEFT)
        found = findings(self._sweep.request, self._trials)
        return outcome_of(self._request, self._sweep, found, self._trials)

    def tell(self, outcome: object) -> None:
        """Learn nothing: the machine begins no action."""


def retune_kind(store: Store) -> Kind:
    """Return the kind that compares the layout in use with what it reached, and with others.

    Args:
        store: Of retunes, and of the sweeps that measure for their runs.
    """

    def begin(hold: Hold) -> Work:
        run = store.retunes.get_run(hold.run.id)
        request = store.retunes.get(run.retune).request
        sweep = None if run.sweep_id is None else store.get_sweep(run.sweep_id)
        trials = [] if sweep is None else list(all_trials(store, sweep.id))
        return Work(machine=RetuneMachine(request, sweep, trials), perform=lambda _: None)

    return Kind(name="retune", begin=begin, span="retune.conclude")
