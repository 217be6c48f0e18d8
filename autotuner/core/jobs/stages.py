"""Which layers a pipeline stage holds, and on which rank a stage lies."""

from __future__ import annotations

from autotuner.core.jobs.model import TransformerSpec
from autotuner.core.layouts.choice import PipelineSchedule
from autotuner.core.layouts.layout import Layout

__all__ = [
    "ONE_STAGE_SCHEDULES",
    "SPLIT_SCHEDULES",
    "V_SCHEDULES",
    "layers_per_stage",
    "next_alike",
    "stage_layers",
    "stage_sizes",
    "stages_of_rank",
    "with_layers_per_stage",
]

ONE_STAGE_SCHEDULES = (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B)
"""Schedules of one stage per rank, whose backward passes are whole; a layout without a pipeline has the second."""

SPLIT_SCHEDULES = (
    PipelineSchedule.ZERO_BUBBLE,
    PipelineSchedule.ZBV,
    PipelineSchedule.DUALPIPEV,
    PipelineSchedule.ADAPTIVE,
)
"""Schedules that compute gradients of inputs and of weights apart."""

V_SCHEDULES = (PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV)
"""Schedules whose second round of stages runs through the ranks backwards."""


def stage_layers(layout: Layout, num_layers: int, stage: int) -> range:
    """Layers of a stage: as even as they come, the odd ones on the earliest stages, less what both ends give away.

    The last stage multiplies by the vocabulary as well, so it is the last to get one more.
    """
    ends = layout.first_stage_less_layers, layout.last_stage_less_layers
    sizes = stage_sizes(num_layers, layout.num_stages, *ends)
    start = sum(sizes[:stage])
    return range(start, start + sizes[stage])


def layers_per_stage(x: Layout, num_layers: int) -> int:
    """Layers of a stage in the middle, of one layout or of columns; the ends may have fewer, the earliest one more."""
    return (num_layers + x.first_stage_less_layers + x.last_stage_less_layers) // x.num_stages


def with_layers_per_stage(model: TransformerSpec, layout: Layout, num_layers: int) -> TransformerSpec:
    """The model with other stages in the middle, and the same differences between its stages."""
    missing = (layers_per_stage(layout, model.num_layers) - num_layers) * layout.num_stages
    return model.with_num_layers(model.num_layers - missing)


def next_alike(fewest: int, whole: int, interval: int) -> int:
    """The next number of layers after which every n-th layer lies where it does after the whole."""
    return fewest + (whole - fewest) % interval


def stages_of_rank(layout: Layout, pipeline_rank: int) -> tuple[int, ...]:
    """Stages that a pipeline rank holds, in the order of the model: in turn, or there and back in a V."""
    num_ranks = layout.pipeline_parallel_degree
    if layout.pipeline_schedule in V_SCHEDULES:
        return pipeline_rank, 2 * num_ranks - 1 - pipeline_rank
    return tuple(range(pipeline_rank, layout.num_stages, num_ranks))


def stage_sizes(num_layers: int, num_stages: int, first_less: int, last_less: int) -> tuple[int, ...]:
    """Layers of every stage; the two ends' smaller shares are dealt to all."""
    share, extra = divmod(num_layers + first_less + last_less, num_stages)
    less = {0: first_less}
    less[num_stages - 1] = less.get(num_stages - 1, 0) + last_less
    return tuple(share + (stage < extra) - less.get(stage, 0) for stage in range(num_stages))
