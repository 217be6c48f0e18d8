"""Memory by pipeline rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.catalog.models import load_model
from autotuner.core.choices import PipelineSchedule
from autotuner.core.layout import Layout
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.step.stage_memory import stage_memory
from autotuner.search.space import legal_layouts
from tests.builders import big_job

PIPELINE = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, sequence_parallel=True)


@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b", "deepseek-v3"])
def test_the_fullest_stage_is_that_of_the_prediction(name: str) -> None:
    job = replace(big_job(), model=load_model(name))
    layouts = legal_layouts(job)
    some = layouts.take(np.linspace(0, len(layouts) - 1, 300).astype(int))
    for row, predicted_bytes in enumerate(predict(some, job).memory.total_bytes):
        fullest = max(stage_memory(some.row(row), job), key=lambda memory: memory.total_bytes)
        assert fullest.total_bytes == pytest.approx(predicted_bytes, rel=1e-9)  # the same parts in another order


def test_only_the_last_stage_of_1f1b_holds_logits_and_the_first_keeps_most_activations() -> None:
    stages = stage_memory(PIPELINE, big_job())
    assert [memory.worst_stage for memory in stages] == list(range(8))
    assert [memory.logits_bytes > 0 for memory in stages] == [False] * 7 + [True]
    kept = [memory.activations_bytes for memory in stages[:7]]
    assert kept == sorted(kept, reverse=True)


def test_a_rank_of_a_v_schedule_holds_both_ends_of_the_model() -> None:
    layout = replace(PIPELINE, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)
    stages = stage_memory(layout, big_job())
    assert [memory.logits_bytes > 0 for memory in stages] == [True] + [False] * 7


def test_a_layout_without_a_pipeline_has_one_stage() -> None:
    layout = Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8, sequence_parallel=True)
    (only,) = stage_memory(layout, big_job())
    assert only == predict_one(layout, big_job()).memory
