"""PlannedPipeline: runs whatever schedule it is given, another from the next step on if it is told to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.distributed.pipelining.schedules import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FULL_BACKWARD,
    RECV_B,
    RECV_F,
    _Action,
    _PipelineScheduleRuntime,
)

from autotuner.core.errors import InvalidInput
from autotuner.schedules.actions import Kind, Schedule
from trials.pipelines.conditions import LinkConditions
from trials.pipelines.message import Message
from trials.pipelines.stage import PlannedStage
from trials.pipelines.timings import Timings
from trials.pipelines.transport import Transport

_KINDS = {
    Kind.FORWARD: FORWARD,
    Kind.BACKWARD: FULL_BACKWARD,
    Kind.INPUT: BACKWARD_INPUT,
    Kind.WEIGHT: BACKWARD_WEIGHT,
}


def torch_actions(schedule: Schedule) -> dict[int, list[_Action]]:
    """The schedule as torch's runtime reads it, without sends and receives, which the runtime adds."""
    return {
        rank: [_Action(action.stage, _KINDS[action.kind], action.micro_batch) for action in actions]
        for rank, actions in enumerate(schedule.ranks)
    }


class PlannedPipeline(_PipelineScheduleRuntime):
    """The stages of one rank under a schedule of ``autotuner.schedules``.

    ``step`` is that of torch's schedules. Between two steps the schedule, the links' conditions and what the transport
    does can change; all ranks must then follow the same schedule from the same step on.

    Attributes:
        schedule: What the next step runs.
        timings: Of the step before.
    """

    def __init__(
        self,
        stages: Sequence[PlannedStage],
        schedule: Schedule,
        *,
        transport: Transport,
        loss_fn: Callable[..., Tensor] | None = None,
        scale_grads: bool = True,
    ) -> None:
        # when a stage fails, the runtime logs its whole plan before it raises
        logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)
        super().__init__(list(stages), schedule.num_micro_batches, loss_fn=loss_fn, scale_grads=scale_grads)  # type: ignore[no-untyped-call]
        self._planned_stages = tuple(stages)
        self.transport = transport
        for stage in stages:
            stage.goes_by(transport)
        self.timings = Timings()
        self.replan(schedule)

    def replan(self, schedule: Schedule) -> None:
        """Run this schedule from the next step on.

        Raises:
            InvalidInput: It is of other stages, ranks or micro-batches.
        """
        wanted = (self.pp_group_size, self._num_stages, self._n_microbatches)
        found = (len(schedule.ranks), schedule.num_stages, schedule.num_micro_batches)
        if found != wanted:
            rule = "a schedule must keep the pipeline's ranks, stages and micro-batches"
            raise InvalidInput("schedule", found, rule, str(wanted))
        own = {action.stage for action in schedule.ranks[self.rank]}
        if own != {stage.stage_index for stage in self._planned_stages}:
            rule = f"rank {self.rank} holds stages {sorted(stage.stage_index for stage in self._planned_stages)}"
            raise InvalidInput("schedule", sorted(own), rule)
        self.schedule = schedule
        self._prepare_schedule_with_comms(torch_actions(schedule))  # type: ignore[arg-type]  # None is an idle slot

    @property
    def conditions(self) -> LinkConditions:
        """What the next step's messages meet."""
        return self.transport.conditions

    @conditions.setter
    def conditions(self, conditions: LinkConditions) -> None:
        self.transport.conditions = conditions

    @property
    def is_delegated(self) -> bool:
        """Whether delegates send in the next step."""
        return self.transport.is_delegated

    @property
    def dead_peers(self) -> frozenset[int]:
        """Pipeline ranks to which nothing passes any more but through delegates."""
        return self.transport.dead_peers

    def switch(self, *, delegated: bool) -> None:
        """Have delegates send from the next step on, or this rank itself again.

        Raises:
            InvalidInput: There are no delegates.
        """
        self.transport.switch(delegated=delegated)

    def close(self) -> None:
        """End whatever sends for this rank."""
        self.transport.close()

    def _initialize_stages(self, *arguments: Any, **keywords: Any) -> None:
        super()._initialize_stages(*arguments, **keywords)
        self.transport.begin(self._expected())

    def _step_microbatches(self, *arguments: Any, **keywords: Any) -> Any:
        result = super()._step_microbatches(*arguments, **keywords)
        self.transport.finish()
        self.timings = self._taken()
        return result

    def _maybe_compute_loss(self, stage: PlannedStage, *arguments: Any, **keywords: Any) -> None:
        with stage.clock.going_on():
            super()._maybe_compute_loss(stage, *arguments, **keywords)  # type: ignore[no-untyped-call]

    def _expected(self) -> list[tuple[Message, Tensor]]:
        """What this rank receives in a step, in order."""
        stages = {stage.stage_index: stage for stage in self._planned_stages}
        return [
            one
            for action in self.pipeline_order_with_comms[self.rank]
            if action.computation_type in (RECV_F, RECV_B) and action.microbatch_index is not None
            for one in stages[action.stage_index].expected(
                action.microbatch_index, is_gradient=action.computation_type == RECV_B
            )
        ]

    def _taken(self) -> Timings:
        timings = Timings(
            passes=tuple(one for stage in self._planned_stages for one in stage.clock.take()),
            transfers_s={m: s for stage in self._planned_stages for m, s in stage.transfers_s.items()},
            waited_s=sum(stage.waited_s for stage in self._planned_stages),
        )
        for stage in self._planned_stages:
            stage.transfers_s, stage.waited_s = {}, 0.0
        return timings
