"""A run of a scheduled retuning as a durable run: it waits for the sweep that measures, then decides what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from autotuner.core.upkeep import RetuneOutcome, Verdict
from autotuner.report.verdicts import explanation, retune_verdict
from autotuner.runs.challenge import findings
from autotuner.runs.kind import Kind, Work, already_ended
from autotuner.runs.lease import Hold
from autotuner.search.upkeep.retune import end_of, outcome_of

if TYPE_CHECKING:
    from autotuner.store.sql import Store

_NOTHING_LEFT = "no sweep was started, because the quota of the retune's creator has nothing left"

_log = structlog.get_logger(__name__)


def retune_kind(store: Store) -> Kind:
    """Return the kind of run with which a worker concludes one run of a retune, after the run's sweep has ended.

    A retune is a sweep that starts again on a schedule. The conclusion compares the measured layout in use with its
    baseline and with other layouts.
    """

    def begin(hold: Hold) -> Work:
        run = hold.run
        request = store.retunes.get(run.subject).request
        end = end_of(RetuneOutcome(verdict=Verdict.COULD_NOT_RUN), _NOTHING_LEFT)
        if run.child_id is not None:
            sweep, trials = store.get_sweep(run.child_id), list(store.all_trials(run.child_id))
            outcome = outcome_of(sweep, findings(sweep.request, trials), trials)
            verdict = retune_verdict(request, sweep, outcome)
            end = end_of(outcome, verdict, tuple(explanation(outcome, request.time_zone)))
        _log.info("retune.concluded", retune=request.name, verdict=end.result.verdict.value)
        return already_ended(end)

    return Kind(name="retune", begin=begin, span="retune.conclude")
