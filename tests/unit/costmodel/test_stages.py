"""Tests of ``autotuner.costmodel.stages``."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import stage_layers, stages_of_rank
from autotuner.costmodel.stages import held_layers, layers_not_recomputed, model_layers_not_recomputed
from tests.builders import tiny_job, tiny_model

INTERLEAVED, ZBV, DUALPIPEV = PipelineSchedule.INTERLEAVED_1F1B, PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV


@st.composite
def piped(draw: st.DrawFn) -> tuple[Layout, Job]:
    """A pipeline whose stages all hold layers, of a model some of whose leading layers may be dense."""
    schedule, stages = draw(
        st.sampled_from(
            [(PipelineSchedule.ONE_F_ONE_B, 1), (INTERLEAVED, 2), (INTERLEAVED, 3), (ZBV, 2), (DUALPIPEV, 2)]
        )
    )
    ranks, per_stage = draw(st.integers(2, 5)), draw(st.integers(3, 6))
    first, last = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    odd = draw(st.integers(0, ranks - 1)) if stages == 1 else 0  # several stages per rank are equal
    layout = Layout(
        pipeline_parallel_degree=ranks,
        virtual_stages_per_rank=stages,
        pipeline_schedule=schedule,
        first_stage_less_layers=first,
        last_stage_less_layers=last,
        recompute_every=draw(st.integers(1, 4)),
    )
    num_layers = ranks * stages * per_stage + odd - first - last
    num_dense, interval = draw(st.none() | st.integers(0, num_layers)), draw(st.integers(1, 3))
    experts = MixtureOfExperts(
        num_experts=4,
        experts_per_token=2,
        expert_ffn_size=64,
        num_dense_layers=num_dense or 0,
        sparse_layer_interval=interval,
    )
    model = tiny_model(num_layers=num_layers, experts=None if num_dense is None else experts)
    return layout, tiny_job(1, model=model)


def layers_of(layout: Layout, job: Job, rank: int) -> list[range]:
    return [stage_layers(layout, job.model.num_layers, stage) for stage in stages_of_rank(layout, rank)]


def kinds(job: Job, layers: list[int]) -> list[int]:
    """How many of the layers are dense, and sparse."""
    sparse = sum(job.model.experts is not None and job.model.experts.is_sparse(layer) for layer in layers)
    return [len(layers) - sparse, sparse]


@given(piped())
def test_columns_hold_the_layers_that_stages_deal(drawn: tuple[Layout, Job]) -> None:
    layout, job = drawn
    x = LayoutColumns.from_layouts([layout])
    for rank in range(layout.pipeline_parallel_degree):
        layers = [layer for stage in layers_of(layout, job, rank) for layer in stage]
        dense, sparse = held_layers(x, job, np.array([rank]))
        assert [int(dense[0]), int(sparse[0])] == kinds(job, layers)


@given(piped())
def test_of_each_stage_all_but_every_nth_layer_from_the_first_do_not_recompute(drawn: tuple[Layout, Job]) -> None:
    layout, job = drawn
    x, total = LayoutColumns.from_layouts([layout]), np.zeros(2, dtype=np.int64)
    for rank in range(layout.pipeline_parallel_degree):
        not_recomputed = [
            layer
            for stage in layers_of(layout, job, rank)
            for place, layer in enumerate(stage)
            if place % layout.recompute_every
        ]
        found = [int(count[0]) for count in layers_not_recomputed(x, job, np.array([rank]))]
        assert found == kinds(job, not_recomputed)
        total += found
    assert [int(count[0]) for count in model_layers_not_recomputed(x, job)] == total.tolist()
