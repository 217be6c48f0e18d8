from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.layouts.choice import GradientClip, GradientSync, PipelineSchedule, ShardLevel
from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.optimizer import OptimizerName, OptimizerSettings
from autotuner.errors import InvalidInput
from tests.builders import cpu_layout

LAMB = OptimizerSettings(name=OptimizerName.LAMB, learning_rate=1e-2)
ADAMW = OptimizerSettings(learning_rate=1e-3)

WHOLE = (
    cpu_layout(),
    cpu_layout(data_parallel_replicate_degree=2),
    cpu_layout(data_parallel_replicate_degree=2, pipeline_parallel_degree=2),
    cpu_layout(pipeline_parallel_degree=2, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE),
)
IN_PARTS = (
    cpu_layout(tensor_parallel_degree=2),
    cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS),
    cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER),
    cpu_layout(
        data_parallel_replicate_degree=2,
        pipeline_parallel_degree=2,
        pipeline_schedule=PipelineSchedule.ZERO_BUBBLE,
    ),
    cpu_layout(data_parallel_replicate_degree=2, gradient_clip=GradientClip.BUCKET),
)


@pytest.mark.parametrize("layout", WHOLE)
def test_lamb_trains_where_ranks_hold_whole_tensors(layout: Layout) -> None:
    assert LAMB.refuses(layout) is None


@pytest.mark.parametrize("layout", IN_PARTS)
def test_lamb_is_refused_with_its_reason_where_ranks_hold_parts(layout: Layout) -> None:
    assert "norm of each whole tensor" in (LAMB.refuses(layout) or "")
    assert ADAMW.refuses(layout) is None


def test_behind_an_exchange_of_less_than_gradients_only_adamw_has_been_tried() -> None:
    lossy = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)
    assert "only AdamW has been tried" in (LAMB.refuses(lossy) or "")
    assert ADAMW.refuses(lossy) is None


def test_the_learning_rate_rises_by_equal_parts_and_stays() -> None:
    warming = OptimizerSettings(learning_rate=0.4, warmup_steps=3)
    assert [warming.learning_rate_at(step) for step in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


@pytest.mark.parametrize(
    ("field", "value"),
    [("learning_rate", 0.0), ("beta1", 1.0), ("beta2", -0.1), ("weight_decay", -1.0), ("warmup_steps", -1)],
)
def test_numbers_that_no_optimizer_takes_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=field):
        OptimizerSettings(**{"learning_rate": 0.1, field: value})
