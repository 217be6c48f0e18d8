"""Tests of ``autotuner.costmodel.layer.recompute``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, Precision, Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.costmodel.layer.recompute import model_flop_per_step, product_share, recomputed_flop_per_step
from tests.builders import big_job, h100_cluster, tiny_job
from tests.unit.costmodel.works import columns, with_stack

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
    (full,) = recomputed_flop_per_step(LayoutColumns.from_layouts([Layout(recompute=Recompute.FULL)]), job)
    # forward and two gradients, a multiply-add each per element; the projection is no layer
    output = 3 * 2 * job.model.embedding_parameters * workload.tokens_per_step
    # two roundings of the same product
    assert full == pytest.approx((model_flop_per_step(job) - output) / 3, rel=1e-12)


@pytest.mark.parametrize(
    ("policy", "kernel", "recomputes_attention"),
    [
        (RecomputePolicy.CORE_ATTN, AttentionKernel.FLASH, True),  # arXiv 2205.05198, section 5
        (RecomputePolicy.ALL_BUT_PRODUCTS, AttentionKernel.FLASH, False),  # the output of the fused kernel is kept
        (RecomputePolicy.ALL_BUT_PRODUCTS, AttentionKernel.MATH, True),  # products of batches of matrices are not
    ],
)
def test_selective_recomputation_multiplies_again_what_the_stack_does_not_keep(
    policy: RecomputePolicy, kernel: AttentionKernel, recomputes_attention: bool
) -> None:
    job = replace(big_job(), stack=Stack(selective_recompute=(policy,)))
    x = LayoutColumns.from_layouts([Layout(recompute=Recompute.SELECTIVE, attention_kernel=kernel)])
    attention = job.workload.tokens_per_step * job.model.attention_flop_per_token(job.workload.seq_len)
    assert recomputed_flop_per_step(x, job).tolist() == [attention * recomputes_attention]


@pytest.mark.parametrize("name", MODELS)
def test_layers_that_do_not_recompute_add_no_hardware_flop(name: str) -> None:
    job = Job(model=load_model(name), cluster=h100_cluster(), workload=Workload(seq_len=1024, global_batch_size=4))
    layouts = [Layout(recompute=Recompute.FULL, recompute_every=every) for every in (1, 2, job.model.num_layers)]
    every, half, one = recomputed_flop_per_step(LayoutColumns.from_layouts(layouts), job)
    assert every > half > one > 0
    if job.model.experts is None:  # of equal layers, every n-th from the first
        num_layers = job.model.num_layers
        # quotients and products of the same numbers, rounded
        assert half / every == pytest.approx(-(-num_layers // 2) / num_layers, rel=1e-12)
        assert one / every == pytest.approx(1 / num_layers, rel=1e-12)


def test_a_policy_by_operation_computes_compiled_products_in_fp8_again() -> None:
    job = with_stack(selective_recompute=(RecomputePolicy.EVERY_OTHER_PRODUCT,), repeats_fp8_products=True)
    bf16, eager, compiled = (
        Layout(compiled=True),
        Layout(precision=Precision.FP8),
        Layout(precision=Precision.FP8, compiled=True),
    )
    shares = product_share(columns(bf16, eager, compiled), job, sparse=False)
    assert 0 < shares[0] == shares[1] < shares[2] == 1.0
