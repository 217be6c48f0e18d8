"""A loss gate on real ranks: emulated fp8 beside bf16, which is what the gate is for before fp8 may win."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.domain.layouts.choice import Precision
from autotuner.domain.runs.loss_gate import GateOutcome, GateResult, LossGate
from autotuner.launch.local import LocalLauncher
from autotuner.launch.zygote import Forks
from autotuner.search.sweeps.loss_gating import run_gate
from tests.builders import cpu_cluster, cpu_layout
from tests.trials.launching import Watcher, spec

GATE = LossGate(num_steps=6, num_seeds=2, tolerance=0.05)
"""Few steps of a tiny model: what fp8 rounds away shows at once, and five per cent of a loss is far more than that."""

CANDIDATE = cpu_layout(precision=Precision.FP8_EMULATED, data_parallel_replicate_degree=2)


@pytest.mark.oracle  # a dozen trainings
def test_emulated_fp8_passes_beside_bf16_with_the_curves_of_both(tmp_path: Path, forks: Forks) -> None:
    reference = CANDIDATE.mathematics_reference(cpu_cluster().accelerator.precisions)
    assert reference.precision == Precision.BF16
    found = run_gate(LocalLauncher(tmp_path, forks), spec("gate", layout=CANDIDATE), reference, GATE, Watcher())
    assert isinstance(found, GateResult)
    assert found.outcome is GateOutcome.PASSED, found.detail
    assert [len(curve) for curve in (*found.candidate_losses, *found.reference_losses)] == [6] * 4
    assert found.candidate_losses != found.reference_losses  # fp8 rounds, or nothing was compared
    first, second = found.reference_losses
    assert first != second  # each seed has first parameters and batches of its own
