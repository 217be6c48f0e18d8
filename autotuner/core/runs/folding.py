"""Which stretches of a step can be left out of its timeline: there the same comes again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.runs.timeline import Block, BlockKind, Fold

__all__ = ["found_folds", "outside"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
