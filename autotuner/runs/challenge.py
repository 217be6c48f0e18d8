"""ChallengeRuns: sorts the trials of a challenged sweep by what they are compared for, and decides which runs again.

The incumbent runs first, until its result against the baseline is known. Then the sweep searches other layouts. At the
end, the best of these and the incumbent run alternately. The best layout begins, so that its first repeat marks the
start of this phase. Everything is computed from the trials, so a worker that takes the sweep over continues where the
last one stopped.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotuner.core.comparison import Challenge, ChallengeFindings, Comparison, Decision, RunGroup, SequentialTest
from autotuner.core.convergence_gate import GateOutcome, function_key
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.measuring import FOREIGN_CPU_SHARE
from autotuner.core.rules.legality import reasons
from autotuner.core.rules.rule import Reason
from autotuner.core.run import StopReason
from autotuner.core.sweep import Rerun, SweepRequest
from autotuner.core.trial import FailureKind, Trial, TrialState
from autotuner.runs.instructions import Finish, Repeat, Spending, finish, spent
from autotuner.search.sequential_test import compare, next_baseline_runs, next_runs
from autotuner.search.space.trainers import trial_rules

_MAX_DEATHS = 2
"""Number of failures in a row after which a layout is no longer repeated for the comparison. One failure is enough if
it was out of memory and the layout never ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeRuns:
    """The ended trials of a sweep that compares layouts (a challenge), grouped by their role in the comparison.

    The incumbent is the layout in use. The challenger is the layout that may replace it. After the search, both run
    again by turns; such a run is called a turn. Each group is ordered by trial number.
    """

    challenge: Challenge
    """Challenge for which the runs are compared."""
    incumbent: tuple[Trial, ...]
    """Runs of the incumbent before it alternates with the challenger."""
    leader: Trial | None
    """The best other layout, if its first run beat the incumbent's runs. It may have to pass a convergence gate before
    it becomes the challenger."""
    challenger: Trial | None
    """The first run of the layout that is compared with the incumbent, or with the baseline if no incumbent runs."""
    turns: tuple[Trial, ...]
    """Runs of the challenger after its first."""
    incumbent_turns: tuple[Trial, ...]
    """Runs of the incumbent that alternate with those of the challenger."""

    @classmethod
    def of(cls, request: SweepRequest, challenge: Challenge, trials: Iterable[Trial]) -> ChallengeRuns:
        """Group the trials of a sweep by their role in its comparison of layouts.

        Trials that wait, still run or were cancelled are left out.
        """
        ended = [t for t in sorted(trials, key=lambda t: t.number) if t.state.finished]
        ended = [trial for trial in ended if trial.state is not TrialState.CANCELLED]
        own = [trial for trial in ended if trial.layout == challenge.incumbent]
        turns = [t for t in ended if t.repeats is not None and t.layout != challenge.incumbent]
        begun_at = turns[0].number if turns else math.inf
        before = [trial for trial in own if trial.number < begun_at]
        better = _better(request, challenge, ended, before)
        eligible = [trial for trial in better if _may_take_over(request, challenge, trial)]
        first = {trial.number: trial for trial in ended}
        return cls(
            challenge=challenge,
            incumbent=tuple(before),
            leader=next(iter(better), None),
            challenger=first[turns[0].repeats or 0] if turns else next(iter(eligible), None),
            turns=tuple(turns),
            incumbent_turns=tuple(trial for trial in own if trial.number > begun_at),
        )

    @property
    def incumbent_runs(self) -> RunGroup | None:
        """Return the combined results of the incumbent's runs before the search; None if no such run was measured.

        The incumbent is the layout in use.
        """
        return run_group(self.incumbent)

    def wants_incumbent(self) -> bool:
        """Return True if the layout in use (the incumbent) should run again before the search begins.

        It runs until its results can be compared. Call this only if the incumbent can run as a trial.
        """
        if self.turns or _gave_up(self.incumbent):
            return False
        return _wants_more(self.incumbent_runs, self.challenge.baseline, self.challenge.test)

    def wanted_turn(self) -> Trial | None:
        """Return the trial whose layout should run again now, or None if the comparison is decided or cannot go on.

        The layout in use and the layout that may replace it run by turns, in pairs. The layout that ran first in one
        pair runs second in the next, so that a machine that slows down or warms up favours neither layout.
        """
        if self.challenger is None or _gave_up(self.turns) or _gave_up(self.incumbent_turns):
            return None
        if self.incumbent_runs is None:  # the challenger is compared with the baseline only if no incumbent was named
            baseline = self.challenge.baseline if self.challenge.incumbent is None else ()
            return self.challenger if _wants_more(run_group(self.turns), baseline, self.challenge.test) else None
        mine, theirs = _num_measured(self.turns), _num_measured(self.incumbent_turns)
        if mine == theirs and not self._wants_more_turns():
            return None
        challenger_begins = min(mine, theirs) % 2 == 0
        is_challengers = mine < theirs or (mine == theirs and challenger_begins)
        return self.challenger if is_challengers else first_measured(self.incumbent)

    def _wants_more_turns(self) -> bool:
        mine, theirs = run_group(self.turns), run_group(self.incumbent_turns)
        return mine is None or theirs is None or next_runs([mine], [theirs], self.challenge.test, same_session=True) > 0


