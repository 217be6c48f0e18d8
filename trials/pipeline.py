"""A pipeline rank's stage, and the schedule that runs it."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from autotuner.domain.choice import PipelineSchedule
from autotuner.domain.trial import TrialSpec
from trials.data import Batch
from trials.loss import Loss, vocabulary_part
from trials.mesh import Grid
from trials.weights import parameter_dtype

__all__ = ["PipelinePasses"]


class PipelinePasses:
    """All forwards and backwards of a step, run by a pipeline schedule over the micro-batches."""

    def __init__(self, model: nn.Module, spec: TrialSpec, grid: Grid, device: torch.device, loss: Loss) -> None:
        self._grid = grid
        num_micro_batches = spec.workload.num_micro_batches(spec.layout)
        stage = PipelineStage(
            model,
            grid.position("pp"),
            spec.layout.num_stages,
            device,
            input_args=_boundary(spec, grid, begins=grid.is_first_stage, ends=False),
            output_args=_boundary(spec, grid, begins=False, ends=grid.is_last_stage),
            group=grid.axis("pp").get_group(),
        )
        # scale_grads=False: the loss is divided below, as it is without a pipeline
        self._schedule = _schedule_class(spec.layout.pipeline_schedule)(
            stage,
            num_micro_batches,
            loss_fn=lambda logits, labels: loss(logits, labels) / num_micro_batches,
            scale_grads=False,
        )
        # when a stage fails, the schedule logs its whole plan before it raises
        logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)

    def __call__(self, batch: Batch) -> Tensor:
        """Accumulate the gradients of one step; the mean loss of this replica on the last stage, 0 on the others."""
        inputs = (batch.tokens_BS,) if self._grid.is_first_stage else ()
        losses: list[Tensor] = []
        target = batch.labels_BS if self._grid.is_last_stage else None
        self._schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
        if not losses:
            return torch.zeros((), device=batch.tokens_BS.device)
        return torch.stack([loss.detach() for loss in losses]).sum()


def _schedule_class(schedule: PipelineSchedule) -> type[PipelineScheduleSingle]:
    match schedule:
        case PipelineSchedule.GPIPE:
            return ScheduleGPipe
        case PipelineSchedule.ONE_F_ONE_B:
            return Schedule1F1B
        case _:
            raise AssertionError(f"legality admitted schedule {schedule}")


def _boundary(spec: TrialSpec, grid: Grid, *, begins: bool, ends: bool) -> Tensor:
    """Shape and dtype of what enters or leaves this stage, per micro-batch and tensor rank, without data.

    Giving it to the stage spares the exchange of shapes, which costs an extra forward and backward.
    """
    layout, model = spec.layout, spec.model
    rows, seq_len = layout.micro_batch_size, spec.workload.seq_len
    if begins:
        return torch.empty(rows, seq_len, dtype=torch.long, device="meta")
    dtype = parameter_dtype(layout.precision)
    if ends:
        part = vocabulary_part(model.vocab_size, layout.tensor_parallel_degree, grid.position("tp"))
        return torch.empty(rows, seq_len, part, dtype=dtype, device="meta", requires_grad=True)
    tokens = seq_len // layout.tensor_parallel_degree if layout.sequence_parallel else seq_len
    return torch.empty(rows, tokens, model.hidden_size, dtype=dtype, device="meta", requires_grad=True)
