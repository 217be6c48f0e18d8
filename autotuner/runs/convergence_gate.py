"""Runs a convergence gate: trains candidate and reference from the same seeds, and has their losses judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotuner.core.choices import GradientClip, GradientSync
from autotuner.core.convergence_gate import GateOutcome, GateResult, LossGate, Training, is_hopeless, judge
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, Measurement
from autotuner.core.trial import EngineJob, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher

_MOST_VALIDATION_BATCHES = 8
"""Maximum number of validation batches, each of which costs a step; of more languages, every rank reads as many at
equal distances."""


def gate_settings(settings: TrialSettings, gate: LossGate, candidate: Layout, vocab_size: int) -> TrialSettings:
    """The sweep's settings with just the steps of the gate: nothing is warmed up, repeated or profiled for it.

    Where ranks exchange less than their gradients, or clip their own, each reads a language of its own: were all to
    read the same, one that hears nothing of the others would learn as much.
    """
    num_languages = 1  # as many as data-parallel ranks, or groups of them, that may learn something else
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
    launcher: Launcher, candidate: TrialSpec, reference: Layout, gate: LossGate, watcher: TrialWatcher
) -> GateResult | Stopped:
    """Train both layouts once per seed, the reference first, and compare their losses.

    A candidate that the first seeds reject is trained from no others.

    Args:
        launcher: Runs them, one after the other.
        candidate: The trial whose layout is gated, with the jobs that engines were given for its gate before.
        reference: Its layout with nothing that changes the mathematics.
        gate: How many steps and seeds, and how far losses may lie apart.
        watcher: Asked for a stop all the while; hears a note per seed, of jobs, and no steps.
    """
    quiet = _NoSteps(watcher)
    trainings: dict[Layout, list[Training]] = {reference: [], candidate.layout: []}
    for number in range(gate.num_seeds):
        watcher.on_note(f"convergence gate: training beside {reference}, seed {number + 1} of {gate.num_seeds}")
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
                        detail=f"the trainer reports no loss of {layout}, so that there is nothing to compare",
                        reference=reference,
                        tolerance=gate.tolerance,
                    )
                case Measurement():
                    validation, step_s = outcome.validation_loss, outcome.step_time_s
                    known.append(Training(losses=outcome.losses, validation_loss=validation, step_time_s=step_s))
        if is_hopeless(gate, trainings[candidate.layout], trainings[reference]):
            break
    return judge(gate, reference, trainings[candidate.layout], trainings[reference])


def _spec(candidate: TrialSpec, layout: Layout, gate: LossGate, number: int) -> TrialSpec:
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
    gate: LossGate,
    trainings: dict[Layout, list[Training]],
) -> GateResult:
    """A candidate that cannot be trained has failed; without a reference there is nothing to compare with."""
    is_candidate = layout == candidate
    return GateResult(
        outcome=GateOutcome.FAILED if is_candidate else GateOutcome.NOT_GATED,
        detail=f"training the {'candidate' if is_candidate else 'reference'} {layout} failed: {failure.message}",
        reference=reference,
        candidate_losses=tuple(training.losses for training in trainings[candidate]),
        reference_losses=tuple(training.losses for training in trainings[reference]),
        tolerance=gate.tolerance,
    )


class _NoSteps:
    """A watcher that hears no steps: those of a gate are none of its trial."""

    def __init__(self, watcher: TrialWatcher) -> None:
        self.on_note: Callable[[str], None] = watcher.on_note
        self.on_wait: Callable[[str | None], None] = watcher.on_wait
        self.on_run: Callable[[FinishedRun], None] = watcher.on_run
        self.on_job: Callable[[EngineJob], None] = watcher.on_job
        self.stop_requested = watcher.stop_requested

    def on_step(self, step: object) -> None:
        pass

    def on_link_event(self, event: object) -> None:
        pass
