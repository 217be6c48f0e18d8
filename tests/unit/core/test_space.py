"""Which values a sweep may try, and which it tries by default."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import (
    AttentionKernel,
    BatchBalance,
    GradientSync,
    P2PTransport,
    PipelineSchedule,
    Precision,
)
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS
from autotuner.core.link import LinkHealth
from autotuner.core.space import SearchSpace, default_space, default_trial_space, exchange_ladder
from autotuner.core.workload import LengthDistribution, Workload
from tests.builders import big_job, h100, h100_cluster, tiny_job


def test_a_space_has_an_axis_for_every_field_and_takes_others_by_name() -> None:
    names = [axis.name for axis in fields(SearchSpace)]  # type: ignore[arg-type]  # a dataclass at run time
    assert names == [name for name in OPTIONS if name != "data_parallel_replicate_degree"]
    assert all(SearchSpace().values(name) == OPTIONS[name].searched for name in names)
    space = SearchSpace(precision=(Precision.FP32,)).with_axes(tensor_parallel_degree=(2,))
    assert (space.values("precision"), space.values("tensor_parallel_degree")) == ((Precision.FP32,), (2,))
    with pytest.raises(TypeError, match="tensor_degree"):
        SearchSpace(tensor_degree=(1,))


def test_a_lossy_exchange_brings_the_details_that_it_has_and_nobody_named() -> None:
    assert exchange_ladder({}) == {}
    assert exchange_ladder({"gradient_sync": None}) == {}
    assert exchange_ladder({"gradient_sync": (GradientSync.FULL,)}) == {}
    assert set(exchange_ladder({"gradient_sync": (GradientSync.DILOCO,)})) == {"sync_period", "payload_precision"}
    of_demo = exchange_ladder({"gradient_sync": (GradientSync.FULL, GradientSync.DEMO)})
    assert set(of_demo) == {"sync_top_k", "sync_sign", "payload_precision"}
    assert "sync_sparsity" in exchange_ladder({"gradient_sync": (GradientSync.RANDOM,)})
    named = {"gradient_sync": (GradientSync.DEMO,), "sync_sign": (True,), "sync_top_k": (16,)}
    assert set(exchange_ladder(named)) == {"payload_precision"}


def job_on(cluster: str, stack: str = "torch", *, seq_len: int = 4096, model: str = "llama-3-8b") -> Job:
    workload = Workload(seq_len=seq_len, global_batch_size=64)
    return Job(model=load_model(model), cluster=load_cluster(cluster), workload=workload, stack=load_stack(stack))


def with_h100(**changes: Any) -> Job:
    return replace(big_job(), cluster=h100_cluster(accelerator=h100(**changes)))


@pytest.mark.parametrize(
    ("cluster", "stack", "kernel"),
    [
        ("h100:8", "torch", AttentionKernel.CUDNN),
        ("h100:8", "nemo", AttentionKernel.FLASH_3),
        ("a100-80gb:8", "nemo", AttentionKernel.CUDNN),
        ("a100-80gb:8", "aleph-alpha", AttentionKernel.FLASH),
        ("v100:8", "torch", AttentionKernel.MATH),
        ("cpu:2", "torch", AttentionKernel.FLASH),
    ],
)
def test_the_fastest_kernel_that_device_and_software_both_have_is_tried(
    cluster: str, stack: str, kernel: AttentionKernel
) -> None:
    assert default_space(job_on(cluster, stack)).values("attention_kernel") == (kernel,)


def test_a_kernel_or_format_that_device_or_model_does_not_take_is_not_tried() -> None:
    job = job_on("h100:8")
    long_heads = replace(job, model=replace(job.model, head_dim=256))
    assert default_space(long_heads).values("attention_kernel") == (AttentionKernel.FLASH,)
    space = default_space(with_h100(bf16_flop_per_s=0.0, fp8_flop_per_s=0.0))
    assert (space.values("precision"), space.values("attention_kernel")) == ((Precision.FP32,), (AttentionKernel.MATH,))


@pytest.mark.parametrize(
    ("cluster", "stack", "precisions"),
    [
        ("h100:8", "torch", (Precision.BF16, Precision.FP8)),
        ("h100:8", "nanotron", (Precision.BF16,)),
        ("a100-80gb:8", "torch", (Precision.BF16,)),
        ("cpu:2", "torch", (Precision.FP32,)),
    ],
)
def test_fp8_is_tried_where_device_and_software_multiply_it(
    cluster: str, stack: str, precisions: tuple[Precision, ...]
) -> None:
    assert default_space(job_on(cluster, stack)).values("precision") == precisions


def test_layers_are_compiled_where_the_software_does_that_and_a_sweep_measures_both() -> None:
    assert default_space(job_on("h100:8", "torchtitan")).values("compiled") == (True,)
    assert default_space(job_on("h100:8", "nemo")).values("compiled") == (False,)
    assert default_trial_space(job_on("h100:8")).values("compiled") == (False, True)
    assert default_trial_space(job_on("cpu:2")).values("compiled") == (False,)


@pytest.mark.parametrize(
    ("seq_len", "degrees"), [(4096, (1,)), (8192, (1, 2)), (32768, (1, 2, 4, 8)), (131072, (1, 2, 4, 8, 16, 32))]
)
def test_a_context_rank_keeps_as_many_tokens_as_a_usual_sequence_has(seq_len: int, degrees: tuple[int, ...]) -> None:
    assert default_space(job_on("h100:64", seq_len=seq_len)).values("context_parallel_degree") == degrees


def test_sequences_that_differ_bring_ways_to_balance_them_and_ranks_bound_those_of_context() -> None:
    assert default_space(job_on("h100:4", seq_len=131072)).values("context_parallel_degree") == (1, 2, 4)
    job = big_job()
    unequal = replace(job, workload=replace(job.workload, lengths=LengthDistribution.of([16, 64])))
    assert len(default_space(unequal).values("batch_balance") or ()) == 3
    assert default_space(unequal).values("sequence_packing") == (False, True)
    assert default_space(job).values("batch_balance") == (BatchBalance.NONE,)


def test_a_sweep_tries_fp8_behind_its_loss_gate_alone_and_the_fastest_kernel_beside_the_usual_one() -> None:
    job = job_on("h100:8")
    assert default_trial_space(job).values("precision") == (Precision.BF16, Precision.FP8)
    assert default_trial_space(job, is_gated=False).values("precision") == (Precision.BF16,)
    kernels = default_trial_space(job_on("h100:8")).values("attention_kernel")
    assert kernels == (AttentionKernel.FLASH, AttentionKernel.CUDNN)
    space = default_trial_space(tiny_job())
    assert (space.values("first_stage_less_layers"), space.values("last_stage_less_layers")) == ((0,), (0,))


def test_slow_links_bring_plans_delegates_and_places_where_software_and_size_allow_it() -> None:
    job, cluster = big_job(), h100_cluster(num_nodes=4)
    late = replace(job, cluster=replace(cluster, link_health=(LinkHealth(ends=(2, 3), delay_s=0.06),)))
    known = replace(job, cluster=replace(cluster, link_health=(LinkHealth(ends=(2, 3)),)))
    assert default_space(known) == default_space(replace(job, cluster=cluster))
    space = default_space(late)
    assert PipelineSchedule.ADAPTIVE in (space.values("pipeline_schedule") or ())
    assert space.values("p2p_transport") == tuple(P2PTransport)
    assert space.values("stage_rotation") == (0, 3, 6)  # of 4 ranks the fourth leads, of 8 the seventh
    assert space.values("extra_slack") == (0,)
    late = replace(h100_cluster(num_nodes=4), link_health=(LinkHealth(ends=(2, 3), delay_s=0.06),))
    space = default_space(replace(big_job(), cluster=late, stack=load_stack("megatron")))
    assert PipelineSchedule.ADAPTIVE not in (space.values("pipeline_schedule") or ())
    assert space.values("p2p_transport") == (P2PTransport.INLINE,)
    late = replace(h100_cluster(num_nodes=16), link_health=(LinkHealth(ends=(2, 3), delay_s=0.06),))
    space = default_space(replace(big_job(), cluster=late))
    assert (space.values("rank_order"), space.values("stage_rotation")) == ((0,), (0,))
