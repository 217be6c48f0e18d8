"""The page of export formats: what each one cannot express, shown by layouts that break its rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from typing import Any, Literal, cast

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import (
    Choice,
    ContextExchange,
    OptimizerKernel,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.option import Kind
from autotuner.core.rules.rule import Rule
from autotuner.core.workload import Workload
from autotuner.exports.formats import FORMATS
from autotuner.exports.shared.target import Target
from documentation.reference.markdown import head

_INTRODUCTION = """\
An export names each rule that its layout breaks, with what the trainer does instead and the nearest value that the
format can say. A sweep of such a trainer leaves out every layout that breaks a rule. A row of a table is a rule, with
the first layout that was found to break it.

An option that is *left to the code* breaks no rule: the format has no word for it, because the training code decides
it. An export says so, and a sweep holds each such option at one value. `autotuner import` reads the formats that are
read back.
"""

_PLAIN: tuple[dict[str, Any], ...] = (
    {},
    {"tensor_parallel_degree": 2},
    {"tensor_parallel_degree": 2, "sequence_parallel": True},
    {"data_parallel_replicate_degree": 8},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.OPTIMIZER},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.PARAMETERS},
    {"context_parallel_degree": 2},
    {"expert_parallel_degree": 2, "data_parallel_shard_degree": 8, "shard_level": ShardLevel.PARAMETERS},
    {"pipeline_parallel_degree": 2},
    {
        "pipeline_parallel_degree": 8,
        "virtual_stages_per_rank": 2,
        "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B,
    },
    {"pipeline_parallel_degree": 2, "data_parallel_shard_degree": 4, "shard_level": ShardLevel.PARAMETERS},
    {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2},
    {"precision": Precision.FP8},
    {"precision": Precision.FP32},
    {"recompute": Recompute.FULL},
    {"recompute": Recompute.SELECTIVE},
    {"precision": Precision.FP8_EMULATED},
    {"compiled": True},
    {"optimizer_kernel": OptimizerKernel.FOREACH},
    {"context_parallel_degree": 2, "context_exchange": ContextExchange.ALL_TO_ALL},
    {"pipeline_parallel_degree": 2, "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE},
    {"shard_level": ShardLevel.PARAMETERS, "data_parallel_shard_degree": 8, "reshard_after_forward": True},
    {"data_parallel_shard_degree": 8, "shard_level": ShardLevel.GRADIENTS},
)
"""Layouts whose fields are changed one by one, alone and in pairs."""

_COUNTS = (1, 2, 3, 1001)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A rule of an export format, with an example of a layout that breaks it."""

    rule: Rule
    job: Job
    example: Layout | None
    """A layout that breaks the rule; None if none was found."""

    @property
    def row(self) -> str:
        """The row of a Markdown table for this rule; empty if no layout that breaks it was found."""
        if self.example is None:
            return ""
        near = self.rule.nearest(self.example, self.job)
        said = self.rule.message(self.example, self.job)
        return f"| `{self.rule.field}` | `{self.example}` | {said} | {'' if near is None else f'`{near}`'} |"


def exports_page() -> str:
    """Return the Markdown page of export formats. Formats with the same rules share a section."""
    targets = sorted(FORMATS.values(), key=lambda target: (len(target.rules), target.format))
    sections = [_section(target, targets) for target in targets if _leader(target, targets) is target]
    summary = "Every format that `autotuner export` writes, and the layouts that it cannot say."
    return "\n".join([head("Export formats", summary), _INTRODUCTION, *sections])


def _leader(target: Target, targets: Sequence[Target]) -> Target:
    """Return the first format with the same rules."""
    return next(one for one in targets if one.rules == target.rules)


def _section(target: Target, targets: Sequence[Target]) -> str:
    alike = [one for one in targets if one.rules == target.rules]
    lines = [f"## {', '.join(one.format for one in alike)}", *(_facts(one) for one in alike)]
    if not target.rules:
        return "\n".join([*lines, "", "It can say every layout.", ""])
    inner = [one for one in targets if one.rules and one is not target and set(one.rules) < set(target.rules)]
    known = {rule for one in inner for rule in one.rules}
    if inner:
        lines += ["", f"What {inner[-1].format} cannot say, and:"]
    table = ["", "| field | a layout that it cannot say | what it says of it | nearest |", "| --- | --- | --- | --- |"]
    own = [limit for limit in limits(target) if limit.rule not in known]
    rows = [limit.row for limit in own if limit.example is not None]
    unseen = [f"`{limit.rule.name}`" for limit in own if limit.example is None]
    rest = ["", f"Of other models, devices and workloads: {', '.join(unseen)}."] if unseen else []
    return "\n".join([*lines, *table, *rows, *rest, ""])


def _facts(target: Target) -> str:
    line = f"* {target.format}: words of release {target.version}, {'read back' if target.read else 'written only'}"
    left = [f"`{name}`" for name in OPTIONS if name in target.decided_elsewhere]
    return f"{line}; left to code: {', '.join(left)}" if left else line


def limits(target: Target) -> list[Limit]:
    """Return each rule of a format, with a layout that breaks it."""
    jobs = tuple(_jobs())
    return [_limit(rule, jobs) for rule in target.rules]


def _limit(rule: Rule, jobs: tuple[Job, ...]) -> Limit:
    for job, layout in product(jobs, _layouts(rule.field)):
        if rule.broken(layout, job):
            return Limit(rule=rule, job=job, example=layout)
    return Limit(rule=rule, job=jobs[0], example=None)


@cache
def _layouts(field: str) -> tuple[Layout, ...]:
    """Return layouts with each value of a field; many rules are about the same field.

    For a rule about the job instead of a field, return only the plain layouts.
    """
    plain = [Layout(**one) for one in (*_PLAIN, *(one | other for one, other in combinations(_PLAIN, 2)))]
    if field not in OPTIONS:
        return tuple(plain)
    return tuple(replace(layout, **{field: value}) for layout in plain for value in _values(field))


def _values(field: str) -> tuple[Any, ...]:
    option = OPTIONS[field]
    if option.kind == Kind.SWITCH:
        return (not option.default, option.default)
    if option.kind == Kind.CHOICE:
        return tuple(cast("type[Choice]", type(option.default)))
    return tuple(count for count in _COUNTS if option.highest is None or count <= option.highest)


def _jobs() -> Iterator[Job]:
    """Yield jobs with dense and sparse models, on GPUs and on CPU cores, with and without a compiler."""
    for model, cluster, stack, moments in _JOBS:
        yield Job(
            model=load_model(model),
            cluster=load_cluster(cluster),
            workload=Workload(seq_len=8192, global_batch_size=1024, optimizer_state_precision=moments),
            stack=load_stack(stack),
        )


_JOBS: tuple[tuple[str, str, str, Literal["fp32", "bf16"]], ...] = (
    ("llama-3-70b", "h100:8", "torch", "fp32"),
    ("mixtral-8x7b", "h100:8", "torch", "fp32"),
    ("llama-3-70b", "h100:8", "megatron-core", "bf16"),
    ("deepseek-v3", "cpu:8", "torch", "fp32"),
)
