"""Tests of ``autotuner.core.timeline``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core import codec
from autotuner.core.errors import InvalidInput
from autotuner.core.timeline import Block, BlockKind, StepTimeline, found_folds, outside
from tests.builders import step_timeline


@pytest.mark.parametrize(
    "block",
    [
        Block(0.0, 1.0, BlockKind.FORWARD, 0, 3),
        Block(0.5, 1.0, BlockKind.WEIGHT, 12, 345),
        Block(0.5, 0.75, BlockKind.SEND),
        Block(2.0, 3.0, BlockKind.OPTIMIZER),
    ],
)
def test_a_block_reads_the_word_that_it_writes(block: Block) -> None:
    assert Block.parse(block.word, block.start_s, block.end_s) == block


def test_a_pass_is_written_as_torch_writes_it() -> None:
    assert Block(0.0, 1.0, BlockKind.INPUT, 2, 7).word == "2I7"


@pytest.mark.parametrize("word", ["F", "0X1", "F3", "0F", "receive", "", "0F1 "])
def test_a_word_that_is_no_action_is_refused_with_one_that_is(word: str) -> None:
    with pytest.raises(InvalidInput, match="0F3"):
        Block.parse(word, 0.0, 1.0)


def test_a_lane_whose_moments_are_not_as_many_as_its_actions_is_refused() -> None:
    lane = step_timeline().ranks[0]
    with pytest.raises(InvalidInput, match="one moment per action"):
        replace(lane, end_s=lane.end_s[1:])


def test_a_lane_of_words_that_are_no_actions_is_refused() -> None:
    lane = step_timeline().ranks[0]
    with pytest.raises(InvalidInput, match="0F3"):
        replace(lane, actions=("?", *lane.actions[1:]))


def test_seconds_of_a_rank_sum_to_its_step() -> None:
    timeline = step_timeline()
    assert [rank.seconds.total_s for rank in timeline.ranks] == pytest.approx([timeline.step_s] * 2)  # decimal parts


def test_a_timeline_reads_what_it_writes() -> None:
    timeline = step_timeline()
    assert codec.loads(StepTimeline, codec.dumps(timeline)) == timeline
    assert [block.word for block in timeline.ranks[0].blocks] == list(timeline.ranks[0].actions)


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
