from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autotuner.core.choices import GradientClip, GradientSync, Precision
from autotuner.core.columns import LayoutColumns
from autotuner.core.convergence_gate import ConvergenceGate, GateOutcome, GateResult
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.trial import EngineJob, FailureKind, Stopped, Trial, TrialFailure, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.runs.convergence_gate import gate_settings, rejected_rows, run_gate, verdict_of
from tests.builders import cpu_layout, failure, measurement, prediction, tiny_model
from tests.fake_launcher import FakeLauncher, plain_measurement

DEMO = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)
FASTER = replace(DEMO, micro_batch_size=2)
LESS = replace(FASTER, sync_top_k=2)
MORE = replace(FASTER, sync_top_k=8)


def gated(layout: Layout, outcome: GateOutcome, *, target_loss: float | None = 4.0) -> Trial:
    gate = GateResult(outcome=outcome, detail="found", reference=cpu_layout(), tolerance=0.02, target_loss=target_loss)
    return Trial(
        id="sw-7",
        sweep_id="sw",
        number=7,
        state=TrialState.COMPLETE,
        layout=layout,
        prediction=prediction(),
        measurement=measurement(),
        gate=gate,
    )


def outcome_of(layout: Layout, trial: Trial) -> GateOutcome | None:
    found = verdict_of(layout, [trial])
    return None if found is None else found.outcome


def test_a_pass_holds_only_for_numerically_equivalent_layouts() -> None:
    passed = gated(DEMO, GateOutcome.PASSED)
    assert outcome_of(FASTER, passed) is GateOutcome.PASSED
    assert outcome_of(LESS, passed) is outcome_of(MORE, passed) is None


def test_a_failure_holds_for_what_sends_less_too() -> None:
    failed = gated(DEMO, GateOutcome.FAILED)
    assert outcome_of(FASTER, failed) is outcome_of(LESS, failed) is GateOutcome.FAILED
    assert outcome_of(MORE, failed) is None


def test_a_verdict_says_whose_it_is() -> None:
    failed = gated(DEMO, GateOutcome.FAILED)
    same, less = verdict_of(FASTER, [failed]), verdict_of(LESS, [failed])
    assert same is not None
    assert (same.shared_from, same.detail) == (7, "taken from trial 7, which has the same mathematics: found")
    assert less is not None
    assert less.detail == "taken from trial 7, which sends more: found"


def test_a_failure_in_a_gate_says_nothing_about_other_layouts() -> None:
    died = gated(DEMO, GateOutcome.FAILED, target_loss=None)
    assert outcome_of(FASTER, died) is None
    assert not rejected_rows(LayoutColumns.from_layouts([FASTER]), [died]).size


def test_rows_that_a_failure_holds_for_are_not_tried() -> None:
    rows = LayoutColumns.from_layouts([cpu_layout(), DEMO, MORE, LESS])
    assert rejected_rows(rows, [gated(DEMO, GateOutcome.FAILED)]).tolist() == [1, 3]
    assert not rejected_rows(rows, [gated(DEMO, GateOutcome.PASSED)]).size


GATE = ConvergenceGate(num_steps=6, num_seeds=2, tolerance=0.02)
REFERENCE = cpu_layout()
CANDIDATE = TrialSpec(
    trial_id="sw-test-0003",
    model=tiny_model(),
    workload=Workload(seq_len=64, global_batch_size=8),
    layout=replace(REFERENCE, precision=Precision.FP8),
    device="cuda",
    seed=5,
)


class Listener:
    """A watcher that remembers, and stops when told to."""

    def __init__(self, stop: Stopped | None = None) -> None:
        self.notes: list[str] = []
        self.steps: list[StepReport] = []
        self._stop = stop

    def on_step(self, step: StepReport) -> None:
        self.steps.append(step)

    def on_link_event(self, event: LinkEvent) -> None:
        pass

    def on_note(self, note: str) -> None:
        self.notes.append(note)

    def on_wait(self, reason: str | None) -> None:
        pass

    def on_run(self, run: FinishedRun) -> None:
        pass

    def on_job(self, job: EngineJob) -> None:
        pass

    def stop_requested(self) -> Stopped | None:
        return self._stop


def curves(fp8_factor: float) -> Callable[[TrialSpec], Measurement]:
    """Losses that fall, higher by a factor in fp8."""

    def run(spec: TrialSpec) -> Measurement:
        factor = fp8_factor if spec.layout.precision == Precision.FP8 else 1.0
        losses = tuple(factor * (7.0 - 0.1 * step) for step in range(spec.settings.measured_steps))
        return replace(plain_measurement(spec), losses=losses)

    return run


