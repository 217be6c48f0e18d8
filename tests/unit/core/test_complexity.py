from __future__ import annotations

import pytest

from autotuner.core.choices import (
    CollectiveAlgorithm,
    GradientSync,
    P2PTransport,
    PipelineSchedule,
    Precision,
    ShardLevel,
)
from autotuner.core.columns import LayoutColumns
from autotuner.core.complexity import BURDENS, burdens_of, complexity
from autotuner.core.layout import OPTIONS, Layout

SHARDED = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)
PIPELINED = Layout(pipeline_parallel_degree=4, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)


def test_plain_replicas_are_not_complex_however_many_there_are() -> None:
    assert complexity(Layout(data_parallel_replicate_degree=1024, micro_batch_size=4)) == 0


def test_every_burden_names_an_option_and_says_why() -> None:
    assert {burden.option for burden in BURDENS} <= set(OPTIONS)
    assert all(burden.reason and burden.weight > 0 for burden in BURDENS)


def test_what_changes_the_mathematics_weighs_most() -> None:
    weights = {burden.option: burden.weight for burden in BURDENS}
    heaviest = max(weights.values())
    changing = {name for name, one in OPTIONS.items() if one.not_equivalent}
    assert {name for name, weight in weights.items() if weight == heaviest} == changing


def test_numbers_that_every_job_must_choose_are_free() -> None:
    free = {"micro_batch_size", "data_parallel_replicate_degree", "gradient_bucket_bytes"}
    assert free.isdisjoint(burden.option for burden in BURDENS)


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        (SHARDED, ["shard_level"]),
        (PIPELINED, ["pipeline_parallel_degree", "virtual_stages_per_rank", "pipeline_schedule"]),
        (Layout(collective_algorithm=CollectiveAlgorithm.NVLS), ["collective_algorithm"]),
        (Layout(p2p_transport=P2PTransport.DELEGATED), ["p2p_transport"]),
        (Layout(precision=Precision.FP8, gradient_sync=GradientSync.DEMO), ["precision", "gradient_sync"]),
    ],
)
def test_a_layout_says_what_it_bears(layout: Layout, options: list[str]) -> None:
    assert [burden.option for burden in burdens_of(layout)] == options
    assert complexity(layout) == sum(burden.weight for burden in burdens_of(layout))


def test_columns_of_layouts_have_the_complexities_of_their_rows() -> None:
    layouts = [Layout(), SHARDED, PIPELINED, Layout(precision=Precision.FP8)]
    columns = complexity(LayoutColumns.from_layouts(layouts))  # type: ignore[arg-type]  # formulas hold for columns
    assert columns.tolist() == [complexity(layout) for layout in layouts]
