"""The timeline of a recorded step: when each pass began and ended on each rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from autotuner.core.layout import Layout
from autotuner.core.placement import place_of
from autotuner.core.timeline import (
    Block,
    BlockKind,
    Fold,
    RankSeconds,
    RankTimeline,
    StepTimeline,
    found_folds,
    outside,
)
from autotuner.training.pipelines.pipeline import PassLog

# The start and the end of each pass of each micro-batch on this rank, in a recorded step.


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """The forward and backward passes of one rank in a recorded step.

    Their times are seconds from the moment at which all ranks began the step.
    """

    began_ns: int
    """Time at which all ranks began, on the clock of this rank's host."""
    passes: tuple[Block, ...]
    """Passes that the rank computed, in order of time."""
    complete_s: float
    """Seconds after the start at which the rank's gradients were complete."""
    updated_s: float
    """Seconds after the start at which the rank's parameters were updated."""
    done_s: float
    """Seconds after the start at which the rank knew that every rank was done."""
    averaging_s: tuple[float, ...] = ()
    """Start and end of the averaging of parameters over replicas, which is a part of the update; empty if there was
    none."""


class ActionLog:
    """A log of the forward and backward passes of a step. While it is off, each call costs only a comparison.

    On a GPU, the start and the end of a pass are CUDA events in the stream. They are read only after the step, so
    recording them delays no operation.
    """

    def __init__(self, device: torch.device) -> None:
        self._log: PassLog[BlockKind] = PassLog(device)
        self._is_on = False
        self._began_ns = 0
        self._begin: Any = None

    def begin(self) -> None:
        """Start recording a step. Call it at the moment when all ranks begin the step."""
        self._is_on = True
        self._began_ns, self._begin = time.perf_counter_ns(), self._log.clock.now()

    def running(self, kind: BlockKind, stage: int, micro_batch: int) -> AbstractContextManager[None]:
        """Return a context that records one forward or backward pass for the timeline. Run the pass inside it."""
        return self._log.running(kind, stage, micro_batch) if self._is_on else nullcontext()

    def going_on(self) -> AbstractContextManager[None]:
        """Return a context whose time is added to the latest pass.

        It is used to count the loss as part of a forward pass.
        """
        return self._log.going_on() if self._is_on else nullcontext()

    def end(
        self, complete_s: float, updated_s: float, done_s: float, *, averaging_s: tuple[float, ...] = ()
    ) -> RecordedStep:
        """Stop recording, and return the recorded step.

        Args:
            complete_s: Moment at which the gradients were complete, in seconds from the beginning of the step.
            updated_s: Moment at which the parameters were updated.
            done_s: Moment at which the step was over.
            averaging_s: The moments at which replicas began and ended to average parameters; empty if they did not.
        """
        self._is_on = False
        passes = tuple(
            Block(self._since_begin_s(start), self._since_begin_s(end), kind, stage, micro_batch)
            for kind, stage, micro_batch, start, end in self._log.take()
        )
        return RecordedStep(
            began_ns=self._began_ns,
            passes=passes,
            complete_s=complete_s,
            updated_s=updated_s,
            done_s=done_s,
            averaging_s=averaging_s,
        )

    def _since_begin_s(self, moment: Any) -> float:
        return self._log.clock.between_s(self._begin, moment)


# Combines the recordings of all ranks into one timeline of a step.

_MOST_RANKS = 16
"""Maximum number of ranks in one timeline."""

_ALL_RANKS = 8
"""Up to this number of ranks, a timeline shows all of them; in a larger job, one rank for each pipeline rank."""

_DIGITS = 6
"""Number of decimals of seconds: a resolution of microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecording:
    """All steps that one rank has recorded for the timeline, with the name of its machine."""

    rank: int
    host: str
    """Name of the rank's machine; ranks of the same machine share a clock."""
    steps: tuple[RecordedStep, ...]
    """Recorded steps."""


