"""Layouts, their words, and columns of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import (
    AttentionKernel,
    Fp8Recipe,
    GradientClip,
    GradientSync,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.codec import from_plain
from autotuner.core.columns import LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout, parse_words
from tests.properties.strategies import layouts


def test_ranks_are_the_product_of_all_degrees_but_the_expert_degree() -> None:
    layout = Layout(
        data_parallel_replicate_degree=2,
        data_parallel_shard_degree=3,
        context_parallel_degree=5,
        tensor_parallel_degree=7,
        pipeline_parallel_degree=11,
        expert_parallel_degree=3,
    )
    assert layout.world_size == 2 * 3 * 5 * 7 * 11
    assert layout.data_parallel_degree == 6
    assert Layout(pipeline_parallel_degree=4, virtual_stages_per_rank=3).num_stages == 12


def test_every_choice_that_differs_from_plain_is_named_and_no_other() -> None:
    assert str(Layout()) == "mb1 flash bf16"
    layout = Layout(
        data_parallel_replicate_degree=2,
        data_parallel_shard_degree=4,
        tensor_parallel_degree=8,
        context_parallel_degree=2,
        expert_parallel_degree=4,
        pipeline_parallel_degree=2,
        virtual_stages_per_rank=5,
        micro_batch_size=3,
        pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
        sequence_parallel=True,
        shard_level=ShardLevel.PARAMETERS,
        reshard_after_forward=True,
        recompute=Recompute.FULL,
        attention_kernel=AttentionKernel.MATH,
        precision=Precision.FP8,
    )
    words = "dp2 fsdp4 tp8 cp2 ep4 pp2 v5 interleaved_1f1b mb3 sp reshard recompute-full math fp8"
    assert str(layout) == words


@pytest.mark.parametrize("field", [name for name in OPTIONS if name.endswith(("_degree", "_size", "_per_rank"))])
def test_a_degree_of_zero_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_plain(Layout, {field: 0})
    assert (caught.value.field, caught.value.nearest) == (field, 1)


def test_narrow_formats_lossy_exchanges_and_early_clips_are_not_numerically_equivalent_and_all_other_options_are() -> (
    None
):
    changing = {
        (name, value) for name, one in OPTIONS.items() for value in one.values if not _with(name, value).is_equivalent
    }
    assert changing == {
        *(("precision", one) for one in (Precision.FP8, Precision.FP8_EMULATED, Precision.NVFP4)),
        *(("gradient_sync", one) for one in GradientSync if one != GradientSync.FULL),
        *(("gradient_clip", one) for one in (GradientClip.PRE, GradientClip.BUCKET)),
    }


def test_the_reference_of_a_layout_sums_all_gradients_in_the_widest_format_that_the_accelerator_has() -> None:
    layout = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO, sync_top_k=2)
    assert layout.equivalent_reference((Precision.BF16,)) == Layout(data_parallel_replicate_degree=2)
    layout = Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.ROWWISE, tensor_parallel_degree=2)
    assert layout.equivalent_reference((Precision.FP32, Precision.BF16)) == Layout(tensor_parallel_degree=2)
    layout = Layout(precision=Precision.FP8_EMULATED, fp32_gradient_reduce=True)
    assert layout.equivalent_reference((Precision.FP32,)) == Layout(precision=Precision.FP32)
    layout = Layout(precision=Precision.FP32, compiled=True)
    assert layout.equivalent_reference((Precision.BF16,)) == layout


def _with(name: str, value: int) -> Layout:
    return replace(Layout(), **{name: value})  # type: ignore[arg-type]  # each field has its own type


@given(layouts)
def test_the_words_of_every_layout_legal_or_not_are_read_back_as_that_layout(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout


@given(st.lists(layouts, min_size=2, max_size=8, unique=True))
def test_no_two_layouts_have_the_same_words(different: list[Layout]) -> None:
    assert len({str(layout) for layout in different}) == len(different)


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from(("tp2", "fsdp8", "v", "sp", "every0", "fp8")), max_size=6).map(" ".join)
)
def test_any_text_is_a_layout_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert isinstance(Layout.parse(text), Layout)


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
    layout = Layout.parse(word)
    assert (layout.data_parallel_shard_degree, layout.shard_level) == (8, level)
    assert str(layout).split()[0] == word


def test_one_shard_rank_beside_context_ranks_is_said() -> None:
    layout = Layout(context_parallel_degree=2, shard_level=ShardLevel.PARAMETERS)
    assert str(layout) == "fsdp1 cp2 mb1 flash bf16"
    assert Layout.parse("fsdp1 cp2") == layout


def test_words_set_what_they_name_and_nothing_else_in_upper_and_lower_case() -> None:
    assert parse_words("fsdp8 tp2 mb4 sp") == {
        "data_parallel_shard_degree": 8,
        "shard_level": "parameters",
        "tensor_parallel_degree": 2,
        "micro_batch_size": 4,
        "sequence_parallel": True,
    }
    assert from_plain(Layout, parse_words("zero8")).shard_level == ShardLevel.OPTIMIZER
    assert parse_words("") == {}
    assert parse_words("FSDP8 tp2 Recompute-Full") == parse_words("fsdp8 tp2 recompute-full")


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
    assert parse_words(words) == fields
    assert set(words.split()) <= set(str(from_plain(Layout, fields)).split())


@pytest.mark.parametrize("word", ["tp", "tp0", "tp-1", "8", "tpx", "flash2", "tp9999999999999"])
def test_a_word_that_layouts_do_not_have_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="is not a word of a layout"):
        parse_words(f"mb1 {word}")


def test_a_word_that_contradicts_another_or_is_like_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="sets tensor_parallel_degree a second time"):
        parse_words("tp2 tp4")
    with pytest.raises(InvalidInput, match="nearest legal value: recompute-full"):
        parse_words("recompute-ful")
    with pytest.raises(InvalidInput) as caught:
        parse_words("foo8")
    assert caught.value.nearest == "zero8"
    assert "docs/reference/layouts.md" in caught.value.rule
    assert len(str(caught.value)) < 200


LAYOUTS = (
    Layout(),
    Layout(tensor_parallel_degree=8, sequence_parallel=True, recompute=Recompute.FULL),
    Layout.parse("pp4 v2 interleaved_1f1b fp8"),
)


def test_rows_are_taken_by_index_mask_and_slice_and_are_the_layouts_that_went_in() -> None:
    columns = LayoutColumns.from_layouts(LAYOUTS)
    assert len(columns) == 3
    assert tuple(columns.row(index) for index in range(3)) == LAYOUTS
    row = LayoutColumns.from_layouts(LAYOUTS).row(1)
    assert type(row.tensor_parallel_degree) is int
    assert type(row.sequence_parallel) is bool
    assert row.recompute is Recompute.FULL
    columns = LayoutColumns.from_layouts(LAYOUTS)
    assert columns.take(np.array([2, 0])).row(0) == LAYOUTS[2]
    assert columns.take(columns.tensor_parallel_degree == 8).row(0) == LAYOUTS[1]
    assert len(columns.take(slice(1, None))) == 2


def test_derived_values_of_columns_are_those_of_the_layouts_and_do_not_wrap_at_32_bits() -> None:
    columns = LayoutColumns.from_layouts(LAYOUTS)
    assert columns.world_size.tolist() == [layout.world_size for layout in LAYOUTS]
    assert columns.data_parallel_degree.tolist() == [layout.data_parallel_degree for layout in LAYOUTS]
    assert columns.num_stages.tolist() == [layout.num_stages for layout in LAYOUTS]
    huge = Layout(data_parallel_replicate_degree=2**20, pipeline_parallel_degree=2**20)
    assert LayoutColumns.from_layouts([huge]).world_size.tolist() == [2**40]


def test_distinct_rows_are_the_combinations_that_occur_however_large_and_many() -> None:
    layouts = [
        Layout(tensor_parallel_degree=t, micro_batch_size=b, sequence_parallel=t > 1, pipeline_parallel_degree=p)
        for p, t, b in ((1, 1, 1), (2, 8, 1), (4, 1, 1), (1, 1, 2), (8, 8, 1))
    ]
    few, which = LayoutColumns.from_layouts(layouts).distinct("tensor_parallel_degree", "micro_batch_size")
    pairs = list(zip(few.tensor_parallel_degree.tolist(), few.micro_batch_size.tolist(), strict=True))
    assert sorted(pairs) == [(1, 1), (1, 2), (8, 1)]
    assert [pairs[index] for index in which] == [(row.tensor_parallel_degree, row.micro_batch_size) for row in layouts]
    few, which = LayoutColumns.from_layouts([]).distinct("precision")
    assert (len(few), len(which)) == (0, 0)
    layouts = [Layout(data_parallel_replicate_degree=2**40 + n, micro_batch_size=2**30 + n % 7) for n in range(50)]
    columns = LayoutColumns.from_layouts(layouts)
    few, which = columns.distinct("data_parallel_replicate_degree", "micro_batch_size")
    assert few.data_parallel_replicate_degree[which].tolist() == columns.data_parallel_replicate_degree.tolist()
    assert few.micro_batch_size[which].tolist() == columns.micro_batch_size.tolist()
    few, which = columns.distinct("micro_batch_size")
    assert few.micro_batch_size[which].tolist() == columns.micro_batch_size.tolist()
    assert len(few) == 7
    few, _ = LayoutColumns.from_layouts(LAYOUTS).distinct("precision", "data_parallel_degree")
    assert len(few) == 2
    assert few.element_bytes.tolist() == [2.0, 2.0]  # follows from what they have
    assert few.take(slice(0, 1)).data_parallel_degree.tolist() == [1]
    for unknown in ("micro_batch_size", "world_size"):
        with pytest.raises(AttributeError, match=unknown):
            getattr(few, unknown)


def test_layouts_with_some_columns_alone_may_have_others_values_in_them_and_widths_follow_formats() -> None:
    columns = LayoutColumns.from_layouts(LAYOUTS)
    plain = columns.only("recompute", "precision", recompute=np.zeros_like(columns.recompute))
    assert plain.recompute.tolist() == [Recompute.NONE] * 3
    assert plain.precision.tolist() == columns.precision.tolist()


def test_activations_are_as_wide_as_the_format_they_are_stored_in() -> None:
    columns = LayoutColumns.from_layouts([Layout(precision=precision) for precision in Precision])
    assert columns.element_bytes.tolist() == [4.0, 2.0, 2.0, 2.0, 2.0]
