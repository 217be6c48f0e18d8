"""Repeats a trial as its settings ask: several runs, undisturbed runs, and runs at the two proxy depths."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.trial import EngineJob, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.launch.proxy import extrapolated, proxies

# One measurement from several runs of the same trial (A/A).


def pooled(runs: Sequence[Measurement]) -> Measurement:
    """Return one measurement for several runs of a trial. Its step time is the median of the runs' step times.

    The noise floor is the relative difference between the slowest and the fastest run. Figures that depend on the step
    time are scaled to the median. Memory is the largest value of any run. All other figures come from the run with the
    median step time; if there are two such runs, from the faster one. A trial may also replay a trace of link faults.
    The first run alone replays it, so the steps under faults come from this run. A single run is returned unchanged.
    """
    if len(runs) == 1:
        return runs[0]
    times_s = [run.step_time_s for run in runs]
    step_time_s = statistics.median(times_s)
    middle = runs[times_s.index(statistics.median_low(times_s))]
    faster = middle.step_time_s / step_time_s
    return replace(
        middle,
        step_time_s=step_time_s,
        step_time_spread_s=max(run.step_time_spread_s for run in runs),
        step_time_interval_s=_interval_s(runs),
        num_steps=sum(run.num_steps for run in runs),
        tokens_per_s=middle.tokens_per_s * faster,
        model_flop_per_s=middle.model_flop_per_s * faster,
        mfu=middle.mfu * faster,
        hfu=middle.hfu * faster,
        peak_bytes=_most(run.peak_bytes for run in runs),
        reserved_bytes=_most(run.reserved_bytes for run in runs),
        foreign_cpu_share=max(run.foreign_cpu_share for run in runs),
        noise_floor=(max(times_s) - min(times_s)) / step_time_s,
        num_disturbed=sum(run.num_disturbed for run in runs),
        robust=runs[0].robust,
    )


def _most(runs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the most memory that each rank held in any run; runs without these figures are left out."""
    known = [run for run in runs if run]
    return tuple(map(max, zip(*known, strict=False)))


def _interval_s(runs: Sequence[Measurement]) -> float | None:
    """Return half the width of the interval of the pooled median step time; None if no run has an interval.

    It is at least half the spread of the runs, which the interval of a single run does not contain.
    """
    within_s = [run.step_time_interval_s for run in runs if run.step_time_interval_s is not None]
    if not within_s:
        return None
    times_s = [run.step_time_s for run in runs]
    return max(math.hypot(*within_s) / len(within_s), (max(times_s) - min(times_s)) / 2)


_LEAST_S = 0.001
"""Smallest time limit in seconds, because a limit must be above 0."""


