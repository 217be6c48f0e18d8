"""The stages of a pipeline rank, run by one of torch's schedules."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not by name
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

from autotuner.core.choices import P2PTransport, PipelineSchedule
from autotuner.core.layout import Layout
from autotuner.core.placement import place_of
from autotuner.core.stages import stages_of_rank
from autotuner.core.timeline import BlockKind
from autotuner.core.trial_spec import TrialSpec
from autotuner.schedules.planner import named_schedule, plan
from autotuner.schedules.schedule import Kind
from autotuner.schedules.schedule import Schedule as Planned
from autotuner.schedules.simulate import PassTimes
from autotuner.training.pipelines.channels import Channel, Neighbourhood
from autotuner.training.pipelines.inline import InlineTransport
from autotuner.training.pipelines.pipeline import ResilientPipeline, TimedStage
from autotuner.training.pipelines.standby import Standby
from autotuner.training.pipelines.transport import Transport
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.tensor import logits_per_token
from autotuner.trials.measurement.step_timeline import ActionLog
from autotuner.trials.model.decoder import Loss, parameter_dtype

if TYPE_CHECKING:
    from torch.distributed.pipelining.schedules import _Action, _PipelineContext, _PipelineScheduleRuntime
    from torch.distributed.pipelining.stage import _PipelineStageBase


def is_planned(spec: TrialSpec) -> bool:
    """Return True if the pipeline runs our own list of planned actions and not one of torch's own schedules.

    It is True if the schedule is adaptive, if delegates (helper processes) send the messages, or if the trial emulates
    slow links. The messages of torch's own schedules cannot be delayed. Our transport sends the messages of a list of
    actions, and can delay them (see ``LinkConditions``).
    """
    layout = spec.layout
    by_layout = layout.pipeline_schedule == PipelineSchedule.ADAPTIVE or layout.p2p_transport == P2PTransport.DELEGATED
    return (by_layout or spec.has_slow_links) and layout.pipeline_parallel_degree > 1


def start_standby(spec: TrialSpec, rank: int, device: torch.device, store: Store | None) -> Standby | None:
    """Start the helper processes of a planned pipeline, and return the object that sends through them.

    Call it before the process group is initialised: the helpers are forked, so this process must not have threads yet
    and must not be bound to a core. The result is None if torch's own schedule runs.
    """
    layout = spec.layout
    if not is_planned(spec):
        return None
    place, num_micro_batches = place_of(layout, rank), spec.workload.num_micro_batches(layout)
    ranks, stages_per_rank = layout.pipeline_parallel_degree, layout.virtual_stages_per_rank
    schedule = named_schedule(layout.pipeline_schedule, ranks, stages_per_rank, num_micro_batches)
    return Standby.start(
        Neighbourhood.of(schedule, place.stage, f"{place.replica}.{place.shard}.{place.tensor}"),
        num_delegates=layout.num_delegates if layout.p2p_transport == P2PTransport.DELEGATED else 0,
        timeout_s=spec.settings.timeout_s,
        store=store,
        pinned=device.type == "cuda",
    )


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

_BLOCKS = {
    Kind.FORWARD: BlockKind.FORWARD,
    Kind.BACKWARD: BlockKind.BACKWARD,
    Kind.INPUT: BlockKind.INPUT,
    Kind.WEIGHT: BlockKind.WEIGHT,
}


def pipeline_schedule(
    modules: Sequence[nn.Module],
    spec: TrialSpec,
    grid: Grid,
    *,
    loss: Loss,
    start_reduction: Callable[[int], None],
    log: ActionLog,
    standby: Standby | None = None,
) -> Schedule:
    """Return the layout's pipeline schedule over this rank's stages.

    Args:
        modules: This rank's stages, in the order of the model.
        spec: The specification of the trial.
        grid: The grid of ranks, with this rank's place on it.
        loss: Function that returns the part of the step's loss that a micro-batch contributes.
        start_reduction: Called with the index of a stage in ``modules`` when its last backward pass is done. A planned
            schedule calls it while the passes of other stages still run.
        log: Records every pass.
        standby: Sends the messages of a planned pipeline; None: the process group of the pipeline sends them.
    """
    layout, num_micro_batches = spec.layout, spec.workload.num_micro_batches(spec.layout)

    def micro_batch_loss(logits: Tensor, labels: Tensor) -> Tensor:
        with log.going_on():
            return loss(logits, labels)

    if is_planned(spec):
        planned = _planned_stages(modules, spec, grid, log)
        plain = plain_schedule(layout, num_micro_batches)
        if standby is None:
            around = Neighbourhood.of(plain, grid.position("pp"))
            channels = {peer: Channel(grid.pipeline, peer) for peer in around.peers}
            transport: Transport = InlineTransport(around.rank, channels, num_micro_batches, seed=spec.seed)
        else:
            transport = standby.transport(plain, grid.device, is_delegated=True, seed=spec.seed)
        pipeline = ResilientPipeline(
            planned,
            plain,
            transport=transport,
            loss_fn=micro_batch_loss,
            scale_grads=False,
        )
        _reduce_after_last_backward(pipeline, planned, start_reduction)
        return pipeline
    stages = _stages(modules, spec, grid, log)
    # when a stage fails, the schedule logs its whole plan before it raises
    logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)
    # scale_grads=False: the loss is divided already, as it is without a pipeline
    if layout.pipeline_schedule in _ONE_STAGE:
        (stage,) = stages
        kind = _ONE_STAGE[layout.pipeline_schedule]
        return kind(stage, num_micro_batches, loss_fn=micro_batch_loss, scale_grads=False)
    schedule = _ANY_STAGES[layout.pipeline_schedule](
        stages, num_micro_batches, loss_fn=micro_batch_loss, scale_grads=False
    )
    _reduce_after_last_backward(schedule, stages, start_reduction)
    return schedule


class _LoggedStage(PipelineStage):
    """A stage that logs its passes; receives are waited for before a pass, so they are not part of its time."""

    def __init__(self, log: ActionLog, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._log = log

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **keywords: Any) -> Any:
        """Run and log a forward pass."""
        with self._log.running(BlockKind.FORWARD, self.stage_index, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *arguments, **keywords)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Run and log a backward pass: gradients of inputs, and those of weights too if ``full_backward``."""
        kind = BlockKind.BACKWARD if full_backward else BlockKind.INPUT
        with self._log.running(kind, self.stage_index, bwd_chunk_id):
            super().backward_one_chunk(
                bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
            )

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Run and log the part of a backward pass that computes gradients of weights."""
        with self._log.running(BlockKind.WEIGHT, self.stage_index, bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)


def plain_schedule(layout: Layout, num_micro_batches: int) -> Planned:
    """Return the schedule of the layout without any measurement: no link is known to be slow, and no pass was timed."""
    if layout.pipeline_schedule != PipelineSchedule.ADAPTIVE:
        ranks, stages_per_rank = layout.pipeline_parallel_degree, layout.virtual_stages_per_rank
        return named_schedule(layout.pipeline_schedule, ranks, stages_per_rank, num_micro_batches)
    times = PassTimes.equal(layout.pipeline_parallel_degree, 1.0, 1.0, 1.0)
    return plan(times, num_micro_batches, extra_slack=layout.extra_slack).schedule


def _stages(modules: Sequence[nn.Module], spec: TrialSpec, grid: Grid, log: ActionLog) -> list[_PipelineStageBase]:
    return [
        _LoggedStage(log, module, index, spec.layout.num_stages, grid.device, **_ends(spec, grid, index))
        for index, module in zip(stages_of_rank(spec.layout, grid.position("pp")), modules, strict=True)
    ]


def _planned_stages(modules: Sequence[nn.Module], spec: TrialSpec, grid: Grid, log: ActionLog) -> list[TimedStage]:
    def watch_pass(kind: Kind, stage: int, micro_batch: int) -> AbstractContextManager[None]:
        return log.running(_BLOCKS[kind], stage, micro_batch)

    return [
        TimedStage(
            module, index, spec.layout.num_stages, grid.device, watch_pass=watch_pass, **_ends(spec, grid, index)
        )
        for index, module in zip(stages_of_rank(spec.layout, grid.position("pp")), modules, strict=True)
    ]


def _ends(spec: TrialSpec, grid: Grid, index: int) -> dict[str, Any]:
    """Return a stage's constructor arguments for its input, its output and its pipeline group."""
    return {
        "input_args": _boundary(spec, grid, begins=index == 0, ends=False),
        "output_args": _boundary(spec, grid, begins=False, ends=index == spec.layout.num_stages - 1),
        "group": grid.pipeline,
    }