def _wants_more(runs: RunGroup | None, baseline: Sequence[RunGroup], test: SequentialTest) -> bool:
    """Return True if a layout should run again, to be compared with its baseline or to form one."""
    if runs is None or not baseline:
        return next_baseline_runs(runs, test) > 0
    return next_runs(baseline, [runs], test) > 0


def incumbent_problems(request: SweepRequest) -> tuple[Reason, ...]:
    """Return the rules that the layout in use (``challenge.incumbent``) breaks; if it breaks one, no trial can run it.

    The result is empty if the sweep does not compare layouts (it has no challenge), or names no layout in use.
    """
    if request.challenge is None or request.challenge.incumbent is None:
        return ()
    return reasons(request.challenge.incumbent, request.trial_job, trial_rules(request.trainer))


def run_group(trials: Sequence[Trial]) -> RunGroup | None:
    """Return the combined results of several runs of one layout: their throughputs, mean MFU, time and environment.

    It is None if none of the runs was measured.
    """
    measured = [(trial, trial.measurement) for trial in trials if trial.measurement is not None]
    if not measured:
        return None
    first, _ = measured[0]
    return RunGroup(
        rates=tuple(measurement.tokens_per_s for _, measurement in measured),
        mfu=statistics.fmean(measurement.mfu for _, measurement in measured),
        at=first.finished_at or 0.0,
        environment=_environment([measurement for _, measurement in measured]),
    )


def _environment(measured: Sequence[Measurement]) -> dict[str, str]:
    """Return the environment of the first run, with the mean CPU share of other processes over all runs."""
    facts = measured[0].environment
    share = statistics.fmean(measurement.foreign_cpu_share for measurement in measured)
    return {**facts, FOREIGN_CPU_SHARE: f"{share:.2f}"} if FOREIGN_CPU_SHARE in facts else facts


def first_measured(trials: Sequence[Trial]) -> Trial | None:
    """Return the first measured trial that is not a repeat of another trial; None if there is none.

    All trials have the same layout. Later runs of this layout are repeats of the returned trial.
    """
    return next((trial for trial in trials if trial.measurement and trial.repeats is None), None)


def _better(request: SweepRequest, challenge: Challenge, ended: Sequence[Trial], own: Sequence[Trial]) -> list[Trial]:
    """Return the first runs of other layouts that beat the incumbent's mean, the best first."""
    runs = run_group(own)
    to_beat = statistics.fmean(runs.rates) if runs else 0.0
    leading = request.objective.leading(ended) if request.convergence_gate.enabled else request.objective.ranked(ended)
    others = [trial for trial in leading if trial.layout != challenge.incumbent]
    return [trial for trial in others if trial.measurement and trial.measurement.tokens_per_s > to_beat]