def run_repeated(launcher: Launcher, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
    """Run a trial as often as its settings ask for. Return one measurement for all runs, or why there is none.

    A trial runs again if other processes disturbed it, and to measure its noise floor. A proxy trial runs with two
    numbers of layers, and the results are extrapolated. All runs share the trial's time limit. An optional run that
    would exceed the limit is left out.

    The watcher can stop each run, and it gets each finished run. It gets only the steps of the first run of the whole
    model. The pruner, which ends slow trials early, compares the steps of trials and expects one series of steps from
    each trial.
    """
    runs = _Runs(launcher, deadline=time.monotonic() + spec.settings.timeout_s)
    depths = proxies(spec)
    if depths is None:
        return runs.repeated(spec, watcher)
    measured: list[Measurement] = []
    for proxy in depths:
        watcher.on_note(
            f"runs {proxy.model.num_layers} of {spec.model.num_layers} layers, to extrapolate to all layers"
        )
        outcome = runs.repeated(proxy, without_steps(watcher))
        if not isinstance(outcome, Measurement):
            return _at_depth(outcome, proxy, spec)
        measured.append(outcome)
    shallow, deep = measured
    return extrapolated(spec, shallow, deep)


class _Runs:
    """The runs of one trial, numbered in order; all end by one deadline of the monotonic clock."""

    def __init__(self, launcher: Launcher, *, deadline: float) -> None:
        self._launcher = launcher
        self._deadline = deadline
        self._longest_s = 0.0
        self._num_runs = 0

    def repeated(self, spec: TrialSpec, watcher: TrialWatcher) -> Outcome:
        """Run the trial ``num_runs`` times, each time on fresh ranks, and pool the results.

        Only a failure of the first run fails the trial.
        """
        first = self._undisturbed(spec, watcher)
        if not isinstance(first, Measurement):
            return first
        runs = [first]
        while len(runs) < spec.settings.num_runs and self._has_time():
            watcher.on_note(
                f"run {len(runs) + 1} of {spec.settings.num_runs}, to measure how much repeated runs differ"
            )
            outcome = self._undisturbed(replace(spec, fault_trace=None), without_steps(watcher))
            if isinstance(outcome, Stopped):
                return outcome
            if isinstance(outcome, TrialFailure):
                break
            runs.append(outcome)
        return pooled(runs)

    def _undisturbed(self, spec: TrialSpec, watcher: TrialWatcher) -> Outcome:
        """Run the trial once; repeat it while other processes disturb it, and return the least disturbed run."""
        best = self._once(spec, watcher)
        for num_disturbed in range(1, spec.settings.max_repeats + 1):
            if not isinstance(best, Measurement) or not _is_disturbed(best, spec) or not self._has_time():
                break
            watcher.on_note(_why_again(best, num_disturbed, spec.settings.max_repeats))
            outcome = self._once(spec, without_steps(watcher))
            if isinstance(outcome, Stopped):
                return outcome
            if isinstance(outcome, Measurement):
                best = replace(min(best, outcome, key=_foreign_share), num_disturbed=num_disturbed)
        return best

    def _once(self, spec: TrialSpec, watcher: TrialWatcher) -> Outcome:
        started_at = time.monotonic()
        kept = next((run for run in spec.runs if run.number == self._num_runs), None)
        spec = replace(spec, run=self._num_runs, runs=())
        self._num_runs += 1
        if kept is not None:
            watcher.on_note(
                f"run {kept.number + 1} was measured before the trial was interrupted, so its result is kept"
            )
            self._deadline -= kept.seconds
            self._longest_s = max(self._longest_s, kept.seconds)
            return kept.measurement
        if self._longest_s:
            left_s = max(_LEAST_S, self._deadline - started_at)
            spec = replace(spec, settings=replace(spec.settings, timeout_s=left_s))
        queue = _Queue(watcher)
        outcome = self._launcher.run(spec, queue)
        self._deadline += queue.waited_s
        took_s = time.monotonic() - started_at - queue.waited_s
        self._longest_s = max(self._longest_s, took_s)
        if isinstance(outcome, Measurement):
            watcher.on_run(FinishedRun(number=spec.run, seconds=took_s, measurement=outcome))
        return outcome

    def _has_time(self) -> bool:
        """Return True if there is time for another run as long as the longest so far."""
        return time.monotonic() + self._longest_s < self._deadline


class _Queue:
    """A watcher that also adds up how long a run waited for devices, since time limits do not count this wait."""

    def __init__(self, watcher: TrialWatcher) -> None:
        self._job: EngineJob | None = None
        self._waits_since: float | None = None
        self._waited_s = 0.0
        self.on_step = watcher.on_step
        self.on_link_event = watcher.on_link_event
        self.on_note = watcher.on_note
        self.stop_requested = watcher.stop_requested
        self.on_run = watcher.on_run
        self._tell = watcher.on_job
        self._tell_wait = watcher.on_wait

    @property
    def waited_s(self) -> float:
        """Return the seconds that the run waited for devices, for the engine's answer, or in its queue."""
        return self._waited_s + (self._job.queued_s(time.time()) if self._job else 0.0)

    def on_wait(self, reason: str | None) -> None:
        now = time.monotonic()
        if self._waits_since is not None and self._job is None:
            self._waited_s += now - self._waits_since
        self._waits_since = None if reason is None else now
        self._tell_wait(reason)

    def on_job(self, job: EngineJob) -> None:
        self._job = job
        self._tell(job)


class _StopsOnly:
    def __init__(self, watcher: TrialWatcher) -> None:
        self.on_note = watcher.on_note
        self.on_wait = watcher.on_wait
        self.on_run = watcher.on_run
        self.on_job = watcher.on_job
        self.stop_requested = watcher.stop_requested

    def on_step(self, step: StepReport) -> None:
        pass

    def on_link_event(self, event: LinkEvent) -> None:
        pass


def without_steps(watcher: TrialWatcher) -> TrialWatcher:
    """Return a watcher that passes on everything except steps and link events."""
    return watcher if isinstance(watcher, _StopsOnly) else _StopsOnly(watcher)


def _is_disturbed(measurement: Measurement, spec: TrialSpec) -> bool:
    """Return True if other processes used more of the cores than the settings allow.

    It is always False for a trial on GPUs, which does not compute on the cores.
    """
    return spec.device == "cpu" and measurement.foreign_cpu_share > spec.settings.max_foreign_share


def _why_again(least_disturbed: Measurement, number: int, most: int) -> str:
    share_percent = 100.0 * least_disturbed.foreign_cpu_share
    quietest = "in the quietest run so far " if number > 1 else ""
    others = f"{quietest}other programs used {share_percent:.0f} % of the CPU time"
    return f"is measured again, because {others} (repeat {number} of at most {most})"


def _foreign_share(measurement: Measurement) -> float:
    return measurement.foreign_cpu_share


def _at_depth(outcome: TrialFailure | Stopped, proxy: TrialSpec, whole: TrialSpec) -> TrialFailure | Stopped:
    """Return the outcome of a proxy trial for the whole trial; a failure's message names the proxy's layers."""
    if isinstance(outcome, Stopped):
        return outcome
    depth = f"with {proxy.model.num_layers} of {whole.model.num_layers} layers"
    return replace(outcome, message=f"{depth}: {outcome.message}")