def _reduce_after_last_backward(
    schedule: _PipelineScheduleRuntime, stages: Sequence[_PipelineStageBase], start_reduction: Callable[[int], None]
) -> None:
    local_index = {stage.stage_index: local for local, stage in enumerate(stages)}

    def on_last_backward(action: _Action, ctx: _PipelineContext) -> None:
        del ctx
        index = local_index[action.stage_index]
        stages[index].perform_reduce_grad(1)  # FSDP's part of it
        start_reduction(index)

    schedule.register_custom_function(REDUCE_GRAD, on_last_backward)


def _boundary(spec: TrialSpec, grid: Grid, *, begins: bool, ends: bool) -> Tensor:
    """Return an empty tensor with the shape and dtype of a stage's input or output on this rank, per micro-batch.

    With it, a stage need not exchange shapes with others, which would cost an extra forward and backward pass.
    """
    layout, model = spec.layout, spec.model
    rows, tokens = layout.micro_batch_size, spec.workload.seq_len // layout.context_parallel_degree
    if begins:
        return torch.empty(rows, tokens, dtype=torch.long, device="meta")
    width = model.hidden_size
    if ends:
        width = logits_per_token(layout, model.vocab_size, grid.position("tp"))
    elif layout.sequence_parallel:
        tokens //= layout.tensor_parallel_degree
    dtype = parameter_dtype(layout.precision)
    return torch.empty(rows, tokens, width, dtype=dtype, device="meta", requires_grad=True)
