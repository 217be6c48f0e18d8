"""The sweep as a durable run: decides which layout to try next, however many of its trials run at once.

``SweepStudy`` holds the results of its trials. It is rebuilt whenever a worker takes the sweep. The worker asks for the
next trial on one thread while trials report on others, so a lock protects each call.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import optuna
import structlog

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.layout import Layout
from autotuner.core.measurement import StepReport
from autotuner.core.prediction import TrialEstimate
from autotuner.core.run import Finish, Run, RunState, Stop, StopReason
from autotuner.core.sweep import Demand, ExpectedImprovement, RunTrial, SweepRequest, SweepResult
from autotuner.core.trial import EngineJob, FailureKind, PastTrial, Stopped, Trial, TrialState
from autotuner.core.units import format_bytes
from autotuner.costmodel.scenarios import predicted_under
from autotuner.report.sweep_trials import long_shot_in_words, memory_in_words
from autotuner.report.verdicts import findings_in_words
from autotuner.report.words import gain_in_words
from autotuner.runs import instructions
from autotuner.runs.challenge import Phases, findings, is_rerun, next_rerun
from autotuner.runs.convergence_gate import ConvergenceGates
from autotuner.runs.instructions import Instruction, Repeat, RunGate, Spending, no_improvement, nothing_runs, spent
from autotuner.runs.kind import Do, Step, Wait
from autotuner.runs.sweep_study import Candidates, SweepStudy
from autotuner.search.sampler.pareto import on_front
from autotuner.search.sampler.propose import Proposal

P = ParamSpec("P")
T = TypeVar("T")

_log = structlog.get_logger(__name__)


def locked(method: Callable[Concatenate[SweepMachine, P], T]) -> Callable[Concatenate[SweepMachine, P], T]:
    """Decorate a method of ``SweepMachine`` so that it holds the machine's lock while it runs."""

    @wraps(method)
    def whole(machine: SweepMachine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with machine.lock:
            return method(machine, *args, **kwargs)

    return whole


class SweepMachine:
    """The logic of one sweep: it decides which trial to run next, and learns from the outcomes of trials.

    Args:
        request: The request of the sweep.
        trials: All trials that are stored so far.
        started_at: Epoch seconds of the sweep's first start, plus the seconds during which the sweep was idle since
            then.
        past: Trials of earlier sweeps from which the search learns. They must not change during the sweep.
        demand: The present budget and the trials that people asked to run again; None: the budget of the request, and
            no trial.

    Attributes:
        lock: The lock that each method holds. Hold it yourself to make several calls without a call of another thread
            between them.
    """

    def __init__(
        self,
        request: SweepRequest,
        trials: Sequence[Trial],
        *,
        started_at: float,
        past: Sequence[PastTrial] = (),
        demand: Demand | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self._stop: Stop | None = None
        self._num_changes = -1
        self._request = request
        self._started_at = started_at
        self._trials = {trial.number: trial for trial in trials}
        self._job = request.trial_job
        self._candidates = Candidates.of(request)
        self._gates = ConvergenceGates(request)
        self._study = SweepStudy(request, self._candidates, self._trials, past)
        self._phases = None if request.challenge is None else Phases(request, request.challenge)
        self.demand = demand or Demand(budget=request.budget)

    # ------------------------------------------------------------------ questions of the worker
    @locked
    def next(self, now: float) -> Step:
        """Return the trial or convergence gate to start now, or how the sweep ends. Other trials may still run."""
        if self._stop is not None:
            left = self._left_behind(now)
            return Wait() if left is None else Do(action=left, ends_jobs=True)
        match step := self.decide(now):
            case instructions.Wait():
                return Wait()
            case instructions.Finish():
                _log.info("sweep.finished", reason=step.reason.value, detail=step.detail)
                result = SweepResult(reason=step.reason, expected_improvement=self.expected_improvement)
                return Finish(state=step.state, detail=step.detail, result=result)
            case RunGate():
                self.gate_started(step.trial, now)
        return Do(action=step)

    def tell(self, outcome: None) -> None:
        """Do nothing: outcomes of trials come through ``finished``, which the thread of each trial calls itself.

        The outcome of one trial changes the estimates of other trials. If two trials end at the same time, separate
        calls do not mix up their estimates.
        """

    @locked
    def hear(self, run: Run) -> None:
        """Read from the stored run whether people asked to stop or pause the sweep, or changed its budget or reruns.

        ``next`` then acts on these requests.
        """
        self._stop = run.wanted
        if run.num_changes > self._num_changes:
            self._num_changes = run.num_changes
            self.change(run.demand)

    def _left_behind(self, now: float) -> RunTrial | None:
        """Return an interrupted trial whose engine job still runs, so that a cancel or a pause can end the job."""
        left = (t for t in self._trials.values() if not t.state.finished and t.number not in self._study.running)
        if not any(not job.phase.is_over for trial in left for job in trial.jobs):
            return None
        step = self.decide(now)
        return step if isinstance(step, RunTrial) else None

    # ------------------------------------------------------------------ the next trial
    @locked
    def decide(self, now: float) -> Instruction:
        """Return the trial or convergence gate to start now, or how the sweep ends. Other trials may still run.

        Unlike ``next``, it does not consider requests to cancel or pause the sweep.
        """
        if answered := self._gates.answered(self._trials.values()):
            return answered
        if self._spent(now) is None and (gate := self._gates.due(self._leaders())):
            return gate
        if self._study.has_interrupted:
            return self._order(*self._study.again())
        match wanted := self._wanted(now):
            case None:
                return self._searched()
            case _ if self._study.running or self._gates:
                return instructions.Wait()
            case instructions.Finish():
                return wanted
            case Repeat(layout=layout, repeats=repeats):
                return replace(self._order(*self._study.ask(layout)), repeats=repeats)

    def _searched(self) -> RunTrial:
        """Return the trial to run next, with a note if its layout will hardly fit in memory."""
        improvement = self.expected_improvement  # that of the proposal for which the search goes on
        step = self._step_from_incumbent()
        proposal = step or self._study.propose()
        shot = None if proposal is None else proposal.long_shot
        return replace(
            self._order(*self._study.ask(None if step is None else self._study.proposed(step))),
            expected_improvement=improvement,
            note="" if shot is None else long_shot_in_words(shot, self._raised),
        )

    @property
    def _raised(self) -> str:
        """Return the name of the value that an improvement raises."""
        objective = self._request.objective
        return "hypervolume of the front" if objective.front else f"best {objective.noun}"

    @property
    @locked
    def expected_improvement(self) -> ExpectedImprovement:
        """Return how much another trial is expected to improve the best result, and how many layouts can be tried.

        The sampler caches the expectation until another trial ends.
        """
        proposal = self._study.propose()
        gain = 0.0 if proposal is None else proposal.expected_gain
        return ExpectedImprovement(
            num_candidates=len(self._candidates),
            num_fitting=self._candidates.num_fitting,
            expected_gain=gain if math.isfinite(gain) else None,
        )

    def _wanted(self, now: float) -> Repeat | instructions.Finish | None:
        """Return the next step of a sweep that nobody interrupted; None means that a new layout is to be tried."""
        if self._phases is None:
            return self._rerun(now) or self._earlier_end() or self._reason_to_stop(now)
        trials, spending = [trial for _, trial in sorted(self._trials.items())], self._spending(now)
        if over := spent(self._request.budget, spending):
            return instructions.finish(*over, trials)
        if first := self._phases.before_search(trials, spending):
            return first
        end = self._phases.end_of_search(trials, spending) or self._reason_to_stop(now)
        return end and (self._phases.after_search(trials) or self._compared(trials, end))

    def _compared(self, trials: Sequence[Trial], end: instructions.Finish) -> instructions.Finish:
        """Return the end of a challenge: the comparison, or the reason why the search ended if nothing was compared."""
        found = findings(self._request, trials)
        if found.against_baseline is not None or found.gain is not None:
            said = findings_in_words(found, is_simulated=self._request.runs_on.source == "simulated")
            return instructions.finish(StopReason.COMPARED, "; ".join(said), trials)
        return replace(end, detail=f"{end.detail}; the incumbent: {found.death}") if found.death else end

    def _rerun(self, now: float) -> Repeat | None:
        """Return a trial that a user wants to run again, if there is time for it."""
        if self._spent(now) is not None:
            return None
        return next_rerun(self.demand.reruns, self._trials)

    def _earlier_end(self) -> instructions.Finish | None:
        """Return how the search ended before, for a sweep that was reopened only to run trials again; else None."""
        ended, is_measured = self.demand.ended, any(trial.ran_measurement for trial in self._trials.values())
        if ended is None or ended.state is not RunState.FAILED or not is_measured:
            if ended is None:
                return None
            return instructions.Finish(state=ended.state, reason=ended.reason, detail=ended.detail)
        detail = f"{ended.detail}; after that, a repeated trial was measured"
        return instructions.Finish(state=RunState.COMPLETE, reason=ended.reason, detail=detail)

    def _step_from_incumbent(self) -> Proposal | None:
        """Return the next neighbour of the incumbent to try, or None.

        Every other trial is such a neighbour while neighbours promise enough. The trials between are chosen by the
        sampler, since the best predicted layouts may differ a lot from the incumbent.
        """
        num_searched = sum(trial.repeats is None for trial in self._trials.values())
        return self._study.beside_incumbent() if num_searched % 2 else None

    def _order(self, number: int, layout: Layout) -> RunTrial:
        stored, small = self._trials.get(number), self._candidates.small
        prediction = stored.prediction if stored else predicted_under(layout, self._job, self._request.fault_trace)
        proxy = small.proxy_of(layout) if small else None
        repeats = stored.repeats if stored else None
        return RunTrial(
            number=number, layout=layout, prediction=prediction, stored=stored, proxy=proxy, repeats=repeats
        )

    def _leaders(self) -> Sequence[Trial]:
        """Return the trials that must pass a convergence gate before they may lead or replace the incumbent."""
        objective = self._request.objective
        leading = objective.leading(self._trials.values())
        first = on_front(objective, leading) if objective.front else leading[:1]
        return first if self._phases is None else [*first, *self._phases.leaders(list(self._trials.values()))]

    @property
    @locked
    def reference_flop_per_s(self) -> float | None:
        """Return the peak FLOP/s of one rank to which every MFU of the sweep refers; None before it is known.

        No data sheet gives this peak for CPU cores. If the description of the cluster has no measured peak, the first
        trial measures it.
        """
        accelerator = self._request.job.cluster.accelerator
        if accelerator.peak_is_measured or accelerator.kind != "cpu":
            return accelerator.reference_flop_per_s
        ended = ((t.ran_measurement, t.ran) for _, t in sorted(self._trials.items()) if t.ran_measurement)
        return next((measured.peak_flop_per_s / ran.world_size for measured, ran in ended), None)

    @locked
    def tells_noise(self, number: int) -> bool:
        """Return True if this trial, the first of the sweep, should run twice to measure the noise of equal runs.

        In a sweep that compares layouts, no trial runs twice for this purpose, because the sweep repeats its trials
        anyway.
        """
        if self._phases is not None:
            return False
        return number == min(self._study.running, default=None) and not any(
            t.ran_measurement for t in self._trials.values()
        )

    # ------------------------------------------------------------------ reports of trials and requests of users
    @locked
    def change(self, demand: Demand) -> None:
        """Take over the new budget of the sweep and the trials that people asked to run again.

        With another budget, the search is built again, because the budget decides when trials end early.
        """
        if demand == self.demand:
            return
        self.demand = demand
        if demand.budget != self._request.budget:
            self._request = replace(self._request, budget=demand.budget)
            self._study.change_budget(demand.budget, self._trials)

    @locked
    def placed(self, trial: Trial) -> None:
        """Record the new state of a trial: it runs, it waits, it continues, or its engine job has a new state.

        The state decides how much accelerator time the trial uses.
        """
        self._trials[trial.number] = trial

    @locked
    def reported(self, number: int, step: StepReport) -> Stopped | None:
        """Return why the running trial should end early after this step, or None if it may go on.

        A trial should end early if other trials are much better.
        """
        layout = self._study.layout(number)
        if not step.is_measured or layout.is_emulated or self._is_compared(number):
            return None
        if not self._study.loses(number, step):
            return None
        return Stopped(reason="pruned", detail=self._losing(layout, step))

    def _is_compared(self, number: int) -> bool:
        """Return True if the trial runs for a comparison, so that it is not ended early for being slow."""
        trial, challenge = self._trials.get(number), self._request.challenge
        is_repeat = trial is not None and trial.repeats is not None
        if is_repeat or is_rerun(number, self._study.layout(number), self.demand.reruns, self._trials):
            return True
        return challenge is not None and self._study.layout(number) == challenge.incumbent

    @locked
    def overspent(self, now: float) -> Stopped | None:
        """Return why a running trial must end because the sweep's budget is used up; None while some budget is left.

        The budget limits the time and the accelerator-hours.
        """
        over = self._spent(now)
        return None if over is None else Stopped(reason="budget", detail=over[1])

    @locked
    def finished(self, trial: Trial) -> None:
        """Record the outcome of a trial that ``decide`` ordered, so that the search learns from it."""
        self._trials[trial.number] = trial
        self._study.tell(trial)

    @locked
    def learnt_of_memory(self, trial: Trial) -> str:
        """Describe what the search now expects about memory use, after a trial ran out of memory.

        The text is empty if the trial did not run out of memory.
        """
        if trial.failure is None or trial.failure.kind is not FailureKind.OOM:
            return ""
        return memory_in_words(self._study.memory())

    @locked
    def estimates(self, *ended: Trial) -> Mapping[str, TrialEstimate]:
        """Return the results that the measured proxy trials let expect at full size, by trial id.

        A proxy trial runs a layout on fewer ranks, or with a smaller model, than the job has. The result is empty if
        all trials run at full size. ``ended`` are trials that have just ended and that the machine does not know yet as
        ended.
        """
        trials = {**self._trials, **{trial.number: trial for trial in ended}}
        if self._candidates.small is None or not any(trial.ran_measurement for trial in trials.values()):
            return {}
        self._trials = trials  # the first measured trial may set the peak that MFU refers to
        reference = self.reference_flop_per_s
        assert reference is not None, "a measured trial tells it, if nothing else does"
        return self._candidates.small.estimates(trials.values(), reference)

    @locked
    def estimated(self, trials: Sequence[Trial]) -> None:
        """Record the trials whose full-size estimates are now stored, so that the search learns from them.

        A proxy trial runs on fewer ranks than its job has. Its estimate is its result scaled to the size of the job.
        """
        had_none = [trial.number for trial in trials if self._trials[trial.number].estimate is None]
        self._trials.update({trial.number: trial for trial in trials})
        if not set(had_none) <= set(self._study.running):
            self._study.rebuild(self._trials)

    @property
    @locked
    def lacks_estimates(self) -> bool:
        """Return True if a proxy trial was measured, but its result at full size is not yet estimated and stored.

        A proxy trial runs on fewer ranks than its job has.
        """
        return any(trial.ran_measurement and trial.reached is None for trial in self._trials.values())

    @locked
    def given_back(self, trial: Trial) -> None:
        """Record that an interrupted trial is queued again. The machine will order it as if it had not begun."""
        self._trials[trial.number] = trial
        self._study.drop(trial.number)
        self._study.rebuild(self._trials)

    @locked
    def gate_started(self, trial: Trial, now: float) -> None:
        """Record that the convergence gate of a trial has started. Its accelerator time counts from ``now``."""
        self._gates.started(trial, now)

    @locked
    def gate_waits(self, trial: Trial, now: float, *, is_waiting: bool) -> None:
        """Record that a running convergence gate waits for devices, or that its wait is over.

        Waiting time does not count as accelerator time.
        """
        self._gates.waits(trial, now, is_waiting=is_waiting)

    @locked
    def gate_placed(self, trial: Trial, job: EngineJob) -> None:
        """Record the new state of an engine job of a running convergence gate.

        The state decides how much accelerator time counts.
        """
        self._gates.placed(trial, job)

    @locked
    def gate_jobs(self, trial: Trial) -> tuple[EngineJob, ...]:
        """Return the engine jobs of the trial's running convergence gate."""
        return self._gates.jobs(trial)

    @locked
    def gate_hours(self, trial: Trial, now: float) -> float:
        """Return the accelerator-hours that the trial's running convergence gate has used."""
        return self._gates.hours(trial, now)

    @locked
    def gate_ended(self, trial: Trial) -> None:
        """Record the trial with the result of its convergence gate, which has ended.

        If the gate was stopped, the trial has no gate result.
        """
        self._gates.ended(trial)
        self._trials[trial.number] = trial
        if trial.gate is not None and (trial.gate.outcome is GateOutcome.FAILED or trial.layout.needs_passed_gate):
            self._study.rebuild(self._trials)  # its value starts or stops to count only now

    @property
    def study(self) -> optuna.Study:
        """Return the Optuna study of the sweep, for plots and tests. Its trials are copies of the sweep's trials."""
        return self._study.study

    # ------------------------------------------------------------------ reasons to stop
    def _reason_to_stop(self, now: float) -> instructions.Finish | None:
        ended = [trial for _, trial in sorted(self._trials.items()) if _was_tried(trial)]
        reason = (
            nothing_runs(ended)
            or self._trials_ran(len(ended))
            or self._spent(now)
            or no_improvement(self._request, ended)
            or self._nothing_to_gain(len(ended))
        )
        return None if reason is None else instructions.finish(*reason, list(self._trials.values()))

    def _trials_ran(self, num_ended: int) -> tuple[StopReason, str] | None:
        num_trials = self._request.budget.num_trials
        if num_ended + len(self._study.running) < num_trials:
            return None
        return StopReason.TRIAL_BUDGET, f"{num_ended} of {num_trials} trials ran"

    def _nothing_to_gain(self, num_ended: int) -> tuple[StopReason, str] | None:
        """Return the reason to stop the search if no further trial promises enough; else None."""
        small, min_gain = self._candidates.small, self._request.budget.min_gain
        left_out = small.left_out if small else ""
        tried = f"{num_ended} of {len(self._candidates)} legal layouts were tried{left_out}"
        rest = "" if num_ended >= len(self._candidates) else f"; {self._does_not_fit(num_ended)}"
        proposal = self._study.propose()
        if proposal is None:
            return StopReason.SPACE_EXHAUSTED, f"{tried}{rest}"
        if proposal.expected_gain >= min_gain:
            return None
        gain = gain_in_words(proposal.expected_gain, f"the {self._raised}")
        return StopReason.NOTHING_TO_GAIN, f"{tried}; {gain}; the least that was asked for is {100 * min_gain:.2g} %"

    def _does_not_fit(self, num_ended: int) -> str:
        """Say that no other layout fits in memory, with the missing memory if no trial ran at all."""
        missing_bytes = self._candidates.least_bytes - self._job.cluster.accelerator.memory_bytes
        if num_ended or missing_bytes <= 0:
            return "no other layout is likely to fit in memory"
        return f"none is likely to fit in memory, and the closest one needs {format_bytes(missing_bytes)} more"

    def _spent(self, now: float) -> tuple[StopReason, str] | None:
        return spent(self._request.budget, self._spending(now))

    def _spending(self, now: float) -> Spending:
        hours = sum(trial.accelerator_hours(now) for trial in self._trials.values())
        hours += self._gates.all_hours(self._trials, now)
        return Spending(elapsed_s=now - self._started_at, accelerator_hours=hours)

    def _losing(self, layout: Layout, step: StepReport) -> str:
        at_full_size = " at full size by prediction" if self._candidates.small else ""
        if self._request.objective.front:
            return self._falling_behind(self._study.values_of(layout, step), at_full_size)
        objective = replace(self._request.objective, under_faults=False)  # the trial lost by its steps without faults
        fraction = self._request.budget.prune_below
        best = max(filter(None, map(self._study.healthy_value, self._trials.values())))
        below = f"below {100 * fraction:g} % of the best so far, {objective.in_words(best)}"
        return f"{objective.in_words(self._study.value_of(layout, step))}{at_full_size}, {below}"

    def _falling_behind(self, values: Sequence[float], at_full_size: str) -> str:
        metrics = self._request.objective.front
        reached = ", ".join(metric.in_words(value) for metric, value in zip(metrics, values, strict=True))
        faster = 1 / self._request.budget.prune_below
        return (
            f"{reached}{at_full_size}; even at {faster:.3g} times this speed, another trial would be "
            "better in every metric"
        )


def _was_tried(trial: Trial) -> bool:
    """Return True if the trial counts as a tried layout: it ended by itself, and repeats no other trial."""
    return trial.state.finished and trial.state is not TrialState.CANCELLED and trial.repeats is None
