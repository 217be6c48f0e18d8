from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core import wire
from autotuner.core.runs.timeline import Block, BlockKind, StepTimeline
from autotuner.errors import InvalidInput
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
    assert wire.loads(StepTimeline, wire.dumps(timeline)) == timeline
    assert [block.word for block in timeline.ranks[0].blocks] == list(timeline.ranks[0].actions)
