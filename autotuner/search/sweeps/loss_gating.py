"""Runs a loss gate: trains candidate and reference from the same seeds, and has their losses judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.engine_job import EngineJob
from autotuner.domain.runs.loss_gate import GateOutcome, GateResult, LossGate, judge
from autotuner.domain.runs.trial import Measurement, Stopped, TrialFailure, TrialSettings, TrialSpec
from autotuner.ports import Launcher, TrialWatcher

__all__ = ["gate_settings", "run_gate"]


def gate_settings(settings: TrialSettings, gate: LossGate) -> TrialSettings:
    """The sweep's settings with just the steps of the gate: nothing is warmed up, repeated or profiled for it."""
    return replace(
        settings,
        warmup_steps=0,
        max_warmup_steps=0,
        measured_steps=gate.num_steps,
        max_measured_steps=gate.num_steps,
        profiled_steps=0,
        max_repeats=0,
        num_runs=1,
        proxy_layers_per_stage=(),
    )


def run_gate(
    launcher: Launcher, candidate: TrialSpec, reference: Layout, gate: LossGate, watcher: TrialWatcher
) -> GateResult | Stopped:
    """Train both layouts once per seed, the reference first, and compare their losses.

    Args:
        launcher: Runs them, one after the other.
        candidate: The trial whose layout is gated, with the jobs that engines were given for its gate before.
        reference: Its layout with nothing that changes the mathematics.
        gate: How many steps and seeds, and how far losses may lie apart.
        watcher: Asked for a stop all the while; hears a note per seed, of jobs, and no steps.
    """
    quiet = _NoSteps(watcher)
    losses: dict[Layout, list[tuple[float, ...]]] = {reference: [], candidate.layout: []}
    for number in range(gate.num_seeds):
        watcher.on_note(f"loss gate: training beside {reference}, seed {number + 1} of {gate.num_seeds}")
        for layout, curves in losses.items():
            outcome = launcher.run(_spec(candidate, layout, gate, number), quiet)
            match outcome:
                case Stopped():
                    return outcome
                case TrialFailure():
                    return _died(outcome, layout, candidate.layout, reference, gate, losses)
                case Measurement(losses=()):
                    return _without_losses(layout, reference, gate)
                case Measurement():
                    curves.append(outcome.losses)
    return judge(gate, reference, losses[candidate.layout], losses[reference])


def _spec(candidate: TrialSpec, layout: Layout, gate: LossGate, number: int) -> TrialSpec:
    role = "candidate" if layout == candidate.layout else "reference"
    return replace(
        candidate,
        trial_id=f"{candidate.trial_id}-gate-{number}-{role}",
        layout=layout,
        seed=candidate.seed + number,
        settings=gate_settings(candidate.settings, gate),
    )


def _without_losses(layout: Layout, reference: Layout, gate: LossGate) -> GateResult:
    """A trainer that reports no losses cannot be gated; our own decoder always does."""
    return GateResult(
        outcome=GateOutcome.NOT_GATED,
        detail=f"the trainer reports no loss of {layout}, so that there is nothing to compare",
        reference=reference,
        tolerance=gate.tolerance,
    )


def _died(
    failure: TrialFailure,
    layout: Layout,
    candidate: Layout,
    reference: Layout,
    gate: LossGate,
    losses: dict[Layout, list[tuple[float, ...]]],
) -> GateResult:
    """A candidate that cannot be trained has failed; without a reference there is nothing to compare with."""
    is_candidate = layout == candidate
    return GateResult(
        outcome=GateOutcome.FAILED if is_candidate else GateOutcome.NOT_GATED,
        detail=f"training the {'candidate' if is_candidate else 'reference'} {layout} failed: {failure.message}",
        reference=reference,
        candidate_losses=tuple(losses[candidate]),
        reference_losses=tuple(losses[reference]),
        tolerance=gate.tolerance,
    )


class _NoSteps:
    """A watcher that hears no steps: those of a gate are none of its trial."""

    def __init__(self, watcher: TrialWatcher) -> None:
        self.on_note: Callable[[str], None] = watcher.on_note
        self.on_job: Callable[[EngineJob], None] = watcher.on_job
        self.stop_requested = watcher.stop_requested

    def on_step(self, step: object) -> None:
        pass

    def on_link_event(self, event: object) -> None:
        pass