def is_shown(rank: int, layout: Layout) -> bool:
    """Return True if the timeline shows a rank.

    In a small job, the timeline shows all ranks. In a larger job, it shows only the first and the last pipeline stages,
    each with its first rank.
    """
    if layout.world_size <= _ALL_RANKS:
        return True
    place = place_of(layout, rank)
    pipeline_rank = place.stage
    half, last = _MOST_RANKS // 2, layout.pipeline_parallel_degree - _MOST_RANKS // 2
    return place == (pipeline_rank, 0, 0, 0) and (pipeline_rank < half or pipeline_rank >= last)


def step_timeline(ranks: Sequence[RankRecording], layout: Layout, num_micro_batches: int) -> StepTimeline:
    """Return the timeline of the shortest recorded step, with its repeated parts folded.

    The shortest step was disturbed least.

    Args:
        ranks: The recordings of the ranks that the timeline shows.
        layout: The layout of the trial.
        num_micro_batches: Number of micro-batches of a step.
    """
    numbers = range(min(len(one.steps) for one in ranks))
    number = min(numbers, key=lambda index: max(one.steps[index].done_s for one in ranks))
    lanes = [_blocks(one.steps[number], _late_s(one, ranks, number)) for one in ranks]
    step_s = max(one.steps[number].done_s + _late_s(one, ranks, number) for one in ranks)
    folds = tuple(
        Fold(start_s=_round(f.start_s), end_s=_round(f.end_s), num_micro_batches=f.num_micro_batches)
        for f in found_folds(lanes, num_micro_batches)
    )
    return StepTimeline(
        step_s=_round(step_s),
        num_micro_batches=num_micro_batches,
        num_ranks=layout.world_size,
        ranks=tuple(
            _lane(one.rank, place_of(layout, one.rank).stage, blocks, folds, step_s)
            for one, blocks in zip(ranks, lanes, strict=True)
        ),
        folds=folds,
    )


def _late_s(own: RankRecording, ranks: Sequence[RankRecording], number: int) -> float:
    """Return how many seconds later than the first rank of its host a rank began.

    Hosts are not compared with each other, because all of them left the same barrier.
    """
    first_ns = min(one.steps[number].began_ns for one in ranks if one.host == own.host)
    return (own.steps[number].began_ns - first_ns) / 1e9


def _blocks(step: RecordedStep, late_s: float) -> list[Block]:
    """Return the rank's passes, the completion of its gradients, and the update with the averaging inside."""
    passed_s = max((block.end_s for block in step.passes), default=0.0)
    sync = Block(passed_s, step.complete_s, BlockKind.SYNC)
    begins_s, ends_s = step.averaging_s or (step.updated_s, step.updated_s)
    update = Block(step.complete_s, begins_s, BlockKind.OPTIMIZER)
    average = Block(begins_s, ends_s, BlockKind.SYNC)
    rest = Block(ends_s, step.updated_s, BlockKind.OPTIMIZER)
    found = [*step.passes, *(one for one in (sync, update, average, rest) if one.end_s > one.start_s)]
    return [block._replace(start_s=block.start_s + late_s, end_s=block.end_s + late_s) for block in found]


def _lane(rank: int, pipeline_rank: int, blocks: Sequence[Block], folds: Sequence[Fold], step_s: float) -> RankTimeline:
    shown = outside(blocks, folds)
    return RankTimeline(
        rank=rank,
        pipeline_rank=pipeline_rank,
        actions=tuple(block.word for block in shown),
        start_s=tuple(_round(block.start_s) for block in shown),
        end_s=tuple(_round(block.end_s) for block in shown),
        seconds=_seconds(blocks, step_s),
    )


def _seconds(blocks: Sequence[Block], step_s: float) -> RankSeconds:
    spent = {kind: sum(b.end_s - b.start_s for b in blocks if b.kind is kind) for kind in BlockKind}
    return RankSeconds(
        forward_s=_round(spent[BlockKind.FORWARD]),
        backward_s=_round(spent[BlockKind.BACKWARD] + spent[BlockKind.INPUT]),
        weight_s=_round(spent[BlockKind.WEIGHT]),
        sync_s=_round(spent[BlockKind.SYNC]),
        optimizer_s=_round(spent[BlockKind.OPTIMIZER]),
        idle_s=_round(max(0.0, step_s - sum(spent.values()))),
    )


def _round(seconds: float) -> float:
    return round(seconds, _DIGITS)