def test_candidate_and_reference_train_once_per_seed_with_the_same_seeds() -> None:
    launcher = FakeLauncher(curves(1.0))
    run_gate(launcher, CANDIDATE, REFERENCE, GATE, Listener())
    ran = [(spec.layout.precision, spec.seed) for spec in launcher.specs]
    assert ran == [(Precision.FP32, 5), (Precision.FP8, 5), (Precision.FP32, 6), (Precision.FP8, 6)]
    assert len({spec.trial_id for spec in launcher.specs}) == 4


@pytest.mark.parametrize(("factor", "outcome"), [(1.001, GateOutcome.PASSED), (1.05, GateOutcome.FAILED)])
def test_the_losses_decide(factor: float, outcome: GateOutcome) -> None:
    found = run_gate(FakeLauncher(curves(factor)), CANDIDATE, REFERENCE, GATE, Listener())
    assert isinstance(found, GateResult)
    assert found.outcome is outcome
    assert [len(curve) for curve in (*found.candidate_losses, *found.reference_losses)] == [6, 6, 6, 6]


def test_a_gate_runs_its_steps_and_nothing_else() -> None:
    asked = replace(CANDIDATE.settings, num_runs=3, proxy_layers_per_stage=(1, 2))
    settings = gate_settings(asked, GATE, CANDIDATE.layout, 512)
    assert (settings.warmup_steps, settings.max_warmup_steps) == (0, 0)
    assert (settings.measured_steps, settings.max_measured_steps) == (6, 6)
    assert (settings.num_runs, settings.max_repeats, settings.profiled_steps) == (1, 0, 0)
    assert settings.proxy_layers_per_stage == ()
    assert (settings.num_languages, settings.num_validation_batches) == (1, 0)


@pytest.mark.parametrize(
    ("layout", "languages", "batches"),
    [
        (cpu_layout(gradient_sync=GradientSync.DEMO, data_parallel_replicate_degree=4), 4, 4),
        (cpu_layout(gradient_sync=GradientSync.DEMO, data_parallel_replicate_degree=64), 64, 8),
        (cpu_layout(gradient_sync=GradientSync.DEMO, data_parallel_replicate_degree=1024), 512, 8),
        (cpu_layout(gradient_clip=GradientClip.PRE, data_parallel_replicate_degree=2), 2, 2),
    ],
)
def test_ranks_that_may_learn_apart_read_languages_of_their_own_and_are_validated_on_all(
    layout: Layout, languages: int, batches: int
) -> None:
    settings = gate_settings(CANDIDATE.settings, GATE, layout, 512)
    assert (settings.num_languages, settings.num_validation_batches) == (languages, batches)


def test_a_layout_that_the_first_seed_rejects_is_not_trained_from_other_seeds() -> None:
    launcher = FakeLauncher(curves(1.5))
    found = run_gate(launcher, CANDIDATE, REFERENCE, GATE, Listener())
    assert isinstance(found, GateResult)
    assert (found.outcome, found.noise, len(launcher.specs)) == (GateOutcome.FAILED, None, 2)
    assert "1 of 2 seeds" in found.detail


def test_the_watcher_gets_a_note_per_seed_and_no_steps() -> None:
    listener = Listener()
    run_gate(FakeLauncher(curves(1.0)), CANDIDATE, REFERENCE, GATE, listener)
    assert [note.endswith(f"seed {number} of 2") for number, note in enumerate(listener.notes, 1)] == [True, True]
    assert not listener.steps


def test_a_stop_ends_the_gate_without_a_result() -> None:
    stop = Stopped(reason="cancelled")
    assert run_gate(FakeLauncher(curves(1.0)), CANDIDATE, REFERENCE, GATE, Listener(stop)) == stop


@pytest.mark.parametrize(
    ("dying", "outcome"), [(Precision.FP8, GateOutcome.FAILED), (Precision.FP32, GateOutcome.NOT_GATED)]
)
def test_a_candidate_that_dies_has_failed_and_one_without_a_reference_is_not_gated(
    dying: Precision, outcome: GateOutcome
) -> None:
    def run(spec: TrialSpec) -> Measurement | TrialFailure:
        return failure(FailureKind.NUMERICS) if spec.layout.precision == dying else curves(1.0)(spec)

    found = run_gate(FakeLauncher(run), CANDIDATE, REFERENCE, GATE, Listener())
    assert isinstance(found, GateResult)
    assert found.outcome is outcome
    assert failure().message in found.detail


def test_a_trainer_that_reports_no_losses_is_not_gated_and_the_reason_says_so() -> None:
    launcher = FakeLauncher(lambda spec: replace(plain_measurement(spec), losses=()))
    found = run_gate(launcher, CANDIDATE, REFERENCE, GATE, Listener())
    assert isinstance(found, GateResult)
    assert found.outcome is GateOutcome.NOT_GATED
    assert "reported no loss" in found.detail
    assert len(launcher.specs) == 1
