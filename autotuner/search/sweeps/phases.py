"""Phases: what a challenged sweep does before its search and after it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from autotuner.core.cluster import SIMULATED
from autotuner.core.comparison import Challenge
from autotuner.core.run import StopReason
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.sweeps.challenge_runs import ChallengeRuns, first_measured, incumbent_problems
from autotuner.search.sweeps.findings import findings
from autotuner.search.sweeps.instructions import Repeat
from autotuner.search.sweeps.stopping import Finish, Spending, finish, spent
from autotuner.search.text.comparisons import findings_in_words

_SHARE_OF_INCUMBENT = 0.5
"""Share of the time and of the accelerator-hours after which the incumbent does not run again before the search."""


class Phases:
    """A challenge: the incumbent runs until it is compared, layouts are searched, the best runs by turns with it.

    Runs that are compared run by themselves, however many trials may run at once.
    """

    def __init__(self, request: SweepRequest, challenge: Challenge) -> None:
        self._request = request
        self._challenge = challenge
        self._can_run_incumbent = challenge.incumbent is not None and not incumbent_problems(request)

    def leaders(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """The trial that would challenge the incumbent, if a loss gate lets it."""
        leader = self._runs(trials).leader
        return [] if leader is None else [leader]

    def before_search(self, trials: Sequence[Trial], spending: Spending) -> Repeat | None:
        """The incumbent, as long as it is not known how it does beside its baseline."""
        runs, incumbent = self._runs(trials), self._challenge.incumbent
        if incumbent is None or not self._can_run_incumbent or not runs.wants_incumbent():
            return None
        if self._challenge.searches and spent(self._request.budget, spending, share=_SHARE_OF_INCUMBENT):
            return None
        first = first_measured(runs.incumbent)
        return Repeat(layout=incumbent, repeats=None if first is None else first.number)

    def end_of_search(self, trials: Sequence[Trial], spending: Spending) -> Finish | None:
        """Why nothing more is searched, beside the reasons of every sweep.

        A search that ended does not begin again, though what the turns tell could make another trial worth its while.
        """
        runs = self._runs(trials)
        if not self._challenge.searches or runs.turns:
            return finish(StopReason.COMPARED, "the runs to be compared have ended", trials)
        if runs.leader is None or not (over := spent(self._request.budget, spending.and_then(self._turns(trials)))):
            return None
        return finish(over[0], "the rest of the budget is kept for comparing the best", trials)

    def after_search(self, trials: Sequence[Trial]) -> Repeat | None:
        """The next turn of the best or of the incumbent, until they can be told apart."""
        turn = self._runs(trials).wanted_turn() if self._challenge.searches else None
        return None if turn is None else Repeat(layout=turn.layout, repeats=turn.number)

    def finished(self, trials: Sequence[Trial], end: Finish) -> Finish:
        """The end of the sweep: what was compared, or where nothing was, why the search ended."""
        found = findings(self._request, trials)
        if found.against_baseline is not None or found.gain is not None:
            said = findings_in_words(found, is_simulated=self._request.runs_on.engine == SIMULATED)
            return finish(StopReason.COMPARED, "; ".join(said), trials)
        return replace(end, detail=f"{end.detail}; the incumbent: {found.death}") if found.death else end

    def _runs(self, trials: Sequence[Trial]) -> ChallengeRuns:
        return ChallengeRuns.of(self._request, self._challenge, trials)

    def _turns(self, trials: Sequence[Trial]) -> Spending:
        """What the fewest turns will take, after what trials took until now."""
        measured = [trial for trial in trials if trial.measurement is not None]
        seconds = statistics.fmean((t.finished_at or 0.0) - (t.started_at or 0.0) for t in measured)
        hours = statistics.fmean(trial.accelerator_hours(0.0) for trial in measured)
        num_runs = self._challenge.test.min_runs * (2 if self._can_run_incumbent else 1)
        return Spending(elapsed_s=num_runs * seconds, accelerator_hours=num_runs * hours)
