"""Convergence gates of a sweep: which one is due, which layouts a verdict covers, and how a gate decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from autotuner.core.choices import GradientClip, GradientSync
from autotuner.core.columns import Integers, LayoutColumns
from autotuner.core.convergence_gate import (
    ConvergenceGate,
    GateOutcome,
    GateResult,
    Training,
    function_key,
    is_hopeless,
    judge,
    trains_no_better,
)
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import EngineJob, Stopped, Trial, TrialFailure
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.launch.repeated import without_steps
from autotuner.runs.instructions import RunGate


def verdict_of(layout: Layout, trials: Iterable[Trial]) -> GateResult | None:
    """Return the convergence gate result of another trial that also holds for this layout; None without any.

    The result of a convergence gate holds for every layout that computes the same function. A failed result also holds
    for layouts that differ only in that their ranks exchange less: a loss that is already too high does not improve
    when ranks exchange less.
    """
    for trial in trials:
        found = trial.gate
        if found is None or found.shared_from is not None or not found.is_verdict:
            continue
        if found.outcome is GateOutcome.PASSED and function_key(layout) == function_key(trial.layout):
            return found.shared(trial.number, "has the same mathematics")
        if found.outcome is GateOutcome.FAILED and trains_no_better(layout, trial.layout):
            is_same = function_key(layout) == function_key(trial.layout)
            return found.shared(trial.number, "has the same mathematics" if is_same else "sends more")
    return None


def rejected_rows(layouts: LayoutColumns, trials: Iterable[Trial]) -> Integers:
    """Return the row numbers of the layouts that need not be tried, because a convergence gate has rejected them.

    The gate examined the same layout, or one to which ``verdict_of`` gives the same result.
    """
    failed = [
        trial.layout
        for trial in trials
        if trial.gate is not None and trial.gate.outcome is GateOutcome.FAILED and trial.gate.is_verdict
    ]
    is_rejected = np.zeros(len(layouts), dtype=bool)
    for layout in failed:
        is_rejected |= trains_no_better(cast("Layout", layouts), layout)
    return np.flatnonzero(is_rejected)


@dataclass(slots=True, kw_only=True)
class _RunningGate:
    """A convergence gate that runs, and the time for which it has had accelerators.

    On an engine, this is the running time of its jobs. Elsewhere, it is the time since it began, without waits for
    devices.
    """

    layout: Layout
    """Layout that the gate examines."""
    began_at: float
    """Time at which the gate began, in epoch seconds."""
    jobs: dict[str, EngineJob] = field(default_factory=dict)
    """Engine jobs of the gate, by name."""
    waits_since: float | None = None
    """Time at which the gate began to wait for devices; None while it has them."""
    waited_s: float = 0.0
    """Seconds that the gate waited before that."""

    def seconds(self, now: float) -> float:
        """Return the seconds for which the gate has had accelerators; jobs in a queue have none."""
        if self.jobs:
            return sum(job.running_s(now) for job in self.jobs.values())
        until = now if self.waits_since is None else self.waits_since
        return until - self.began_at - self.waited_s


class ConvergenceGates:
    """The convergence gates of one sweep: it says which trial needs a gate, and counts the time of running gates.

    A convergence gate trains a layout that is not numerically equivalent, and compares its loss with that of a
    reference. A running gate is identified by the number of the trial that it examines.
    """

    def __init__(self, request: SweepRequest) -> None:
        self._is_enabled = request.convergence_gate.enabled
        self._precisions = request.job.cluster.accelerator.precisions
        self._in_use = request.challenge.incumbent if request.challenge else None
        self._running: dict[int, _RunningGate] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def due(self, leaders: Iterable[Trial]) -> RunGate | None:
        """Return the next convergence gate to run: that of the first trial in ``leaders`` that needs one, or None.

        ``leaders`` are the best trials of the sweep. A trial needs a gate if its layout is not numerically equivalent
        and has no gate result yet. The layout in use needs no gate, because it is already known to train, unless the
        sweep may rank it only with a gate result. If a running gate examines a layout that computes the same function,
        the trial waits for the result of that gate.
        """
        looked_at = [function_key(gate.layout) for gate in self._running.values()]
        for trial in leaders:
            if self._is_open(trial) and function_key(trial.layout) not in looked_at:
                return RunGate(trial=trial, reference=self._reference(trial))
        return None

    def answered(self, trials: Iterable[Trial]) -> RunGate | None:
        """Return the gate of a trial to which an earlier trial's gate result applies; None if there is no such trial.

        The returned gate has this result in its field ``known``, so it need not run. ``verdict_of`` says when a result
        applies to another layout.
        """
        known = list(trials)
        for trial in known:
            if trial.ran_measurement and self._is_open(trial) and (verdict := verdict_of(trial.layout, known)):
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
        """Record that the convergence gate of a trial has started. Its accelerator time counts from ``now``."""
        self._running[trial.number] = _RunningGate(layout=trial.layout, began_at=now)

    def waits(self, trial: Trial, now: float, *, is_waiting: bool) -> None:
        """Record that a running gate waits for devices, or that its wait is over.

        Waiting time does not count as accelerator time.
        """
        gate = self._running[trial.number]
        gate.waited_s += 0.0 if gate.waits_since is None else now - gate.waits_since
        gate.waits_since = now if is_waiting else None

    def placed(self, trial: Trial, job: EngineJob) -> None:
        """Record the new state of an engine's job that runs a training of the gate, such as queued or running.

        The state decides how much accelerator time counts.
        """
        self._running[trial.number].jobs[job.name] = job

    def ended(self, trial: Trial) -> None:
        """Record that the gate of a trial has ended. Its accelerator time is then part of the stored gate result."""
        self._running.pop(trial.number)

    def jobs(self, trial: Trial) -> tuple[EngineJob, ...]:
        """Return the engine jobs (such as Slurm jobs) that the running convergence gate of a trial has started."""
        return tuple(self._running[trial.number].jobs.values())

    def hours(self, trial: Trial, now: float) -> float:
        """Return the accelerator-hours that the running convergence gate of a trial has used so far."""
        return self._running[trial.number].seconds(now) * trial.ran.world_size / 3600

    def all_hours(self, trials: Mapping[int, Trial], now: float) -> float:
        """Return the accelerator-hours that all running convergence gates of the sweep have used so far."""
        return sum(self.hours(trials[number], now) for number in self._running)


# ---------------------------------------------------------------- a gate that runs
_MOST_VALIDATION_BATCHES = 8
"""Maximum number of validation batches, each of which costs a step. With several languages, every rank reads the same
number of batches, spread evenly over the data."""


def gate_settings(settings: TrialSettings, gate: ConvergenceGate, candidate: Layout, vocab_size: int) -> TrialSettings:
    """Return the settings of the trainings of a convergence gate: only steps, without warm-up, repeats or profiles.

    If ranks exchange less than their whole gradients, or clip their own gradients, each rank trains on its own
    synthetic language. If all ranks trained on the same language, a rank that receives nothing from the others would
    learn as much as they do, and the gate would not notice the missing exchange.
    """
    num_languages = 1  # one per data-parallel rank or group of ranks that may learn different weights
    if candidate.gradient_sync != GradientSync.FULL:
        num_languages = candidate.data_parallel_replicate_degree
    elif candidate.gradient_clip != GradientClip.POST:
        num_languages = candidate.data_parallel_degree
    num_languages = min(num_languages, vocab_size)
    return replace(
        settings.just_steps(gate.steps_of(candidate)),
        num_languages=num_languages,
        num_validation_batches=min(num_languages, _MOST_VALIDATION_BATCHES) if num_languages > 1 else 0,
    )


def run_gate(
    launcher: Launcher, candidate: TrialSpec, reference: Layout, gate: ConvergenceGate, watcher: TrialWatcher
) -> GateResult | Stopped:
    """Train the candidate and the reference layout once per seed, the reference first, and compare their losses.

    If the first seeds already reject the candidate, the other seeds are not trained.

    Args:
        launcher: Runs the trainings, one after the other.
        candidate: Specification of the trial whose layout the gate examines, with the engine jobs of an earlier
            attempt.
        reference: The candidate's layout without the options that are not numerically equivalent.
        gate: The numbers of steps and seeds, and the allowed difference of the losses.
        watcher: Can stop the gate at any time. It gets a note for each seed and the states of jobs, but no steps.
    """
    quiet = without_steps(watcher)
    trainings: dict[Layout, list[Training]] = {reference: [], candidate.layout: []}
    for number in range(gate.num_seeds):
        watcher.on_note(
            f"convergence gate: training of the candidate and the reference {reference}, seed "
            f"{number + 1} of {gate.num_seeds}"
        )
        for layout, known in trainings.items():
            outcome = launcher.run(_spec(candidate, layout, gate, number), quiet)
            match outcome:
                case Stopped():
                    return outcome
                case TrialFailure():
                    return _died(outcome, layout, candidate.layout, reference, gate, trainings)
                case Measurement(losses=()):
                    return GateResult(
                        outcome=GateOutcome.NOT_GATED,
                        detail=f"the trainer reported no loss of {layout}, so there is nothing to compare",
                        reference=reference,
                        tolerance=gate.tolerance,
                    )
                case Measurement():
                    validation, step_s = outcome.validation_loss, outcome.step_time_s
                    known.append(Training(losses=outcome.losses, validation_loss=validation, step_time_s=step_s))
        if is_hopeless(gate, trainings[candidate.layout], trainings[reference]):
            break
    return judge(gate, reference, trainings[candidate.layout], trainings[reference])


def _spec(candidate: TrialSpec, layout: Layout, gate: ConvergenceGate, number: int) -> TrialSpec:
    role = "candidate" if layout == candidate.layout else "reference"
    return replace(
        candidate,
        trial_id=f"{candidate.trial_id}-gate-{number}-{role}",
        layout=layout,
        seed=candidate.seed + number,
        settings=gate_settings(candidate.settings, gate, candidate.layout, candidate.model.vocab_size),
    )


def _died(
    failure: TrialFailure,
    layout: Layout,
    candidate: Layout,
    reference: Layout,
    gate: ConvergenceGate,
    trainings: dict[Layout, list[Training]],
) -> GateResult:
    """Return the result of a gate in which a training failed.

    The gate fails if the candidate cannot be trained. If the reference cannot be trained, nothing can be compared.
    """
    is_candidate = layout == candidate
    return GateResult(
        outcome=GateOutcome.FAILED if is_candidate else GateOutcome.NOT_GATED,
        detail=f"training the {'candidate' if is_candidate else 'reference'} {layout} failed: {failure.message}",
        reference=reference,
        candidate_losses=tuple(training.losses for training in trainings[candidate]),
        reference_losses=tuple(training.losses for training in trainings[reference]),
        tolerance=gate.tolerance,
    )
