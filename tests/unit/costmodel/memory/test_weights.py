"""Elements of the model that a rank holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import ShardLevel
from autotuner.core.layout import Layout
from tests.builders import llama_70b, tiny_job, tiny_model
from tests.unit.costmodel.memory_jobs import eight_gpus, of, on_stack, one_core


def test_tensor_ranks_split_weights_and_most_activations() -> None:
    job = on_stack(eight_gpus(), fills_buckets=False)
    alone = of(Layout(data_parallel_replicate_degree=8), job)
    split = of(Layout(tensor_parallel_degree=8), job)
    assert float(split.gradients_bytes[0]) == pytest.approx(float(alone.gradients_bytes[0]) / 8, rel=1e-12)  # rounding
    assert float(alone.activations_bytes[0]) / 8 < float(split.activations_bytes[0]) < float(alone.activations_bytes[0])


def test_tied_tables_are_one_on_a_lone_rank_and_two_in_a_pipeline() -> None:
    tied, untied = (
        float(of(cpu, tiny_job(1, model=tiny_model(tied_embeddings=t))).parameters_bytes[0])
        for cpu, t in ((one_core()[1], True), (one_core()[1], False))
    )
    assert untied - tied == 4 * 256 * 64
    piped = replace(one_core()[1], pipeline_parallel_degree=2)
    both = [of(piped, tiny_job(2, model=tiny_model(tied_embeddings=t))).parameters_bytes[0] for t in (True, False)]
    assert both[0] == both[1]


EXPERTS = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=8192)


def test_expert_ranks_split_the_experts_and_nothing_else() -> None:
    job = replace(eight_gpus(), model=llama_70b(num_layers=8, experts=EXPERTS))
    together = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.OPTIMIZER)
    apart = replace(together, expert_parallel_degree=8)
    saved = float(of(together, job).gradients_bytes[0]) - float(of(apart, job).gradients_bytes[0])
    assert saved == pytest.approx(2 * job.model.num_expert_parameters * 7 / 8, rel=1e-12)  # rounding only
