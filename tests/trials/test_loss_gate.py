"""Loss gates on real ranks: emulated fp8 beside bf16, and replicas that exchange less beside such that exchange all."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.core.choices import GradientSync, Precision
from autotuner.core.convergence_gate import GateOutcome, GateResult, LossGate
from autotuner.core.measurement import Measurement
from autotuner.core.trial_spec import TrialSettings
from autotuner.launch.local import LocalLauncher
from autotuner.launch.zygote import Forks
from autotuner.runs.convergence_gate import run_gate
from tests.builders import cpu_cluster, cpu_layout
from tests.trials.launching import Watcher, spec

GATE = LossGate(num_steps=6, num_seeds=2, tolerance=0.05)
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
    gate = LossGate(num_lossy_steps=8, num_seeds=2, tolerance=0.1)
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