def _may_take_over(request: SweepRequest, challenge: Challenge, trial: Trial) -> bool:
    """Return True if a layout may replace the incumbent without a further convergence gate.

    This holds if it is numerically equivalent, if it computes the same function as the incumbent, if it passed a gate,
    or if gates are off.
    """
    passed = trial.gate is not None and trial.gate.outcome is GateOutcome.PASSED
    if trial.layout.needs_passed_gate:
        return passed
    is_same = challenge.incumbent is not None and function_key(trial.layout) == function_key(challenge.incumbent)
    return passed or is_same or trial.layout.is_equivalent or not request.convergence_gate.enabled


def _num_measured(trials: Sequence[Trial]) -> int:
    return sum(trial.measurement is not None for trial in trials)


def _gave_up(trials: Sequence[Trial]) -> bool:
    """Return True if the last runs failed too often, or so clearly, that another run is not worth its time."""
    deaths: list[Trial] = []
    for trial in trials:
        deaths = [*deaths, trial] if trial.measurement is None else []
    lacks_memory = bool(deaths) and deaths[-1].failure is not None and deaths[-1].failure.kind is FailureKind.OOM
    return len(deaths) >= _MAX_DEATHS or (lacks_memory and len(deaths) == len(trials))


def findings(request: SweepRequest, trials: Iterable[Trial]) -> ChallengeFindings:
    """Return the findings of a sweep's trials about its challenge, which compares a new layout with the one in use.

    The findings say how the incumbent, the baseline and the best layout compare. If the sweep still runs, they are the
    findings so far. If the sweep has no challenge, the findings are empty.
    """
    challenge = request.challenge
    if challenge is None:
        return ChallengeFindings()
    runs = ChallengeRuns.of(request, challenge, trials)
    if challenge.incumbent is None:
        return _of_the_best(challenge, runs)
    found = ChallengeFindings(measured=challenge.incumbent, death=_death(request, runs))
    own = runs.incumbent_runs
    if own is not None:
        found = replace(found, runs=own, against_baseline=_beside_baseline(challenge, own))
    return _with_challenger(found, challenge, runs)


def _of_the_best(challenge: Challenge, runs: ChallengeRuns) -> ChallengeFindings:
    """Return the findings without an incumbent: the best layout, compared with the baseline by its later runs.

    Its first run is left out, because it was chosen for that run's result.
    """
    if runs.challenger is None:
        return ChallengeFindings()
    later = run_group(runs.turns)
    beside = _beside_baseline(challenge, later) if later else None
    return ChallengeFindings(measured=runs.challenger.layout, runs=later, against_baseline=beside)


def _with_challenger(found: ChallengeFindings, challenge: Challenge, runs: ChallengeRuns) -> ChallengeFindings:
    if runs.challenger is None:
        return found
    theirs, own = run_group(runs.turns), run_group(runs.incumbent_turns)
    found = replace(found, challenger=runs.challenger.layout, challenger_runs=theirs)
    if theirs is None or own is None:
        return found
    gain = compare([own], [theirs], challenge.test, same_session=True)
    lost = compare([theirs], [own], challenge.test, same_session=True)
    return replace(found, gain=gain, is_better=lost.decision is Decision.SLOWER)


def _beside_baseline(challenge: Challenge, runs: RunGroup) -> Comparison | None:
    return compare(challenge.baseline, [runs], challenge.test) if challenge.baseline else None


def _death(request: SweepRequest, runs: ChallengeRuns) -> str:
    """Return why the incumbent never ran; empty if it ran or was not tried yet."""
    if broken := incumbent_problems(request):
        return f"the layout cannot run here: {broken[0].message}"
    if runs.incumbent_runs is not None or not runs.incumbent:
        return ""
    last = runs.incumbent[-1]
    if last.failure is None:
        return "the trial ended without a measurement"
    return f"the trial failed ({last.failure.kind.value}): {last.failure.message}"


_SHARE_OF_INCUMBENT = 0.5
"""Share of the time and of the accelerator-hours after which the incumbent is not repeated any more before the
search."""


