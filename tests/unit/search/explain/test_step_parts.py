"""Predicted and measured parts of a step in one vocabulary."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from autotuner.core.choices import ContextExchange, PipelineSchedule, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown, PhaseTimes
from autotuner.core.prediction import StepTime
from autotuner.costmodel.predict import predict_one
from autotuner.search.explain.step_parts import StepPart, StepParts, measured_fields, step_parts
from autotuner.search.space import legal_layouts
from tests.builders import big_job, breakdown, cpu_layout, tiny_job

GRID = Layout(
    tensor_parallel_degree=4,
    pipeline_parallel_degree=4,
    context_parallel_degree=2,
    data_parallel_replicate_degree=2,
    sequence_parallel=True,
    recompute=Recompute.SELECTIVE,
)
MEASURED = breakdown(
    forward_s=40.0,
    backward_s=90.0,
    all_reduce_s=2.0,
    all_gather_s=6.0,
    reduce_scatter_s=7.0,
    all_to_all_s=0.5,
    send_receive_s=0.25,
    pipeline_idle_s=1.5,
    optimizer_s=0.125,
    other_s=0.625,
)
PHASES = PhaseTimes(forward_backward_s=3.0, gradient_sync_s=0.5, optimizer_s=0.25)


def parts_of(layout: Layout, measured: Breakdown | PhaseTimes | None = None) -> StepParts:
    job = big_job()
    return step_parts(layout, job, predict_one(layout, job).step_time, measured)


def named(parts: StepParts) -> dict[str, StepPart]:
    return {part.name: part for part in parts.parts}


def test_both_sides_sum_to_their_steps_whatever_the_layout() -> None:
    layouts = legal_layouts(big_job())
    for row in range(0, len(layouts), len(layouts) // 60):
        layout = layouts.row(row)
        step_time = predict_one(layout, big_job()).step_time
        for measured in (None, MEASURED, PHASES):
            found = step_parts(layout, big_job(), step_time, measured)
            predicted_s = sum(part.predicted_s or 0.0 for part in found.parts)
            assert predicted_s == pytest.approx(step_time.total_s)  # the same sum in another order
            if measured is not None:
                measured_s = sum(part.measured_s or 0.0 for part in found.parts)
                assert measured_s == pytest.approx(found.measured_s)  # the same sum in another order


def test_measured_fields_hold_each_field_once_and_sum_to_the_measured_step() -> None:
    layouts = legal_layouts(big_job())
    for row in range(0, len(layouts), len(layouts) // 60):
        for measured in (MEASURED, PHASES):
            found = measured_fields(layouts.row(row), measured)
            assert sorted(name for names in found for name in names) == sorted(f.name for f in fields(StepTime))
            step_s = sum(getattr(measured, f.name) for f in fields(measured) if f.name.endswith("_s"))
            assert sum(found.values()) == pytest.approx(step_s)  # the same sum in another order


def test_a_prediction_alone_tells_recomputation_and_every_group_apart() -> None:
    found = parts_of(GRID)
    assert list(named(found)) == [
        *("forward", "backward", "recomputation", "tensor collectives", "context collectives"),
        *("data collectives", "pipeline sends", "pipeline idle", "optimizer"),
    ]
    assert all(part.measured_s is None for part in found.parts)
    assert (found.measured_s, found.rank) == (None, None)


def test_groups_that_call_different_collectives_are_measured_apart() -> None:
    found = named(parts_of(GRID, MEASURED))
    assert found["tensor collectives"].measured_s == 13.0
    assert found["context collectives"].measured_s == 0.5
    assert found["data collectives"].measured_s == 2.0
    assert found["pipeline sends"].measured_s == 0.25
    assert found["pipeline idle"].measured_s == 1.5
    assert found["anything else"].predicted_s is None


def test_groups_that_call_the_same_collectives_are_one_part_on_both_sides() -> None:
    sharded = replace(
        GRID, data_parallel_replicate_degree=1, data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER
    )
    alone, together = named(parts_of(sharded)), named(parts_of(sharded, MEASURED))
    part = together["tensor and data collectives"]
    assert part.measured_s == 13.0
    assert part.predicted_s == pytest.approx(
        (alone["tensor collectives"].predicted_s or 0) + (alone["data collectives"].predicted_s or 0)
    )
    gathered = replace(sharded, context_exchange=ContextExchange.ALL_GATHER)
    assert "tensor, context and data collectives" in named(parts_of(gathered, MEASURED))


def test_a_measured_backward_pass_stands_beside_the_predicted_one_with_its_recomputation() -> None:
    alone, together = named(parts_of(GRID)), named(parts_of(GRID, MEASURED))
    predicted_s = (alone["backward"].predicted_s or 0) + (alone["recomputation"].predicted_s or 0)
    assert together["backward"].predicted_s == pytest.approx(predicted_s)  # other order
    assert "of it predicted for recompute selective" in together["backward"].limit
    assert "recomputation" not in together


def test_gradients_of_weights_are_a_part_of_schedules_that_defer_them() -> None:
    zbv = replace(GRID, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)
    assert named(parts_of(zbv))["weight gradients"].kind == "weight"
    assert "weight gradients" not in named(parts_of(zbv, MEASURED))


def test_collectives_that_no_group_calls_are_anything_else() -> None:
    job = tiny_job(1)
    found = step_parts(cpu_layout(), job, predict_one(cpu_layout(), job).step_time, MEASURED)
    assert named(found)["anything else"].measured_s == 0.625 + 2 + 6 + 7 + 0.5 + 0.25 + 1.5


def test_phases_set_passes_with_all_that_interrupts_them_beside_gradients_and_optimizer() -> None:
    layout = Layout(data_parallel_replicate_degree=64)
    found = named(parts_of(layout, PHASES))
    assert {name: part.measured_s for name, part in found.items()} == {
        "forward and backward, with what interrupts them": 3.0,
        "data collectives": 0.5,
        "optimizer": 0.25,
    }
    assert parts_of(layout, PHASES).rank is None
    # a pipeline's last passes and gathered parameters are in both phases
    assert set(named(parts_of(GRID, PHASES))) == {"forward and backward, with what interrupts them", "optimizer"}


def test_the_largest_losses_are_said_as_measured_and_without_a_measurement_as_predicted() -> None:
    assert parts_of(GRID, MEASURED).largest_loss == (
        "88 % of the step computes. Of that, recomputation is predicted to be 2.61 s (2 %). "
        "The largest part of the rest is tensor collectives, 13 s (9 %), "
        "then data collectives, 2 s."
    )
    assert "then recomputation" in parts_of(GRID).largest_loss


def test_a_step_that_loses_nothing_says_so() -> None:
    job, alone = tiny_job(1), breakdown(forward_s=1.0, backward_s=2.0)
    found = step_parts(cpu_layout(), job, predict_one(cpu_layout(), job).step_time, alone)
    assert found.largest_loss == "100 % of the step computes."
