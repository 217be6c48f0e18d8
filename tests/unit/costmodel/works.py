"""Works and memory of one layout, and a stack that adds nothing to what kernels take."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from autotuner.catalog.models import load_model
from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import AttentionKernel, PipelineSchedule, Precision
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.costmodel.layer.layer_time import layer_work, output_work
from autotuner.costmodel.layer.work import Work
from autotuner.costmodel.memory.peak import MemoryColumns, RankMemory, memory, rank_memories
from autotuner.costmodel.shared.stages import fullest_candidates
from tests.builders import big_job, cpu_cluster, cpu_layout, h100_cluster, llama_70b, tiny_model

TENSOR = Layout(tensor_parallel_degree=8)


def columns(*layouts: Layout) -> LayoutColumns:
    return LayoutColumns.from_layouts(layouts)


def layer(layout: Layout, job: Job | None = None, **where: bool) -> Work:
    return layer_work(columns(layout), job or big_job(), **{"sparse": False, **where})


def output(layout: Layout, job: Job | None = None) -> Work:
    return output_work(columns(layout), job or big_job())


def parts(work: Work) -> list[list[float]]:
    """Every part, in the order of the fields."""
    found: list[Floats] = [getattr(work, f.name) for f in fields(Work)]
    return [part.tolist() for part in found]


def first(values: Floats) -> float:
    return float(values[0])


PLAIN = Stack(kernel_launch_s=0.0, matrix_slowdown=1.0, pointwise_traffic=1.0, step_overhead_s=0.0)
"""Launches at once and is as fast as benchmarks of kernels."""


def with_stack(job: Job | None = None, **fields: Any) -> Job:
    return replace(job or big_job(), stack=replace(PLAIN, **fields))


def sparse_job() -> Job:
    experts = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=14336)
    return replace(big_job(), model=llama_70b(experts=experts))


def of(layout: Layout, job: Job) -> MemoryColumns:
    return memory(LayoutColumns.from_layouts([layout]), job)


def total(layout: Layout, job: Job) -> float:
    return float(of(layout, job).total_bytes[0])


def ranks(layout: Layout, job: Job) -> list[RankMemory]:
    x = LayoutColumns.from_layouts([layout])
    return rank_memories(x, job, fullest_candidates(x, job))


def activations(layout: Layout, job: Job) -> float:
    """In a layer's backward pass, when most micro-batches are in flight."""
    return max(float((rank.kept.waiting + rank.kept.passing)[0]) for rank in ranks(layout, job))


def logits(layout: Layout, job: Job) -> float:
    """When the loss holds most."""
    return max(float(rank.logits.passing[0]) for rank in ranks(layout, job))


def without_working_memory(layout: Layout, job: Job) -> float:
    """Saved activations alone: twice the layers save twice as much and work with the same."""
    doubled = replace(job, model=replace(job.model, num_layers=2 * job.model.num_layers))
    return activations(layout, doubled) - activations(layout, job)


def gpt_22b(num_layers: int = 48) -> Job:
    """The 22B model of arXiv 2205.05198, table 3: tensor ranks 8, micro-batch 4; on Megatron-LM."""
    model = TransformerSpec(
        name="gpt-22b",
        num_layers=num_layers,
        hidden_size=6144,
        num_heads=64,
        num_kv_heads=64,
        head_dim=96,
        ffn_size=4 * 6144,
        vocab_size=51200,
        gated_mlp=False,
        norm="layernorm",
    )
    cluster = h100_cluster(num_nodes=1)
    workload = Workload(seq_len=2048, global_batch_size=4)
    return Job(
        model=model,
        cluster=cluster,
        workload=workload,
        stack=Stack(
            selective_recompute=(RecomputePolicy.CORE_ATTN,),
            gathers_again=True,
            fuses_gate=True,
            allocates_gradients=True,
            keeps_logits=True,
            math_in_fp32=False,
        ),
    )


KORTHIKANTI = Layout(tensor_parallel_degree=8, micro_batch_size=4, attention_kernel=AttentionKernel.MATH)
TOKENS_TIMES_HIDDEN = 2048 * 4 * 6144


def one_core(precision: Precision = Precision.FP32, **workload: object) -> tuple[Job, Layout]:
    job = Job(
        model=tiny_model(),
        cluster=cpu_cluster(1),
        workload=replace(Workload(seq_len=64, global_batch_size=8), **workload),  # type: ignore[arg-type]
    )
    return job, Layout(precision=precision, attention_kernel=AttentionKernel.MATH)


def eight_gpus(batch: int = 16) -> Job:
    workload = Workload(seq_len=64, global_batch_size=batch)
    return Job(model=llama_70b(num_layers=8), cluster=h100_cluster(num_nodes=1), workload=workload)


def demo(layout: Layout, num_micro_batches: int) -> Job:
    """Sequences of 128 tokens, one per micro-batch, on as many cores as the layout has ranks."""
    workload = Workload(seq_len=128, global_batch_size=num_micro_batches * layout.data_parallel_degree)
    return Job(model=load_model("llama-demo"), cluster=cpu_cluster(layout.world_size), workload=workload)


ONE_F_ONE_B = cpu_layout(pipeline_parallel_degree=2, attention_kernel=AttentionKernel.FLASH)
GPIPE = replace(ONE_F_ONE_B, pipeline_schedule=PipelineSchedule.GPIPE)


def on_stack(job: Job, **fields: Any) -> Job:
    return replace(job, stack=Stack(**fields))
