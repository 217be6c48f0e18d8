"""Which of torch's pipeline schedules runs a layout, and when it says that a stage's gradients are all there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining.schedules import (
    REDUCE_GRAD,
    PipelineScheduleMulti,
    PipelineScheduleSingle,
)

from autotuner.domain.choice import PipelineSchedule
from autotuner.domain.layout import Layout

if TYPE_CHECKING:  # private names, of which no more than the annotations need
    from torch.distributed.pipelining.schedules import _Action, _PipelineContext

__all__ = ["Schedule", "scheduled"]

Schedule = PipelineScheduleSingle | PipelineScheduleMulti

_ONE_STAGE = {
    PipelineSchedule.GPIPE: ScheduleGPipe,
    PipelineSchedule.ONE_F_ONE_B: Schedule1F1B,
}
_ANY_STAGES = {
    PipelineSchedule.INTERLEAVED_1F1B: ScheduleInterleaved1F1B,
    PipelineSchedule.ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
    PipelineSchedule.ZBV: ScheduleZBVZeroBubble,
    PipelineSchedule.DUALPIPEV: ScheduleDualPipeV,
}


def scheduled(
    stages: Sequence[PipelineStage],
    layout: Layout,
    num_micro_batches: int,
    *,
    loss: Callable[[Tensor, Tensor], Tensor],
    reduce: Callable[[int], None],
) -> Schedule:
    """The layout's schedule over a rank's stages; ``loss`` is a micro-batch's part of the step's loss.

    ``reduce`` is called with the place among ``stages`` of each whose last backward pass is done: within the step
    where the schedule is a list of actions, between which others' passes run.
    """
    # scale_grads=False: the loss is divided already, as it is without a pipeline
    if layout.pipeline_schedule in _ONE_STAGE:
        (stage,) = stages
        kind = _ONE_STAGE[layout.pipeline_schedule]
        return kind(stage, num_micro_batches, loss_fn=loss, scale_grads=False)
    schedule = _ANY_STAGES[layout.pipeline_schedule](list(stages), num_micro_batches, loss_fn=loss, scale_grads=False)
    places = {stage.stage_index: place for place, stage in enumerate(stages)}

    def on_last_backward(action: _Action, ctx: _PipelineContext) -> None:
        del ctx
        place = places[action.stage_index]
        stages[place].perform_reduce_grad(1)  # FSDP's part of it
        reduce(place)

    schedule.register_custom_function(REDUCE_GRAD, on_last_backward)
    return schedule
