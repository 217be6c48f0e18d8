"""StepTimeline: the blocks of work of one step on every rank, and the repeated parts that a chart leaves out.

The schedule simulator makes a timeline from a prediction, and the ranks of a trial make one from a recorded step.
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
    """The kinds of work of a rank in a step. The letters of passes are those of torch.distributed.pipelining."""

    FORWARD = "F"
    BACKWARD = "B"  # gradients of inputs and of weights together
    INPUT = "I"  # gradients of inputs only
    WEIGHT = "W"  # gradients of weights only
    SEND = "send"  # waiting for data from another stage
    SYNC = "sync"  # exposed collectives of the data-parallel group
    OPTIMIZER = "optimizer"

    @property
    def is_pass(self) -> bool:
        """True if the work is a forward or backward pass of a micro-batch."""
        return len(self.value) == 1


class Block(NamedTuple):
    """A time span of one rank's step with one kind of work. Times are seconds from the start of the step."""

    start_s: float
    end_s: float
    kind: BlockKind
    stage: int | None = None
    micro_batch: int | None = None

    @property
    def word(self) -> str:
        """The name of the block in torch's notation: stage, kind and micro-batch (``0F3``).

        A block that is no pass has only its kind as its name (``send``).
        """
        return f"{self.stage}{self.kind}{self.micro_batch}" if self.kind.is_pass else self.kind.value

    @classmethod
    def parse(cls, word: str, start_s: float, end_s: float) -> Self:
        """Return the block with this name and these times.

        Raises:
            InvalidInput: The name is neither a pass, such as ``0F3``, nor another kind of work.
        """
        match = re.fullmatch(r"(\d+)([FBIW])(\d+)", word)
        if match:
            return cls(start_s, end_s, BlockKind(match[2]), int(match[1]), int(match[3]))
        if word not in set(BlockKind) or BlockKind(word).is_pass:
            raise InvalidInput(
                "action",
                word,
                "must be the number of a stage, the letter of a pass (F forward, B backward, I and W its two "
                "parts) and the number of a micro-batch, for example 0F3; or one of send, sync, optimizer",
            )
        return cls(start_s, end_s, BlockKind(word))


@value
class RankSeconds:
    """The seconds of one rank's step by kind of work. Their sum is the time of the whole step.

    Time spans that a drawing leaves out (folds) are included.
    """

    forward_s: float = 0.0
    """Time of forward passes."""
    backward_s: float = 0.0
    """Time of backward passes, without the gradients of weights if the schedule defers these."""
    weight_s: float = 0.0
    """Time of deferred gradients of weights."""
    send_s: float = 0.0
    """Time of waiting for data from other stages, or of sends that block the rank."""
    sync_s: float = 0.0
    """Time of exposed gradient and parameter collectives in the data-parallel group."""
    optimizer_s: float = 0.0
    """Time of the optimizer's step."""
    idle_s: float = 0.0
    """Time of waiting for other ranks, and of everything else."""

    @property
    def total_s(self) -> float:
        """The seconds of the whole step: the sum of all kinds of work and idle time."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@value
class RankTimeline:
    """The blocks of work of one rank in the order of time. Between blocks the rank is idle.

    Blocks inside folds (repeated parts of the step that a drawing leaves out) are missing.
    """

    rank: int
    """Number of the rank. In a prediction, the first rank with this pipeline rank, because all ranks with the same
    pipeline rank do the same work."""
    pipeline_rank: int
    """Pipeline rank of the rank."""
    actions: tuple[str, ...]
    """Names of the rank's blocks of work (``Block.word``)."""
    start_s: tuple[float, ...]
    """Start of each block, in seconds from the start of the step."""
    end_s: tuple[float, ...]
    """End of each block, in seconds from the start of the step."""
    seconds: RankSeconds
    """Seconds of the whole step by kind of work."""

    def __post_init__(self) -> None:
        lengths = {len(self.actions), len(self.start_s), len(self.end_s)}
        if len(lengths) > 1:
            raise InvalidInput(
                "start_s", len(self.start_s), "must have one start time for each action", len(self.actions)
            )
        for word in self.actions:
            Block.parse(word, 0.0, 0.0)

    @property
    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of the rank in order of time."""
        return map(Block.parse, self.actions, self.start_s, self.end_s)


@value
class Fold:
    """A time span of the step that a drawing leaves out, because it repeats what the drawing shows."""

    start_s: float
    end_s: float
    num_micro_batches: int
    """Number of micro-batches that the timeline does not show because all of their blocks are in the fold."""


@value
class StepTimeline:
    """The timeline of one step of a layout, for each pipeline rank."""

    step_s: float
    """Seconds of the whole step."""
    num_micro_batches: int
    """Number of micro-batches of each replica."""
    num_ranks: int
    """Number of ranks of the layout. ``ranks`` may contain fewer of them."""
    ranks: tuple[RankTimeline, ...]
    """Timelines of the ranks, in the order of the pipeline."""
    folds: tuple[Fold, ...] = ()
    """Folds (parts that are left out) in order of time."""


_FIRST = 2
"""Number of micro-batches whose gradients are shown on every rank before the first fold."""

_MOST_LAST = 16
"""Most micro-batches that are shown at the end of a deep pipeline."""

_FEWEST_FOLDED = 4
"""Smallest number of micro-batches in a fold; leaving out fewer saves no room."""


def found_folds(ranks: Sequence[Sequence[Block]], num_micro_batches: int) -> tuple[Fold, ...]:
    """Return the folds of a step: time spans in which every rank repeats its work, so that a drawing may skip them.

    Most schedules have one fold, GPipe has two. The drawing shows the start of the step until every rank has the
    gradients of two micro-batches. It also shows the end of the step, in which the pipeline drains, with as many
    micro-batches as there are pipeline ranks.

    Args:
        ranks: All blocks of each rank, in order of time.
        num_micro_batches: Number of micro-batches of the step.
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
        """Return the fold of the stretch.

        Its number of micro-batches is the smallest number that it hides on any rank.
        """
        return Fold(start_s=self.start_s, end_s=self.end_s, num_micro_batches=min(map(self._hidden, ranks)))

    def _hidden(self, blocks: Sequence[Block]) -> int:
        within = {b.micro_batch for b in blocks if b.start_s >= self.start_s and b.end_s <= self.end_s}
        return len(within - {None})


def outside(blocks: Sequence[Block], folds: Sequence[Fold]) -> tuple[Block, ...]:
    """Return the blocks that a drawing with these folds shows: all blocks that are not completely inside a fold.

    A block that lies partly in a fold is returned as a whole.
    """
    return tuple(b for b in blocks if not any(fold.start_s <= b.start_s and b.end_s <= fold.end_s for fold in folds))


def _stage(blocks: Sequence[Block]) -> int | None:
    return min((b.stage for b in blocks if b.stage is not None), default=None)


def _end_s(blocks: Sequence[Block], kinds: Sequence[BlockKind], micro_batch: int) -> float:
    return max((b.end_s for b in blocks if b.kind in kinds and b.micro_batch == micro_batch), default=0.0)


def _start_s(blocks: Sequence[Block], kinds: Sequence[BlockKind], micro_batch: int) -> float:
    return min((b.start_s for b in blocks if b.kind in kinds and b.micro_batch == micro_batch), default=0.0)
