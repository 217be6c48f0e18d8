"""A layout as command-line arguments in our own words, for a training loop of one's own.

``--tensor-parallel-degree 2 --recompute full --sequence-parallel``: fields of a layout with dashes. A switch is said as
``argparse.BooleanOptionalAction`` reads it. A script reads the fields that it knows; the others keep their defaults.
"""

from __future__ import annotations

from autotuner.domain import wire
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.collectives import collective_environment
from autotuner.domain.layouts.layout import OPTIONS, Layout
from autotuner.domain.layouts.option import Kind
from autotuner.domain.runs.trainer import ExportFormat
from autotuner.export.target import Export, Target

__all__ = ["ARGUMENTS"]

_VERSION = str(wire.SCHEMA_VERSION)
"""Fields of a layout are named by the codec's version."""


def _write(job: Job, layout: Layout) -> Export:
    arguments = ["--seq-len", str(job.workload.seq_len), "--global-batch-size", str(job.workload.global_batch_size)]
    for name in OPTIONS:
        if _is_said(layout, name):
            arguments += _said(name, getattr(layout, name))
    return Export(
        format=ExportFormat.ARGUMENTS,
        version=_VERSION,
        arguments=tuple(arguments),
        environment=collective_environment(layout),
        defaults=("fields of a layout that are not said keep the defaults that docs/layouts.md lists",),
        usage="append them to the command that starts your script under torchrun",
    )


def _is_said(layout: Layout, name: str) -> bool:
    """What differs from its default, and what a script's own default may well differ from."""
    return OPTIONS[name].always_said or getattr(layout, name) != OPTIONS[name].default


def _said(name: str, value: int) -> list[str]:
    flag = name.replace("_", "-")
    if OPTIONS[name].kind == Kind.SWITCH:
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(OPTIONS[name].plain(value))]


ARGUMENTS = Target(format=ExportFormat.ARGUMENTS, version=_VERSION, rules=(), elsewhere=frozenset(), write=_write)
