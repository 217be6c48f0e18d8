from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from autotuner.core.choices import ContextExchange, P2PTransport, PipelineSchedule, Recompute, ShardLevel
from autotuner.core.job import BF16_ON_CORES
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.prediction import Memory, StepTime
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stack import Stack
from autotuner.search.explain.bottlenecks import PART_WORDS, limit_of
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
    assert PART_WORDS.keys() == parts | {BF16_ON_CORES}


def test_communication_names_its_ranks_and_the_link_they_cross() -> None:
    assert "8 tensor ranks over nvlink4" in limit_of("tensor_communication_s", LAYOUT, big_job())
    assert "2 replicas over ndr400" in limit_of("data_communication_s", LAYOUT, big_job())


def test_the_bubble_names_stages_and_micro_batches() -> None:
    assert "4 stages on 4 pipeline ranks fill and drain around 512 micro-batches (1f1b)" in limit_of(
        "bubble_s", LAYOUT, big_job()
    )


def test_what_is_computed_again_is_what_the_stack_and_the_layout_say() -> None:
    selective = replace(LAYOUT, recompute=Recompute.SELECTIVE)
    assert "all but matrix products runs again" in limit_of("recompute_s", selective, big_job())
    megatron = replace(big_job(), stack=Stack(selective_recompute=(RecomputePolicy.CORE_ATTN,)))
    assert "the attention cores run again" in limit_of("recompute_s", selective, megatron)
    assert "on one layer in 4" in limit_of("recompute_s", replace(LAYOUT, recompute_every=4), big_job())


def test_an_exchange_is_told_by_its_way() -> None:
    for way, word in zip(ContextExchange, ("sent round", "gathered before", "heads exchanged"), strict=True):
        layout = replace(LAYOUT, context_parallel_degree=2, context_exchange=way)
        assert word in limit_of("context_communication_s", layout, big_job())


def test_offloading_names_the_link_to_the_host_and_what_crosses_it() -> None:
    assert "31.5 GB/s: each layer's input goes there" in limit_of("offload_s", LAYOUT, big_job())


def test_context_ranks_exchange_gradients_with_the_replicas() -> None:
    layout = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=4, context_parallel_degree=4)
    assert "4 data and context ranks over" in limit_of("data_communication_s", layout, big_job())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "who sends over it waits, and 1f1b does not plan for it"),
        (
            {"p2p_transport": P2PTransport.DELEGATED, "pipeline_schedule": PipelineSchedule.ADAPTIVE},
            "delegates carry what passes, and no rank waits to have sent, and the plan runs further ahead",
        ),
    ],
)
def test_the_pipeline_names_a_slow_link_between_its_stages_and_how_it_is_borne(
    changes: dict[str, Any], said: str
) -> None:
    links = (LinkHealth(ends=(2, 3), delay_s=0.06), LinkHealth(ends=(0, 1)))
    job = replace(big_job(), cluster=replace(big_job().cluster, link_health=links))
    layout = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, **changes)
    assert limit_of("pipeline_communication_s", layout, job).endswith(f"; link 2_3 60 ms late: {said}")
    away = replace(layout, stage_rotation=3)  # of a ring of eight nodes, no stages talk over the link from 2 to 3
    assert "late" not in limit_of("pipeline_communication_s", away, job)
