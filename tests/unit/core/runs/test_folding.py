from __future__ import annotations

from autotuner.core.runs.folding import found_folds, outside
from autotuner.core.runs.timeline import Block, BlockKind

F, B = BlockKind.FORWARD, BlockKind.BACKWARD


def accumulated(count: int) -> list[Block]:
    """One rank: a second forward and a second back for each micro-batch."""
    return [Block(2.0 * i + k, 2.0 * i + k + 1, kind, 0, i) for i in range(count) for k, kind in enumerate((F, B))]


def all_forward_first(count: int) -> list[Block]:
    """One rank: all forwards, then all backwards."""
    return [
        Block(k * count + i, k * count + i + 1.0, kind, 0, i) for k, kind in enumerate((F, B)) for i in range(count)
    ]


def test_few_micro_batches_are_not_folded() -> None:
    assert found_folds([accumulated(7)], 7) == ()


def test_what_repeats_is_folded_between_the_first_two_and_the_last_two() -> None:
    (fold,) = found_folds([accumulated(50)], 50)
    assert (fold.start_s, fold.end_s, fold.num_micro_batches) == (4.0, 96.0, 46)
    shown = outside(accumulated(50), (fold,))
    assert sorted({block.micro_batch for block in shown if block.micro_batch is not None}) == [0, 1, 48, 49]


def test_forwards_that_all_come_first_are_folded_by_themselves() -> None:
    folds = found_folds([all_forward_first(50)], 50)
    assert [(fold.start_s, fold.end_s, fold.num_micro_batches) for fold in folds] == [(2.0, 48.0, 46), (52.0, 98.0, 46)]


def test_a_block_that_reaches_into_a_fold_stays_whole() -> None:
    (fold,) = found_folds([accumulated(50)], 50)
    across = Block(fold.start_s - 1, fold.start_s + 1, F, 0, 7)
    assert outside([across], (fold,)) == (across,)