class Phases:
    """The phases of a challenge, which compares the layout in use (the incumbent) with the best that a search finds.

    In the first phase, the incumbent runs until it can be compared. In the second phase, the search tries layouts. In
    the last phase, the best layout and the incumbent run by turns. A run that counts for the comparison never runs at
    the same time as another trial, even if the sweep may run several trials at once.
    """

    def __init__(self, request: SweepRequest, challenge: Challenge) -> None:
        self._request = request
        self._challenge = challenge
        self._can_run_incumbent = challenge.incumbent is not None and not incumbent_problems(request)

    def leaders(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Return the trial whose layout may replace the layout in use, if it passes its convergence gate.

        The result has at most one trial. It is empty if no layout is faster than the layout in use.
        """
        leader = self._runs(trials).leader
        return [] if leader is None else [leader]

    def before_search(self, trials: Sequence[Trial], spending: Spending) -> Repeat | None:
        """Return the next run of the layout in use (the incumbent), or None once it has run often enough.

        The incumbent has run often enough if it can be compared with its baseline, or if its share of the budget is
        used up.
        """
        runs, incumbent = self._runs(trials), self._challenge.incumbent
        if incumbent is None or not self._can_run_incumbent or not runs.wants_incumbent():
            return None
        if self._challenge.searches and spent(self._request.budget, spending, share=_SHARE_OF_INCUMBENT):
            return None
        return _repeat(incumbent, runs.incumbent)

    def end_of_search(self, trials: Sequence[Trial], spending: Spending) -> Finish | None:
        """Return why the search for a better layout ends so that the comparison can begin; None if it goes on.

        Other methods check the reasons that apply to every sweep. A search that has ended does not begin again, even if
        a later run shows that another trial would be worth its cost.
        """
        runs = self._runs(trials)
        if not self._challenge.searches or runs.turns:
            return finish(StopReason.COMPARED, "all runs to be compared have ended", trials)
        if runs.leader is None or not (over := spent(self._request.budget, spending.and_then(self._turns(trials)))):
            return None
        return finish(over[0], "the rest of the budget is kept for the comparison of the best layout", trials)

    def after_search(self, trials: Sequence[Trial]) -> Repeat | None:
        """Return the next run of the best layout or of the layout in use, or None once the comparison is decided.

        The two layouts run by turns.
        """
        turn = self._runs(trials).wanted_turn() if self._challenge.searches else None
        return None if turn is None else Repeat(layout=turn.layout, repeats=turn.number)

    def _runs(self, trials: Sequence[Trial]) -> ChallengeRuns:
        return ChallengeRuns.of(self._request, self._challenge, trials)

    def _turns(self, trials: Sequence[Trial]) -> Spending:
        """Return what the fewest runs of the final comparison will take, estimated from the trials so far."""
        measured = [trial for trial in trials if trial.measurement is not None]
        seconds = statistics.fmean((t.finished_at or 0.0) - (t.started_at or 0.0) for t in measured)
        hours = statistics.fmean(trial.accelerator_hours(0.0) for trial in measured)
        num_runs = self._challenge.test.min_runs * (2 if self._can_run_incumbent else 1)
        return Spending(elapsed_s=num_runs * seconds, accelerator_hours=num_runs * hours)


def next_rerun(reruns: Sequence[Rerun], trials: Mapping[int, Trial]) -> Repeat | None:
    """Return the next trial that a user asked to run again, or None if every such trial has run again.

    The new run repeats the first measured trial of its layout.
    """
    for wanted in reruns:
        layout = trials[wanted.number].layout
        runs = [trial for _, trial in sorted(trials.items()) if trial.layout == layout]
        if sum(trial.state.finished for trial in runs) < wanted.num_runs:
            return _repeat(layout, runs)
    return None


def _repeat(layout: Layout, runs: Sequence[Trial]) -> Repeat:
    first = first_measured(runs)
    return Repeat(layout=layout, repeats=None if first is None else first.number)


def is_rerun(number: int, layout: Layout, reruns: Sequence[Rerun], trials: Mapping[int, Trial]) -> bool:
    """Return True if the trial runs only because a user asked to run its layout again.

    Such a trial is not ended early.
    """
    return any(number > wanted.number and trials[wanted.number].layout == layout for wanted in reruns)
