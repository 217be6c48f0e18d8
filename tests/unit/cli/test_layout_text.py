from __future__ import annotations

import pytest
from hypothesis import given

from autotuner.cli.layout_text import read_layout
from autotuner.domain.layouts.choice import ShardLevel
from autotuner.domain.layouts.layout import Layout
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
    assert read_layout(words) == fields
    assert set(words.split()) <= set(str(from_dict(Layout, fields)).split())


@pytest.mark.parametrize("word", ["tp", "tp0", "tp-1", "8", "tpx", "flash2", "tp9999999999999"])
def test_a_word_that_layouts_do_not_have_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="is no word of a layout"):
        read_layout(f"mb1 {word}")


def test_a_word_that_contradicts_another_is_refused() -> None:
    with pytest.raises(InvalidInput, match="says tensor_parallel_degree again"):
        read_layout("tp2 tp4")


def test_the_nearest_word_is_named() -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: recompute-full"):
        read_layout("recompute-ful")


def test_a_word_like_none_gets_the_nearest_with_its_number_and_is_told_where_all_are() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_layout("foo8")
    assert caught.value.nearest == "zero8"
    assert "docs/layouts.md" in caught.value.rule
    assert len(str(caught.value)) < 200
