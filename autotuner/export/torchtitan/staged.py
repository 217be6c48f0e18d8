"""Stages that torchtitan cuts a model into, read as virtual stages and smaller ends."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.stages import ONE_STAGE_SCHEDULES, stage_sizes
from autotuner.export.target import NoteKind
from autotuner.export.torchtitan.settings import Settings

_PER_STAGE = "parallelism.pipeline_parallel_layers_per_stage"
_PARTS = "parallelism.module_fqns_per_model_part"
_MOST_LESS = 8
"""Layers that an end may have fewer, among those that are tried for a list of modules."""


def virtual_stages(settings: Settings, layout: Layout, num_layers: int | None) -> Layout:
    """The layout with the stages that torchtitan makes (``pipeline_llm`` of torchtitan 0.2.2).

    Args:
        settings: What is said of layers per stage, or of each stage's modules.
        layout: With a pipeline, its schedule and its smaller ends.
        num_layers: Of the model; None: it is not known.

    Raises:
        InvalidInput: They are no whole number of stages per rank, or not what the schedule runs.
    """
    per_stage, parts = settings.optional(_PER_STAGE), settings.lists(_PARTS)
    if parts:
        return _of_parts(settings, layout, parts)
    usual = 1 if layout.pipeline_schedule in ONE_STAGE_SCHEDULES else 2
    if per_stage is None:
        if usual > 1:
            settings.assume(_PER_STAGE, "none", "this schedule has two stages per rank where nothing is said")
        return replace(layout, virtual_stages_per_rank=usual)
    if num_layers is None:
        settings.note(NoteKind.CHANGED, _PER_STAGE, f"the model's layers are not known; {usual} per rank is taken")
        return replace(layout, virtual_stages_per_rank=usual)
    shares = num_layers + layout.first_stage_less_layers + layout.last_stage_less_layers
    return _with_stages(layout, -(-shares // per_stage), _PER_STAGE, per_stage)


def _of_parts(settings: Settings, layout: Layout, parts: tuple[tuple[str, ...], ...]) -> Layout:
    """Stages that list their modules, with the smaller ends that deal as many layers to each, where there are such."""
    sizes = tuple(sum(name.startswith("layers.") for name in part) for part in parts)
    staged = _with_stages(layout, len(parts), _PARTS, len(parts))
    for first in range(_MOST_LESS + 1):
        for last in range(_MOST_LESS + 1):
            if stage_sizes(sum(sizes), len(sizes), first, last) == sizes:
                return replace(staged, first_stage_less_layers=first, last_stage_less_layers=last)
    settings.note(NoteKind.CHANGED, _PARTS, "a layout deals layers evenly but for both ends; these stages differ")
    return staged


def _with_stages(layout: Layout, num_stages: int, name: str, value: int) -> Layout:
    per_rank, rest = divmod(num_stages, layout.pipeline_parallel_degree)
    one_stage = layout.pipeline_schedule in ONE_STAGE_SCHEDULES
    if rest or per_rank == 0:
        rule = f"makes {num_stages} stages, which {layout.pipeline_parallel_degree} pipeline ranks do not share evenly"
        raise InvalidInput(name, value, rule)
    if one_stage != (per_rank == 1):
        wanted = "one stage per rank" if one_stage else "two stages per rank or more"
        raise InvalidInput(name, value, f"makes {per_rank} stages per rank; {layout.pipeline_schedule} runs {wanted}")
    return replace(layout, virtual_stages_per_rank=per_rank)
