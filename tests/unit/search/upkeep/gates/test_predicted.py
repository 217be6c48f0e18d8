from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.choices import PipelineSchedule, Recompute, ShardLevel
from autotuner.core.dry_run import DryRun, HeldBytes, OperationCounts, RankDryRun
from autotuner.core.layout import Layout
from autotuner.core.upkeep import MfuGateOutcome
from autotuner.search.upkeep.gates.predicted import PredictedGate, predicted_change, predicted_gate
from tests.builders import big_job

JOB = big_job(64)  # 512 accelerators

TODAY = Layout(
    data_parallel_shard_degree=16,
    shard_level=ShardLevel.PARAMETERS,
    tensor_parallel_degree=8,
    pipeline_parallel_degree=4,
    pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
    sequence_parallel=True,
)


def changed(**fields: Any) -> Layout:
    return replace(TODAY, **fields)


def gate(candidate: Layout, *, tolerance: float = 0.02, dry_run: DryRun | None = None) -> PredictedGate:
    return predicted_gate(JOB, candidate, TODAY, tolerance=tolerance, dry_run=dry_run)


def counted(peak_bytes: float) -> DryRun:
    held = HeldBytes(
        parameters_bytes=peak_bytes,
        gathered_bytes=0.0,
        gradients_bytes=0.0,
        optimizer_bytes=0.0,
        activations_bytes=0.0,
    )
    counts = OperationCounts(flop=1.0, moved_bytes=1.0, num_operations=1.0, collectives=())
    return DryRun(ranks=(RankDryRun(rank=0, held=held, counts=counts),), notes=("nothing was compiled",))


def test_the_same_layout_passes_and_is_equally_fast() -> None:
    found = gate(TODAY)
    assert found.outcome is MfuGateOutcome.PASSED
    assert "equally fast" in found.detail


def test_a_layout_that_runs_out_of_memory_on_512_accelerators_fails() -> None:
    found = gate(changed(pipeline_schedule=PipelineSchedule.GPIPE))
    assert found.outcome is MfuGateOutcome.FAILED
    assert "runs out of memory: the fullest of 512 ranks needs" in found.detail


def test_what_a_dry_run_counted_stands_for_what_the_closed_forms_say() -> None:
    full, empty = gate(TODAY, dry_run=counted(90e9)), gate(TODAY, dry_run=counted(10e9))
    assert (full.outcome, empty.outcome) == (MfuGateOutcome.FAILED, MfuGateOutcome.PASSED)
    assert "nothing was compiled" in full.notes
    assert ("peak of the fullest rank", "19 GB, counted in a dry run") in empty.report(JOB).facts


def test_a_layout_that_is_slower_beyond_the_error_fails_unless_that_is_tolerated() -> None:
    slower = changed(recompute=Recompute.FULL)
    assert gate(slower).outcome is MfuGateOutcome.FAILED
    assert gate(slower, tolerance=0.5).outcome is MfuGateOutcome.PASSED


def test_a_loss_within_the_error_of_the_prediction_is_undecided() -> None:
    found = gate(changed(data_parallel_shard_degree=8, pipeline_parallel_degree=8))
    assert found.outcome is MfuGateOutcome.UNDECIDED
    assert "within the error of the prediction; measure it" in found.detail


def test_a_layout_that_breaks_a_rule_fails_with_the_rule() -> None:
    found = gate(changed(pipeline_parallel_degree=5))
    assert found.outcome is MfuGateOutcome.FAILED
    assert "the degrees multiply to 640 ranks, the cluster has 512" in found.detail
    assert found.predicted is None


def test_without_a_baseline_a_layout_that_fits_passes() -> None:
    found = predicted_gate(JOB, TODAY, None, tolerance=0.02)
    assert (found.outcome, found.change) == (MfuGateOutcome.PASSED, None)


def test_both_directions_of_a_change_say_the_same() -> None:
    slower = changed(recompute=Recompute.FULL)
    there, back = predicted_change(JOB, TODAY, slower), predicted_change(JOB, slower, TODAY)
    assert (1 + there.change) * (1 + back.change) == pytest.approx(1)
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1)


def test_two_layouts_are_told_apart_better_than_either_is_known() -> None:
    found = gate(changed(recompute=Recompute.FULL))
    assert found.predicted is not None
    assert found.change is not None
    assert found.predicted.relative_error is not None
    width = (1 + found.change.high) / (1 + found.change.low)
    assert width < (1 + found.predicted.relative_error) ** 2
