"""StepTimeline: the blocks of one step on every rank, and repetitions that a drawing folds.

The schedule simulator makes one of a prediction, ranks make one of a step that they recorded; both have this form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import NamedTuple, Self

from autotuner.core.errors import InvalidInput
from autotuner.core.value import value


class BlockKind(StrEnum):
    """What a rank does meanwhile; passes have the letters of torch.distributed.pipelining."""

    FORWARD = "F"
    BACKWARD = "B"  # gradients of inputs and of weights in one go
    INPUT = "I"  # gradients of inputs only
    WEIGHT = "W"  # gradients of weights only
    SEND = "send"  # waiting for what travels between stages
    SYNC = "sync"  # collectives of the data-parallel group that nothing hides
    OPTIMIZER = "optimizer"

    @property
    def is_pass(self) -> bool:
        """Whether it belongs to a micro-batch."""
        return len(self.value) == 1


class Block(NamedTuple):
    """From one moment to another a rank does one thing; seconds from the begin of the step."""

    start_s: float
    end_s: float
    kind: BlockKind
    stage: int | None = None
    micro_batch: int | None = None

    @property
    def word(self) -> str:
        """As torch writes an action: stage, kind, micro-batch (``0F3``); the kind alone where there is no pass."""
        return f"{self.stage}{self.kind}{self.micro_batch}" if self.kind.is_pass else self.kind.value

    @classmethod
    def parse(cls, word: str, start_s: float, end_s: float) -> Self:
        """The block of that word.

        Raises:
            InvalidInput: It is none.
        """
        match = re.fullmatch(r"(\d+)([FBIW])(\d+)", word)
        if match:
            return cls(start_s, end_s, BlockKind(match[2]), int(match[1]), int(match[3]))
        if word not in set(BlockKind) or BlockKind(word).is_pass:
            raise InvalidInput("action", word, "must be a pass such as 0F3, or one of send, sync, optimizer")
        return cls(start_s, end_s, BlockKind(word))


@value
class RankSeconds:
    """What a rank does in a step, folded parts included: the parts sum to the step."""

    forward_s: float = 0.0
    """Forward passes."""
    backward_s: float = 0.0
    """Gradients; without those of weights where a schedule defers these."""
    weight_s: float = 0.0
    """Deferred gradients of weights."""
    send_s: float = 0.0
    """Waiting for what travels between stages, or sending where that stands in the way."""
    sync_s: float = 0.0
    """Gradient and parameter collectives of the data-parallel group that nothing hides."""
    optimizer_s: float = 0.0
    """The update."""
    idle_s: float = 0.0
    """Waiting for other ranks, and what is none of these."""

    @property
    def total_s(self) -> float:
        """The step."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@value
class RankTimeline:
    """One rank's blocks, in order of time, without those inside folds; what lies between them is idle."""

    rank: int
    """Of the job; of a prediction the first of the pipeline rank, as all of these do the same."""
    pipeline_rank: int
    """Where it lies in the pipeline."""
    actions: tuple[str, ...]
    """What it does (``Block.word``)."""
    start_s: tuple[float, ...]
    """When each begins, from the begin of the step."""
    end_s: tuple[float, ...]
    """When each ends."""
    seconds: RankSeconds
    """The whole step by part."""

    def __post_init__(self) -> None:
        lengths = {len(self.actions), len(self.start_s), len(self.end_s)}
        if len(lengths) > 1:
            raise InvalidInput("start_s", len(self.start_s), "must have one moment per action", len(self.actions))
        for word in self.actions:
            Block.parse(word, 0.0, 0.0)

    @property
    def blocks(self) -> Iterator[Block]:
        """What it does, one after the other."""
        return map(Block.parse, self.actions, self.start_s, self.end_s)


@value
class Fold:
    """A stretch of the step that is left out, because what happens in it happens again and again."""

    start_s: float
    end_s: float
    num_micro_batches: int
    """How many go through it that are shown nowhere."""


@value
class StepTimeline:
    """One step of a layout, rank by rank."""

    step_s: float
    """How long it takes."""
    num_micro_batches: int
    """Of each replica."""
    num_ranks: int
    """How many ranks the layout has; ``ranks`` may be fewer."""
    ranks: tuple[RankTimeline, ...]
    """In the order of the pipeline."""
    folds: tuple[Fold, ...] = ()
    """In order of time."""


_FIRST = 2
"""Micro-batches whose gradients are shown on every rank before a fold begins."""

_MOST_LAST = 16
"""Micro-batches that are shown at the end of however deep a pipeline."""

_FEWEST_FOLDED = 4
"""A fold of fewer micro-batches than this saves no room."""


def found_folds(ranks: Sequence[Sequence[Block]], num_micro_batches: int) -> tuple[Fold, ...]:
    """Where every rank repeats itself: one stretch of most schedules, one of forwards and one of gradients in GPipe.

    Shown are the first micro-batches, until every rank has the gradients of two, and the last: as many as there are
    pipeline ranks, with which the pipeline drains.

    Args:
        ranks: The blocks of each, all of them, in order of time.
        num_micro_batches: Of the step.
    """
    drained_by = min(len({_stage(blocks) for blocks in ranks}), _MOST_LAST)
    last = num_micro_batches - max(_FIRST, drained_by)
    if last - _FIRST < _FEWEST_FOLDED:
        return ()
    forwards, gradients = (
        _Stretch(
            start_s=max(_end_s(blocks, kinds, _FIRST - 1) for blocks in ranks),
            end_s=max(_start_s(blocks, kinds, last) for blocks in ranks),
        )
        for kinds in ((BlockKind.FORWARD,), (BlockKind.BACKWARD, BlockKind.INPUT))
    )
    shared = _Stretch(start_s=max(forwards.start_s, gradients.start_s), end_s=min(forwards.end_s, gradients.end_s))
    found = (shared,) if shared.start_s < shared.end_s else (forwards, gradients)
    folds = (one.fold(ranks) for one in found if one.start_s < one.end_s)
    return tuple(fold for fold in folds if fold.num_micro_batches >= _FEWEST_FOLDED)


@value
class _Stretch:
    start_s: float
    end_s: float

    def fold(self, ranks: Sequence[Sequence[Block]]) -> Fold:
        """With the number of micro-batches of which nothing is left to see in it, on the rank that hides fewest."""
        return Fold(start_s=self.start_s, end_s=self.end_s, num_micro_batches=min(map(self._hidden, ranks)))

    def _hidden(self, blocks: Sequence[Block]) -> int:
        within = {b.micro_batch for b in blocks if b.start_s >= self.start_s and b.end_s <= self.end_s}
        return len(within - {None})


def outside(blocks: Sequence[Block], folds: Sequence[Fold]) -> tuple[Block, ...]:
    """The blocks that a fold does not swallow; those that reach into one, or out of it, stay whole."""
    return tuple(b for b in blocks if not any(fold.start_s <= b.start_s and b.end_s <= fold.end_s for fold in folds))


def _stage(blocks: Sequence[Block]) -> int | None:
    return min((b.stage for b in blocks if b.stage is not None), default=None)


def _end_s(blocks: Sequence[Block], kinds: Sequence[BlockKind], micro_batch: int) -> float:
    return max((b.end_s for b in blocks if b.kind in kinds and b.micro_batch == micro_batch), default=0.0)


def _start_s(blocks: Sequence[Block], kinds: Sequence[BlockKind], micro_batch: int) -> float:
    return min((b.start_s for b in blocks if b.kind in kinds and b.micro_batch == micro_batch), default=0.0)
