"""Stages, their layers, micro-batches in flight."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.models import load_model
from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.costmodel.stages import critical_ranks, fullest_ranks, num_micro_batches
from tests.builders import h100_cluster, tiny_model

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV, DUALPIPEV, ADAPTIVE = PipelineSchedule


def job(num_micro_batches: int, *, num_layers: int = 16) -> Job:
    workload = Workload(seq_len=64, global_batch_size=num_micro_batches)
    return Job(model=tiny_model(num_layers=num_layers), cluster=h100_cluster(), workload=workload)


def pipeline(ranks: int, schedule: PipelineSchedule = ONE_F_ONE_B, stages_per_rank: int = 1) -> LayoutColumns:
    layout = Layout(pipeline_parallel_degree=ranks, pipeline_schedule=schedule, virtual_stages_per_rank=stages_per_rank)
    return LayoutColumns.from_layouts([layout])


@pytest.mark.parametrize(
    ("schedule", "stages_per_rank", "first", "last"),
    [
        (GPIPE, 1, 12, 12),
        (ONE_F_ONE_B, 1, 4, 1),
        (ZERO_BUBBLE, 1, 4, 4),  # p, arXiv 2401.10241, table 1
        (INTERLEAVED, 2, (4 * 2 + 3) / 2, (4 + 1) / 2),  # (p v + p - 1) / v, and (v - 1) p + 1 of them
        (ZBV, 2, 4, 4),
        (ADAPTIVE, 1, 7, 7),  # 2 p - 1, the warm-up of ZB-H2 in arXiv 2401.10241
    ],
)
def test_micro_batches_in_flight_follow_the_schedule(
    schedule: PipelineSchedule, stages_per_rank: int, first: float, last: float
) -> None:
    ranks = critical_ranks(pipeline(4, schedule, stages_per_rank), job(12))
    assert [float(load.micro_batches_in_flight[0]) for load in ranks] == [first, last]


@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B, ZERO_BUBBLE])
def test_no_more_is_in_flight_than_there_is(schedule: PipelineSchedule) -> None:
    first, _ = critical_ranks(pipeline(8, schedule), job(2))
    assert float(first.micro_batches_in_flight[0]) == 2


def test_the_interleaved_factor_of_korthikanti_holds_on_the_first_rank() -> None:
    # arXiv 2205.05198, section 4.2.3: L (1 + (p - 1) / (p v)) layers instead of L
    first, _ = critical_ranks(pipeline(4, INTERLEAVED, 2), job(64))
    assert float((first.num_layers * first.micro_batches_in_flight)[0]) == 16 * (1 + 3 / 8)


def test_layers_that_do_not_divide_go_to_the_first_stages() -> None:
    first, last = critical_ranks(pipeline(4), job(8, num_layers=18))
    assert (int(first.num_layers[0]), int(last.num_layers[0])) == (5, 4)


def test_the_first_rank_looks_tokens_up_and_the_last_computes_the_loss() -> None:
    first, last = critical_ranks(pipeline(4), job(8))
    assert (bool(first.has_input[0]), bool(first.has_output[0])) == (True, False)
    assert (bool(last.has_input[0]), bool(last.has_output[0])) == (False, True)


def test_one_rank_does_both() -> None:
    for load in critical_ranks(pipeline(1), job(8)):
        assert (bool(load.has_input[0]), bool(load.has_output[0])) == (True, True)


def test_the_first_rank_of_a_v_holds_the_loss_too() -> None:
    first, last = critical_ranks(pipeline(4, ZBV, 2), job(8))
    assert (bool(first.has_output[0]), bool(last.has_output[0])) == (True, False)


def test_leading_dense_layers_stay_on_the_first_ranks() -> None:
    deepseek = load_model("deepseek-v3")  # 61 layers, of which the first 3 are dense
    whole = Job(model=deepseek, cluster=h100_cluster(), workload=Workload(seq_len=4096, global_batch_size=64))
    first, last, behind = critical_ranks(pipeline(16), whole)
    loads = [(int(r.rank[0]), int(r.num_dense_layers[0]), int(r.num_sparse_layers[0])) for r in (first, behind, last)]
    assert loads == [(0, 3, 1), (1, 0, 4), (15, 0, 3)]


@pytest.mark.parametrize(("schedule", "stages_per_rank"), [(INTERLEAVED, 2), (INTERLEAVED, 4), (ZBV, 2)])
def test_a_rank_of_several_stages_holds_its_share_of_the_layers(
    schedule: PipelineSchedule, stages_per_rank: int
) -> None:
    for load in critical_ranks(pipeline(4, schedule, stages_per_rank), job(8)):
        assert int(load.num_layers[0]) == 4


def stage_layers(x: LayoutColumns, whole: Job) -> list[int]:
    """Layers of each pipeline rank that can be slowest or fullest."""
    return [int(load.num_layers[0]) for load in critical_ranks(x, whole)]


def balanced(num_layers: int, vocab_size: int) -> Job:
    """A model on a stack that counts the output projection as layers; one layer of it has 36,864 matrix elements."""
    whole = job(8, num_layers=num_layers)
    model = replace(whole.model, vocab_size=vocab_size)
    assert model.num_active_layer_matrix_parameters == num_layers * 36_864
    return replace(whole, model=model, stack=Stack(balances_stages=True))


def test_a_balancing_stack_gives_the_stage_with_the_output_projection_fewer_layers() -> None:
    evenly, by_cost = job(8), balanced(16, vocab_size=1152)  # a projection of two layers' worth
    assert stage_layers(pipeline(2), evenly) == [8, 8]
    assert stage_layers(pipeline(2), by_cost) == [9, 7]


def test_no_stage_of_a_balanced_pipeline_is_left_without_layers_while_there_are_enough() -> None:
    # 33.2 layers' worth on 8 ranks: 5, 4, 4, 4, 4, 4, 5 and what is left
    assert stage_layers(pipeline(8), balanced(32, vocab_size=691)) == [5, 2]


@pytest.mark.parametrize("num_layers", [8, 13, 16])
@pytest.mark.parametrize("vocab_size", [64, 1152, 9216])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("balances", [False, True])
def test_all_ranks_together_hold_every_layer_once(num_layers: int, vocab_size: int, ranks: int, balances: bool) -> None:
    whole = replace(balanced(num_layers, vocab_size), stack=Stack(balances_stages=balances))
    # of up to three ranks, all are looked at, some twice
    layers = {int(load.rank[0]): int(load.num_layers[0]) for load in fullest_ranks(pipeline(ranks), whole)}
    assert len(layers) == ranks
    assert sum(layers.values()) == num_layers


def test_the_second_rank_is_looked_at_for_memory() -> None:
    assert [int(load.rank[0]) for load in fullest_ranks(pipeline(4), job(8))] == [0, 3, 1]
    assert [int(load.rank[0]) for load in fullest_ranks(pipeline(1), job(8))] == [0, 0, 0]


def test_micro_batches_of_a_column_are_those_of_the_workload() -> None:
    layouts = [Layout(data_parallel_replicate_degree=2, micro_batch_size=3), Layout(micro_batch_size=4)]
    whole = job(24)
    columns = num_micro_batches(LayoutColumns.from_layouts(layouts), whole)
    assert columns.tolist() == [whole.workload.num_micro_batches(layout) for layout in layouts]


@pytest.mark.parametrize(
    ("schedule", "stages_per_rank", "kept"), [(ZERO_BUBBLE, 2, 4.0), (DUALPIPEV, 2, (2 * 4 + 1) / 2)]
)
def test_zero_bubble_schedules_of_several_stages_keep_as_much_on_every_rank(
    schedule: PipelineSchedule, stages_per_rank: int, kept: float
) -> None:
    ranks = critical_ranks(pipeline(4, schedule, stages_per_rank), job(12))
    assert [float(load.micro_batches_in_flight[0]) for load in ranks] == [kept, kept]


def test_the_second_rank_is_critical_where_the_ends_are_smaller() -> None:
    plain = Layout(pipeline_parallel_degree=4)
    smaller = replace(plain, first_stage_less_layers=2, last_stage_less_layers=2)
    first, last, second = critical_ranks(LayoutColumns.from_layouts([smaller, plain]), job(8))
    assert first.num_layers.tolist() == [3, 4]
    assert last.num_layers.tolist() == [3, 4]
    assert (second.rank.tolist(), second.num_layers.tolist()) == ([1, 0], [5, 4])


def test_a_layout_that_says_how_small_its_ends_are_is_not_balanced_by_the_stack() -> None:
    layout = Layout(pipeline_parallel_degree=2, last_stage_less_layers=2)
    assert stage_layers(LayoutColumns.from_layouts([layout]), balanced(16, vocab_size=1152)) == [9, 7, 7]
