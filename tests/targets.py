"""Formats for tests, which write what tests have to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotuner.core.choices import ExportFormat, PipelineSchedule
from autotuner.core.codec import dumps
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.rule import Rule
from autotuner.exports.shared.target import Export, ExportedFile, Target

_SCHEDULES = (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B)


def _write(job: Job, layout: Layout) -> Export:
    arguments = tuple(f"--{name.replace('_', '-')}={int(getattr(layout, name))}" for name in OPTIONS)
    files = (ExportedFile(name="layout.json", text=dumps(layout)), ExportedFile(name="job.txt", text=job.model.name))
    return Export(
        format=ExportFormat.ARGUMENTS,
        layout=layout,
        version="1",
        arguments=arguments,
        files=files,
        environment={"LAYOUT_WORDS": str(layout)},
    )


PLAIN_TARGET = Target(
    format=ExportFormat.ARGUMENTS,
    version="1",
    rules=(
        Rule(
            "plain_without_context",
            "context_parallel_degree",
            lambda x, j: x.context_parallel_degree > 1,
            lambda x, j: "it splits no sequences",
            lambda x, j: 1,
        ),
        Rule(
            "plain_schedules",
            "pipeline_schedule",
            lambda x, j: (
                (x.pipeline_parallel_degree > 1)
                & (x.pipeline_schedule != PipelineSchedule.ONE_F_ONE_B)
                & (x.pipeline_schedule != PipelineSchedule.INTERLEAVED_1F1B)
            ),
            lambda x, j: "it runs 1F1B, interleaved where a rank has several stages",
            lambda x, j: "1f1b",
        ),
        Rule(
            "plain_is_not_compiled",
            "compiled",
            lambda x, j: x.compiled,
            lambda x, j: "it compiles nothing",
            lambda x, j: False,
        ),
    ),
    decided_elsewhere=frozenset({"attention_kernel", "fused_norm"}),
    write=_write,
)
"""A format that says most of a layout as flags, as JSON and in a variable."""


def _of_format(target: Target, format_: ExportFormat, **changes: Any) -> Target:
    return replace(target, format=format_, **changes)


TARGETS_OF_TESTS: Mapping[ExportFormat, Target] = {
    ExportFormat.ARGUMENTS: PLAIN_TARGET,
    ExportFormat.DEEPSPEED: _of_format(PLAIN_TARGET, ExportFormat.DEEPSPEED),
}
