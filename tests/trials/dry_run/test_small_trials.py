"""The oracle of a small trial is its target: what a rank computes and exchanges is counted in dry runs of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.dry_run import DryRunRequest, RankDryRun
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.trial import ScaledTrial
from autotuner.core.workload import Workload
from autotuner.search.sampler.proxy import scaled
from tests.builders import cpu_cluster, cpu_layout, tiny_model
from tests.trials.specs import ONE_STEP, PIPELINE, ddp, fsdp, trial_spec
from trials.dry_run.dry_run import dry_run

pytestmark = pytest.mark.oracle

DENSE = tiny_model(num_kv_heads=4)
SPARSE = replace(DENSE, experts=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=64))
"""As many experts as ranks: FSDP pads a router with fewer rows than it has shards, and gathers the padding, too."""
FOUR_STAGES: dict[str, Any] = {**PIPELINE, "pipeline_parallel_degree": 4}

WHOLE = (
    (DENSE, ddp(8)),
    (DENSE, ddp(4, tensor_parallel_degree=2, sequence_parallel=True)),
    (DENSE, ddp(4, **PIPELINE)),
    (DENSE, fsdp(8, reshard_after_forward=True, recompute=Recompute.FULL)),
    (DENSE, fsdp(4, context_parallel_degree=2)),
    (SPARSE, fsdp(8, expert_parallel_degree=2)),
)
"""Layouts of eight ranks whose trials on four keep every group but the replicas."""

SHORTER = (
    (DENSE, ddp(2, **FOUR_STAGES)),
    (
        replace(DENSE, num_layers=8),
        cpu_layout(
            **FOUR_STAGES,
            tensor_parallel_degree=2,
            virtual_stages_per_rank=2,
            pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
        ),
    ),
)
"""Layouts of eight ranks whose trials on four lose stages, too."""


def both(model: Any, layout: Layout) -> tuple[RankDryRun, RankDryRun]:
    """The first rank of the layout, and of the trial on four ranks that stands for it."""
    job = Job(model=model, cluster=cpu_cluster(8), workload=Workload(seq_len=32, global_batch_size=16))
    small = scaled(job, layout, cpu_cluster(4))
    assert isinstance(small, ScaledTrial)
    assert small.num_ranks < layout.world_size
    return first_rank(job, layout), first_rank(small.job(job, cpu_cluster(4)), small.layout)


def first_rank(job: Job, layout: Layout) -> RankDryRun:
    spec = trial_spec(layout, model=job.model, workload=job.workload, settings=ONE_STEP)
    return dry_run(DryRunRequest(spec=spec, ranks=(0,), exact=True)).fullest


def exchanged(rank: RankDryRun) -> Mapping[str, tuple[float, float]]:
    return {one.kind: (one.num_calls, one.num_bytes) for one in rank.counts.collectives}


@pytest.mark.parametrize(("model", "layout"), WHOLE, ids=lambda one: str(one) if isinstance(one, Layout) else "")
def test_a_rank_computes_and_exchanges_what_it_does_in_the_target(model: Any, layout: Layout) -> None:
    target, small = both(model, layout)
    assert small.counts.flop == target.counts.flop
    assert exchanged(small) == exchanged(target)


@pytest.mark.parametrize(("model", "layout"), SHORTER, ids=lambda one: str(one) if isinstance(one, Layout) else "")
def test_a_rank_of_a_shorter_pipeline_computes_and_sends_as_much(model: Any, layout: Layout) -> None:
    target, small = both(model, layout)
    assert small.counts.flop == target.counts.flop
    for kind in ("send", "receive"):
        assert exchanged(small).get(kind) == exchanged(target).get(kind)


@pytest.mark.parametrize(("model", "layout"), WHOLE, ids=lambda one: str(one) if isinstance(one, Layout) else "")
def test_a_rank_holds_as_many_activations_and_no_less_of_what_is_shared(model: Any, layout: Layout) -> None:
    target, small = both(model, layout)
    assert small.held.parameters_bytes >= target.held.parameters_bytes
    assert small.held.optimizer_bytes >= target.held.optimizer_bytes
    assert small.held.peak_bytes >= target.held.peak_bytes
