"""Stages, micro-batches in flight, bubbles."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.catalog.load import load_model
from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.pipeline import bubble_s, critical_ranks, num_micro_batches, num_transfers
from autotuner.domain.choice import PipelineSchedule
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.workload import Workload
from tests.builders import h100_cluster, tiny_model

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV = PipelineSchedule


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
        (ZERO_BUBBLE, 1, 4, 1),
        (INTERLEAVED, 2, (4 * 2 + 3) / 2, (4 + 1) / 2),  # (p v + p - 1) / v, and (v - 1) p + 1 of them
        (ZBV, 2, 4, 4),
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


def bubble(x: LayoutColumns, forward_s: float, backward_s: float, weight_s: float) -> float:
    others = int(x.pipeline_parallel_degree[0]) - 1
    whole = np.array([others * (forward_s + backward_s + weight_s)])
    return float(bubble_s(x, whole, np.array([others * weight_s]))[0])


@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 12), (8, 8)])
def test_the_bubble_fraction_of_equal_stages_is_the_textbook_one(
    schedule: PipelineSchedule, ranks: int, micro_batches: int
) -> None:
    idle = bubble(pipeline(ranks, schedule), 1.0, 1.0, 1.0)
    busy = 3.0 * micro_batches
    # a sum of small integers, exact, divided once
    assert idle / (idle + busy) == pytest.approx((ranks - 1) / (micro_batches + ranks - 1), rel=1e-12)


def test_interleaving_divides_the_bubble() -> None:
    assert bubble(pipeline(4, INTERLEAVED, 2), 1.0, 1.0, 1.0) == bubble(pipeline(4), 1.0, 1.0, 1.0) / 2


def test_zero_bubble_of_4_stages_and_12_micro_batches_takes_390() -> None:
    # arXiv 2504.19232, figure 4: F = B = W = 10, healthy pipeline of 4 x 12, bubble 7.69 %
    idle = bubble(pipeline(4, ZERO_BUBBLE), 10.0, 10.0, 10.0)
    assert 12 * 30.0 + idle == 390.0


def test_a_v_of_equal_passes_has_no_bubble() -> None:
    assert bubble(pipeline(4, ZBV, 2), 1.0, 1.0, 1.0) == 0.0


def test_a_bubble_is_never_negative() -> None:
    assert bubble(pipeline(4, ZBV, 2), 1.0, 1.0, 3.0) == 0.0


def test_one_rank_sends_nothing_and_idles_never() -> None:
    assert num_transfers(pipeline(1), job(8)).tolist() == [0]
    assert bubble(pipeline(1), 1.0, 1.0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("schedule", "stages_per_rank", "transfers"),
    [(GPIPE, 1, 6), (ONE_F_ONE_B, 1, 6 + 12), (INTERLEAVED, 2, 6 + 24), (ZERO_BUBBLE, 1, 6), (ZBV, 2, 6)],
)
def test_only_schedules_without_slack_wait_for_every_send(
    schedule: PipelineSchedule, stages_per_rank: int, transfers: int
) -> None:
    assert num_transfers(pipeline(4, schedule, stages_per_rank), job(12)).tolist() == [transfers]


def test_micro_batches_of_a_column_are_those_of_the_workload() -> None:
    layouts = [Layout(data_parallel_replicate_degree=2, micro_batch_size=3), Layout(micro_batch_size=4)]
    whole = job(24)
    columns = num_micro_batches(LayoutColumns.from_layouts(layouts), whole)
    assert columns.tolist() == [whole.workload.num_micro_batches(layout) for layout in layouts]
