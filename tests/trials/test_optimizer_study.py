"""Optimizer studies and convergence gates on real ranks."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.choices import GradientSync, Precision
from autotuner.core.convergence_gate import ConvergenceGate, GateOutcome, GateResult
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.run import RunState
from autotuner.core.study import OptimizerSpace, OptimizerStudyRequest, OptimizerTrial, Range, StudyBudget
from autotuner.core.trial import TrialState
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, TrialSettings
from autotuner.launch.contract import Launcher
from autotuner.launch.forks import Forks
from autotuner.launch.local import LocalLauncher
from autotuner.runs.clock import SystemClock
from autotuner.runs.convergence_gate import run_gate
from autotuner.runs.study_run import study_kind
from autotuner.runs.worker import Worker
from autotuner.store.sql import Store, memory_store
from tests.builders import cpu_cluster, cpu_layout
from tests.studies import study_request
from tests.trials.launching import Watcher, spec

# ---------------------------------------------------------------- optimizer study

TARGET = 5.2
"""The tiny model starts at ln 256 = 5.55, and learns the frequencies of tokens, whose entropy is 4.55 (in nats)."""

LARGE = 64
"""Sequences of 32 tokens; as far from a batch of 1 as a laptop likes to go."""


def request(space: OptimizerSpace, num_trials: int, **changes: object) -> OptimizerStudyRequest:
    budget = StudyBudget(num_trials=num_trials, max_samples=20 * LARGE)
    values = {"target_loss": TARGET, "window_sequences": LARGE, "budget": budget}
    return study_request(**{**values, "space": space, **changes})


def worker(store: Store, launcher: Launcher, shutdown: threading.Event | None = None) -> Worker:
    kind, stop = study_kind(store.optimizer_studies, launcher), shutdown or threading.Event()
    return Worker(store.runs, {kind.name: kind}, SystemClock(), owner="worker", lease_s=10.0, shutdown=stop)


def lived_through(asked: OptimizerStudyRequest, launcher: Launcher) -> list[OptimizerTrial]:
    store = memory_store()
    study, _ = store.optimizer_studies.create(asked, now=1.0)
    assert worker(store, launcher).run_once()
    ended = store.runs.get("study", study.id)
    assert ended.state.is_finished, ended
    return list(store.optimizer_studies.trials(study.id))


@pytest.mark.oracle  # half a dozen trainings
def test_a_study_finds_a_large_batch_adamw_that_needs_fewer_steps_than_lamb_as_it_comes(
    tmp_path: Path, forks: Forks
) -> None:
    """Acceptance test 5 of paper 002; AdamW needs some 5 steps, and LAMB does not come there in 20."""
    launcher = LocalLauncher(tmp_path, forks)
    searched = OptimizerSpace(optimizers=(OptimizerName.ADAMW, OptimizerName.LAMB), global_batch_sizes=(LARGE,))
    found = lived_through(request(searched, 5), launcher)
    best = min(
        trial.reached.num_steps
        for trial in found
        if trial.reached and trial.candidate.optimizer.name is OptimizerName.ADAMW
    )
    by_default = only(OptimizerSettings(name=OptimizerName.LAMB, learning_rate=1e-3, weight_decay=0.0))
    (lamb,) = lived_through(request(by_default, 1, prunes=False), launcher)
    assert lamb.state is TrialState.COMPLETE
    steps = lamb.reached.num_steps if lamb.reached else lamb.curve.num_steps
    assert best < steps


def only(settings: OptimizerSettings) -> OptimizerSpace:
    """That optimizer with those very numbers, at the large batch."""
    return OptimizerSpace(
        optimizers=(settings.name,),
        learning_rate=Range(low=settings.learning_rate, high=settings.learning_rate),
        beta1=Range(low=settings.beta1, high=settings.beta1),
        beta2=Range(low=settings.beta2, high=settings.beta2),
        weight_decay=Range(low=settings.weight_decay, high=settings.weight_decay),
        warmup_steps=(settings.warmup_steps,),
        global_batch_sizes=(LARGE,),
    )


class _StoppedAtStep(LocalLauncher):
    """Has the worker told to stop when a trial has taken so many steps."""

    shutdown: threading.Event
    step: int

    def run(self, spec, watcher):  # type: ignore[no-untyped-def]  # as the launcher's
        told = watcher.on_step

        def on_step(step: StepReport) -> None:
            told(step)
            if step.step == self.step:
                self.shutdown.set()

        watcher.on_step = on_step
        return super().run(spec, watcher)


def test_a_study_goes_on_where_a_stopped_worker_left_it(tmp_path: Path, forks: Forks) -> None:
    quick = replace(only(OptimizerSettings(learning_rate=1e-2)), global_batch_sizes=(16,))
    budget = StudyBudget(num_trials=1, max_samples=12 * 16)
    asked = request(quick, 1, budget=budget, target_loss=5.5, window_sequences=16)
    store, shutdown = memory_store(), threading.Event()
    study, _ = store.optimizer_studies.create(asked, now=1.0)
    stopping = _StoppedAtStep(tmp_path, forks)
    stopping.shutdown, stopping.step = shutdown, 0
    worker(store, stopping, shutdown).run_once()
    (left,) = store.optimizer_studies.trials(study.id)
    assert (store.runs.get("study", study.id).lease, left.state) == (None, TrialState.QUEUED)
    worker(store, LocalLauncher(tmp_path, forks)).run_once()
    (ended,) = store.optimizer_studies.trials(study.id)
    assert (ended.id, ended.attempts, ended.candidate) == (left.id, 2, left.candidate)
    assert store.runs.get("study", study.id).state is RunState.COMPLETE
    assert ended.reached is not None
    assert ended.reached.num_samples == ended.reached.num_steps * 16


# ---------------------------------------------------------------- convergence gate

GATE = ConvergenceGate(num_steps=6, num_seeds=2, tolerance=0.05)
"""Few steps of a tiny model: what fp8 rounds away shows at once, and five per cent of a loss is far more than that."""

CANDIDATE = cpu_layout(precision=Precision.FP8_EMULATED, data_parallel_replicate_degree=2)


@pytest.mark.oracle  # a dozen trainings
def test_emulated_fp8_passes_beside_bf16_with_the_curves_of_both(tmp_path: Path, forks: Forks) -> None:
    reference = CANDIDATE.equivalent_reference(cpu_cluster().accelerator.precisions)
    assert reference.precision == Precision.BF16
    found = run_gate(LocalLauncher(tmp_path, forks), spec("gate", layout=CANDIDATE), reference, GATE, Watcher())
    assert isinstance(found, GateResult)
    assert found.outcome is GateOutcome.PASSED, found.detail
    assert [len(curve) for curve in (*found.candidate_losses, *found.reference_losses)] == [6] * 4
    assert found.candidate_losses != found.reference_losses  # fp8 rounds, or nothing was compared
    first, second = found.reference_losses
    assert first != second  # each seed has first parameters and batches of its own


LEARNING = TrialSettings(
    warmup_steps=0,
    max_warmup_steps=0,
    measured_steps=20,
    max_measured_steps=20,
    profiled_steps=0,
    num_languages=2,
    num_validation_batches=2,
)


@pytest.mark.oracle  # four trainings
def test_replicas_that_exchange_less_are_compared_on_the_languages_of_all(tmp_path: Path, forks: Forks) -> None:
    candidate = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO, sync_top_k=8)
    reference = candidate.equivalent_reference(cpu_cluster().accelerator.precisions)
    gate = ConvergenceGate(num_lossy_steps=8, num_seeds=2, tolerance=0.1)
    found = run_gate(LocalLauncher(tmp_path, forks), spec("demo", layout=candidate), reference, gate, Watcher())
    assert isinstance(found, GateResult)
    assert (reference.gradient_sync, found.reference_steps) == (GradientSync.FULL, 8)
    assert found.outcome is GateOutcome.PASSED, found.detail  # 8 steps of nothing but the most frequent words
    assert len(found.candidate_validation) == len(found.reference_validation) == 2
    assert found.steps_to_loss is not None
    assert found.reference_step_time_s is not None


@pytest.mark.oracle  # a training on a pipeline
def test_a_pipeline_is_validated_as_one_process_is(tmp_path: Path, forks: Forks) -> None:
    launcher = LocalLauncher(tmp_path, forks)
    layouts = {"one": cpu_layout(), "pipeline": cpu_layout(pipeline_parallel_degree=2)}
    found = [launcher.run(spec(name, LEARNING, layout=layout), Watcher()) for name, layout in layouts.items()]
    one, pipeline = (each.validation_loss for each in found if isinstance(each, Measurement))
    assert one == pytest.approx(pipeline, rel=1e-4)  # fp32 sums in another order, over 20 steps
