"""From what ranks recorded of a step to one timeline of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from trials.measurement.action_log import RecordedStep

_MOST_RANKS = 16
"""Ranks of one timeline."""

_ALL_RANKS = 8
"""Of a job of so many all are shown, of a larger one a rank of every pipeline rank."""

_DIGITS = 6
"""Of seconds: microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecording:
    """What one rank recorded.

    Attributes:
        host: Name of its machine; ranks of one share a clock.
        steps: One per recorded step.
    """

    rank: int
    host: str
    steps: tuple[RecordedStep, ...]


def is_shown(rank: int, layout: Layout) -> bool:
    """Whether a rank of the layout has a lane: every one of a few, else the first of each pipeline rank."""
    if layout.world_size <= _ALL_RANKS:
        return True
    place = place_of(layout, rank)
    pipeline_rank = place.stage
    half, last = _MOST_RANKS // 2, layout.pipeline_parallel_degree - _MOST_RANKS // 2
    return place == (pipeline_rank, 0, 0, 0) and (pipeline_rank < half or pipeline_rank >= last)


def step_timeline(ranks: Sequence[RankRecording], layout: Layout, num_micro_batches: int) -> StepTimeline:
    """The shortest of the steps that they recorded, the one least disturbed, with its repetitions folded."""
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
    """By how much a rank began after the first of its host; those of other hosts left the same barrier."""
    first_ns = min(one.steps[number].began_ns for one in ranks if one.host == own.host)
    return (own.steps[number].began_ns - first_ns) / 1e9


def _blocks(step: RecordedStep, late_s: float) -> list[Block]:
    """Its passes, what completed its gradients behind the last, and the update, with what is averaged within."""
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
