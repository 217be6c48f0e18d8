"""Layouts written as words and read again."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.layouts.choice import ShardLevel
from autotuner.core.layouts.layout import Layout
from autotuner.core.layouts.words import fields_said, layout_of
from autotuner.core.wire import from_dict
from autotuner.errors import InvalidInput
from tests.properties.strategies import layouts


@given(layouts)
def test_the_words_of_every_layout_legal_or_not_are_read_back_as_that_layout(layout: Layout) -> None:
    assert layout_of(str(layout)) == layout


@given(st.lists(layouts, min_size=2, max_size=8, unique=True))
def test_no_two_layouts_have_the_same_words(different: list[Layout]) -> None:
    assert len({str(layout) for layout in different}) == len(different)


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from(("tp2", "fsdp8", "v", "sp", "every0", "fp8")), max_size=6).map(" ".join)
)
def test_any_text_is_a_layout_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert isinstance(layout_of(text), Layout)


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("zero8", ShardLevel.OPTIMIZER),
        ("shardgrad8", ShardLevel.GRADIENTS),
        ("fsdp8", ShardLevel.PARAMETERS),
        ("shard8", ShardLevel.NONE),
    ],
)
def test_the_word_of_the_shard_degree_says_what_is_sharded(word: str, level: ShardLevel) -> None:
    layout = layout_of(word)
    assert (layout.data_parallel_shard_degree, layout.shard_level) == (8, level)
    assert str(layout).split()[0] == word


def test_one_shard_rank_beside_context_ranks_is_said() -> None:
    layout = Layout(context_parallel_degree=2, shard_level=ShardLevel.PARAMETERS)
    assert str(layout) == "fsdp1 cp2 mb1 flash bf16"
    assert layout_of("fsdp1 cp2") == layout


def test_words_are_read_in_upper_and_lower_case() -> None:
    assert fields_said("FSDP8 tp2 Recompute-Full") == fields_said("fsdp8 tp2 recompute-full")


def test_words_set_what_they_name_and_nothing_else() -> None:
    assert fields_said("fsdp8 tp2 mb4 sp") == {
        "data_parallel_shard_degree": 8,
        "shard_level": "parameters",
        "tensor_parallel_degree": 2,
        "micro_batch_size": 4,
        "sequence_parallel": True,
    }
    assert from_dict(Layout, fields_said("zero8")).shard_level == ShardLevel.OPTIMIZER
    assert fields_said("") == {}


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("lessfirst2 lesslast1", {"first_stage_less_layers": 2, "last_stage_less_layers": 1}),
        ("bucket1048576", {"gradient_bucket_bytes": 1048576}),
        ("recompute-full every2", {"recompute": "full", "recompute_every": 2}),
        ("cp2 cp-all_gather", {"context_parallel_degree": 2, "context_exchange": "all_gather"}),
        ("async-tp gathered-logits", {"async_tensor_parallel": True, "loss_parallel": False}),
        (
            "algo-tree proto-ll128 channels8",
            {"collective_algorithm": "tree", "collective_protocol": "ll128", "collective_channels": 8},
        ),
        (
            "fp32-reduce offload compiled",
            dict.fromkeys(("fp32_gradient_reduce", "offload_activations", "compiled"), True),
        ),
        (
            "foreach cudnn fp8_emulated rowwise",
            {
                "optimizer_kernel": "foreach",
                "attention_kernel": "cudnn",
                "precision": "fp8_emulated",
                "fp8_recipe": "rowwise",
            },
        ),
        ("mxfp8", {"precision": "fp8", "fp8_recipe": "mxfp8"}),
        (
            "pp2 v2 dualpipev flex",
            {
                "pipeline_parallel_degree": 2,
                "virtual_stages_per_rank": 2,
                "pipeline_schedule": "dualpipev",
                "attention_kernel": "flex",
            },
        ),
    ],
)
def test_every_option_has_a_word(words: str, fields: dict[str, object]) -> None:
    assert fields_said(words) == fields
    assert set(words.split()) <= set(str(from_dict(Layout, fields)).split())


@pytest.mark.parametrize("word", ["tp", "tp0", "tp-1", "8", "tpx", "flash2", "tp9999999999999"])
def test_a_word_that_layouts_do_not_have_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="is no word of a layout"):
        fields_said(f"mb1 {word}")


def test_a_word_that_contradicts_another_is_refused() -> None:
    with pytest.raises(InvalidInput, match="says tensor_parallel_degree again"):
        fields_said("tp2 tp4")


def test_the_nearest_word_is_named() -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: recompute-full"):
        fields_said("recompute-ful")


def test_a_word_like_none_gets_the_nearest_with_its_number_and_is_told_where_all_are() -> None:
    with pytest.raises(InvalidInput) as caught:
        fields_said("foo8")
    assert caught.value.nearest == "zero8"
    assert "docs/layouts.md" in caught.value.rule
    assert len(str(caught.value)) < 200
