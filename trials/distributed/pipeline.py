"""A pipeline rank's stages, and the schedule that runs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage

from autotuner.domain.stages import stages_of_rank
from autotuner.domain.trial import TrialSpec
from trials.distributed.mesh import Grid
from trials.distributed.schedule import scheduled
from trials.model.loss import Loss, logits_per_token
from trials.model.weights import parameter_dtype
from trials.training.data import Batch

__all__ = ["PipelinePasses"]


class PipelinePasses:
    """All forwards and backwards of a step, run by a pipeline schedule over the micro-batches.

    ``reduce`` is told the place among this rank's stages of each whose last backward pass is done.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        spec: TrialSpec,
        grid: Grid,
        device: torch.device,
        *,
        loss: Loss,
        reduce: Callable[[int], None],
    ) -> None:
        indices = stages_of_rank(spec.layout, grid.position("pp"))
        last = spec.layout.num_stages - 1
        self._begins, self._ends = 0 in indices, last in indices
        stages = [
            PipelineStage(
                module,
                index,
                spec.layout.num_stages,
                device,
                input_args=_boundary(spec, grid, begins=index == 0, ends=False),
                output_args=_boundary(spec, grid, begins=False, ends=index == last),
                group=grid.axis("pp").get_group(),
            )
            for index, module in zip(indices, modules, strict=True)
        ]
        num_micro_batches = spec.workload.num_micro_batches(spec.layout)
        self._schedule = scheduled(
            stages,
            spec.layout,
            num_micro_batches,
            loss=lambda logits, labels: loss(logits, labels) / num_micro_batches,
            reduce=reduce,
        )
        # when a stage fails, the schedule logs its whole plan before it raises
        logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)

    def __call__(self, batch: Batch) -> Tensor:
        """Accumulate the gradients of one step; the mean loss of this replica on the last stage, 0 on the others."""
        inputs = (batch.tokens_BS,) if self._begins else ()
        losses: list[Tensor] = []
        target = batch.labels_BS if self._ends else None
        self._schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
        if not losses:
            return torch.zeros((), device=batch.tokens_BS.device)
        return torch.stack([loss.detach() for loss in losses]).sum()


def _boundary(spec: TrialSpec, grid: Grid, *, begins: bool, ends: bool) -> Tensor:
    """Shape and dtype of what enters or leaves a stage, per micro-batch, context and tensor rank, without data.

    Giving it to the stage spares the exchange of shapes, which costs an extra forward and backward.
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
