"""FLOP of a step, and what recomputation adds."""

from __future__ import annotations

import pytest

from autotuner.catalog.load import load_model
from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.flops import model_flop_per_step, recomputed_flop_per_step
from autotuner.domain.choice import Recompute
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.workload import Workload
from tests.builders import big_job, h100_cluster, tiny_job

MODELS = ("llama-3-70b", "mixtral-8x7b", "deepseek-v3", "gpt2")


def test_a_step_needs_six_flop_per_parameter_and_token_and_some_attention() -> None:
    job = big_job()
    per_token = model_flop_per_step(job) / job.workload.tokens_per_step
    assert 6 < per_token / job.model.num_parameters < 7.5


def test_nothing_recomputed_is_no_flop() -> None:
    assert recomputed_flop_per_step(LayoutColumns.from_layouts([Layout()]), tiny_job()).tolist() == [0.0]


@pytest.mark.parametrize("name", MODELS)
def test_full_recomputation_runs_every_layer_forward_again(name: str) -> None:
    workload = Workload(seq_len=1024, global_batch_size=4)
    job = Job(model=load_model(name), cluster=h100_cluster(), workload=workload)
    layouts = [Layout(recompute=Recompute.SELECTIVE), Layout(recompute=Recompute.FULL)]
    selective, full = recomputed_flop_per_step(LayoutColumns.from_layouts(layouts), job)
    # forward and two gradients, a multiply-add each per element; the projection is no layer
    output = 3 * 2 * job.model.embedding_parameters * workload.tokens_per_step
    # two roundings of the same product
    assert full == pytest.approx((model_flop_per_step(job) - output) / 3, rel=1e-12)
    assert selective == workload.tokens_per_step * job.model.attention_flop_per_token(1024)
