"""Trials as a launcher sees them: exit codes and reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from autotuner.core.choices import Precision, Recompute
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.units import MIB
from autotuner.core.workload import Workload
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import TOLERANCES, Trainer
from tests.trials.specs import FIVE_STEPS, ONE_STEP, PIPELINE, SEQUENCE, ddp, fsdp, trial_spec
from tests.trials.zygote import Run, Zygote
from trials.job.attempt import EXIT_FAILED, EXIT_MEASURED, EXIT_REFUSED

DDP = ddp(2, micro_batch_size=4)


def kinds(run: Run) -> set[str]:
    return {failure["kind"] for failure in run.failures}


def test_a_trial_reports_its_start_every_step_and_then_the_measurement(zygote: Zygote, tmp_path: Path) -> None:
    settings = TrialSettings(
        warmup_steps=2, max_warmup_steps=2, measured_steps=3, max_measured_steps=3, profiled_steps=1
    )
    run = zygote.run(trial_spec(DDP, settings=settings), tmp_path)
    assert run.exit_codes == (EXIT_MEASURED, EXIT_MEASURED)
    kinds_told = [line["type"] for line in run.lines]
    assert kinds_told == ["started", *["step"] * 5, "measurement", "timeline", "breakdown"]
    assert run.lines[0] == {"type": "started", "trial_id": "trial", "world_size": 2, "layout": str(DDP)}
    assert [step.is_warmup for step in run.steps] == [True, True, False, False, False]
    assert run.measurement.num_steps == 3
    assert run.measurement.losses == tuple(step.loss for step in run.steps)
    assert len(run.measurement.peak_bytes) == 2


@pytest.mark.parametrize("layout", [cpu_layout(), DDP, fsdp(2, **SEQUENCE, **PIPELINE, micro_batch_size=2)], ids=str)
def test_a_trial_reports_the_losses_of_a_single_process_and_prints_nothing(
    layout: Layout, zygote: Zygote, trainer: Trainer, tmp_path: Path
) -> None:
    run = zygote.run(trial_spec(layout), tmp_path)
    expected = trainer.alone(layout, tiny_model()).losses
    assert run.measurement.losses == pytest.approx(expected, rel=TOLERANCES[layout.precision].loss)
    assert set(run.logs) == {""}


def test_the_phases_follow_each_other_inside_the_step(zygote: Zygote, tmp_path: Path) -> None:
    run = zygote.run(trial_spec(), tmp_path)
    phases = run.measurement.phases
    assert phases is not None
    parts_s = (phases.forward_backward_s, phases.gradient_sync_s, phases.optimizer_s)
    assert min(parts_s) > 0.0
    assert sum(parts_s) < fmean(step.step_time_s for step in run.steps if not step.is_warmup)


def test_a_trial_without_warm_up_measures_every_step(zygote: Zygote, tmp_path: Path) -> None:
    settings = replace(FIVE_STEPS, warmup_steps=0, max_warmup_steps=0, measured_steps=2, max_measured_steps=2)
    run = zygote.run(trial_spec(settings=settings), tmp_path)
    assert run.measurement.num_steps == len(run.steps) == 2
    assert run.measurement.num_warmup_steps == 0
    assert run.measurement.peak_bytes[0] > 0


def test_ranks_agree_on_how_long_to_warm_up_and_to_measure(zygote: Zygote, tmp_path: Path) -> None:
    settings = TrialSettings(max_warmup_steps=8, max_measured_steps=12, target_interval=0.05)
    run = zygote.run(trial_spec(DDP, settings=settings), tmp_path)
    assert run.exit_codes == (EXIT_MEASURED, EXIT_MEASURED)  # a rank with one step more would wait for ever
    assert run.measurement.num_warmup_steps is not None
    assert 2 <= run.measurement.num_warmup_steps <= 8
    assert 5 <= run.measurement.num_steps <= 12
    assert [step.is_warmup for step in run.steps].index(False) == run.measurement.num_warmup_steps


def test_the_process_grows_by_what_its_tensors_hold_at_least(zygote: Zygote, tmp_path: Path) -> None:
    model = tiny_model(hidden_size=512, ffn_size=1024, num_heads=4, head_dim=128, num_layers=2)
    result = zygote.run(trial_spec(model=model), tmp_path).measurement
    assert len(result.reserved_bytes) == 1
    assert result.reserved_bytes[0] > 12 * model.num_parameters  # fp32 parameters and two moments never leave


def test_without_a_given_peak_the_cores_are_measured(zygote: Zygote, tmp_path: Path) -> None:
    given = zygote.run(trial_spec(DDP, reference_flop_per_s=1e11), tmp_path / "given").measurement
    found = zygote.run(trial_spec(DDP, reference_flop_per_s=None), tmp_path / "found").measurement
    assert given.peak_flop_per_s == 2e11
    assert found.peak_source.startswith("measured GEMM rate of ")
    assert found.peak_flop_per_s > 1e9  # a core multiplies faster than 1 GFLOP/s
    assert found.mfu == pytest.approx(found.model_flop_per_s / found.peak_flop_per_s)


def test_ranks_hold_their_parameters_gradients_and_optimizer_state_at_least(zygote: Zygote, tmp_path: Path) -> None:
    """Four fp32 values per parameter: itself, its gradient and two moments."""
    whole = 16 * tiny_model().num_parameters
    assert peak(zygote, cpu_layout(micro_batch_size=1), tmp_path / "single") > whole
    sharded = peak(zygote, fsdp(2, micro_batch_size=1), tmp_path / "fsdp")
    assert sharded > whole / 2
    assert sharded < peak(zygote, replace(DDP, micro_batch_size=1), tmp_path / "ddp")


def test_full_recomputation_lowers_the_peak_by_most_of_the_layers_activations(zygote: Zygote, tmp_path: Path) -> None:
    """A layer without recomputation keeps its norms, projections and feed-forward for the backward pass."""
    layout = cpu_layout(micro_batch_size=8)
    kept = peak(zygote, layout, tmp_path / "none")
    recomputed = peak(zygote, replace(layout, recompute=Recompute.FULL), tmp_path / "full")
    model = tiny_model()
    floats_per_token = 2 * model.hidden_size + 3 * model.ffn_size  # two norms, three halves of the feed-forward
    not_kept = (model.num_layers - 1) * 8 * 32 * floats_per_token * 4
    assert kept - recomputed > not_kept


def peak(zygote: Zygote, layout: Layout, folder: Path) -> int:
    return max(zygote.run(trial_spec(layout, settings=ONE_STEP), folder).measurement.peak_bytes)


def test_a_rank_that_exceeds_its_memory_budget_dies_of_oom(zygote: Zygote, tmp_path: Path) -> None:
    spec = trial_spec(
        cpu_layout(micro_batch_size=8, data_parallel_replicate_degree=2),
        workload=Workload(seq_len=256, global_batch_size=16),  # 150 MiB of scores and activations
        settings=TrialSettings(memory_budget_bytes=64 * MIB),
    )
    run = zygote.run(spec, tmp_path)
    assert set(run.exit_codes) == {EXIT_FAILED}
    assert run.failures[0]["kind"] == "oom"
    assert "allocate" in run.failures[0]["message"]
    assert "Traceback" in run.failures[0]["traceback"]


def test_a_budget_with_no_room_for_the_stack_of_a_thread_ends_in_oom(zygote: Zygote, tmp_path: Path) -> None:
    run = zygote.run(trial_spec(DDP, settings=replace(ONE_STEP, memory_budget_bytes=4 * MIB)), tmp_path)
    assert run.exit_codes == (EXIT_FAILED, EXIT_FAILED)
    assert run.failures[0]["kind"] == "oom"


def test_a_budget_that_suffices_changes_nothing(zygote: Zygote, tmp_path: Path) -> None:
    spec = trial_spec(settings=replace(FIVE_STEPS, memory_budget_bytes=1024 * MIB))
    assert zygote.run(spec, tmp_path).exit_codes == (EXIT_MEASURED,)


@pytest.mark.parametrize("layout", [cpu_layout(), cpu_layout(pipeline_parallel_degree=2), DDP], ids=str)
def test_a_loss_that_is_no_number_is_a_numerics_failure_on_every_rank(
    layout: Layout, zygote: Zygote, tmp_path: Path
) -> None:
    run = zygote.run(trial_spec(layout, settings=replace(FIVE_STEPS, learning_rate=1e30)), tmp_path)
    assert set(run.exit_codes) == {EXIT_FAILED}
    assert kinds(run) == {"numerics"}
    assert len(run.failures) == layout.world_size
    assert not any(line["type"] == "measurement" for line in run.lines)


def test_a_rank_whose_peer_vanishes_reports_a_communication_failure(zygote: Zygote, tmp_path: Path) -> None:
    run = zygote.run(trial_spec(DDP), tmp_path, task="deserter")
    assert run.exit_codes == (EXIT_FAILED, 0)
    assert kinds(run) == {"communication"}
    assert run.failures[0]["rank"] == 0


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tensor_parallel_degree": 2}, "the degrees multiply to 2 ranks, the cluster has 1"),
        ({"precision": Precision.FP8}, "not fp8; nearest legal value: "),
    ],
)
def test_a_refused_spec_names_value_and_rule(change: dict[str, Any], rule: str, zygote: Zygote, tmp_path: Path) -> None:
    run = zygote.run(trial_spec(cpu_layout(**change)), tmp_path, world_size=1)
    assert run.exit_codes == (EXIT_REFUSED,)
    assert [failure["kind"] for failure in run.failures] == ["crash"]
    assert rule in run.failures[0]["message"]
