"""Works of one layout, and a stack that adds nothing to what kernels take."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stack import Stack
from autotuner.costmodel.layer.layer_time import layer_work, output_work
from autotuner.costmodel.layer.work import Work
from tests.builders import big_job, llama_70b

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
