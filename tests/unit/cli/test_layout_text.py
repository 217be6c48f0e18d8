from __future__ import annotations

import pytest
from hypothesis import given

from autotuner.cli.layout_text import read_layout
from autotuner.domain.choice import ShardLevel
from autotuner.domain.layout import Layout
from autotuner.domain.wire import from_dict
from autotuner.errors import InvalidInput
from tests.properties.strategies import layouts


@given(layouts)
def test_the_words_of_a_layout_are_read_back_as_that_layout(layout: Layout) -> None:
    said = from_dict(Layout, read_layout(str(layout)))
    assert str(said) == str(layout)


def test_words_set_what_they_name_and_nothing_else() -> None:
    assert read_layout("fsdp8 tp2 mb4 sp") == {
        "data_parallel_shard_degree": 8,
        "shard_level": "parameters",
        "tensor_parallel_degree": 2,
        "micro_batch_size": 4,
        "sequence_parallel": True,
    }
    assert from_dict(Layout, read_layout("zero8")).shard_level == ShardLevel.OPTIMIZER
    assert read_layout("") == {}


@pytest.mark.parametrize("word", ["tp", "tp0", "tp-1", "8", "tpx", "flash2", "tp99999999999"])
def test_a_word_that_layouts_do_not_have_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="is no word of a layout"):
        read_layout(f"mb1 {word}")


def test_a_word_that_contradicts_another_is_refused() -> None:
    with pytest.raises(InvalidInput, match="says tensor_parallel_degree again"):
        read_layout("tp2 tp4")


def test_the_nearest_word_is_named() -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: recompute-full"):
        read_layout("recompute-ful")
