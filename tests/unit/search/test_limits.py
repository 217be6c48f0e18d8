from __future__ import annotations

from dataclasses import fields

import pytest

from autotuner.domain.choice import Recompute, ShardLevel
from autotuner.domain.layout import Layout
from autotuner.domain.prediction import Memory, StepTime
from autotuner.search.limits import PART_WORDS, limit_of
from tests.builders import big_job

LAYOUT = Layout(
    tensor_parallel_degree=8,
    pipeline_parallel_degree=4,
    data_parallel_shard_degree=2,
    shard_level=ShardLevel.OPTIMIZER,
    recompute=Recompute.FULL,
)


@pytest.mark.parametrize("part", [f.name for f in fields(StepTime)])
def test_every_part_of_a_step_has_a_limit(part: str) -> None:
    assert limit_of(part, LAYOUT, big_job())


def test_every_part_of_a_prediction_has_a_name() -> None:
    parts = {f.name for cls in (StepTime, Memory) for f in fields(cls)} - {"worst_stage"}
    assert PART_WORDS.keys() == parts


def test_communication_names_its_ranks_and_the_link_they_cross() -> None:
    assert "8 tensor ranks over nvlink4" in limit_of("tensor_communication_s", LAYOUT, big_job())
    assert "2 replicas over ndr400" in limit_of("data_communication_s", LAYOUT, big_job())


def test_the_bubble_names_stages_and_micro_batches() -> None:
    assert "4 stages on 4 pipeline ranks fill and drain around 512 micro-batches (1f1b)" in limit_of(
        "bubble_s", LAYOUT, big_job()
    )
