"""One layout as a value and as words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.layouts.choice import (
    AttentionKernel,
    Fp8Recipe,
    GradientClip,
    GradientSync,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.layouts.layout import LAYOUT_FIELDS, OPTIONS, Layout
from autotuner.core.wire import from_dict
from autotuner.errors import InvalidInput


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


def test_stages_are_ranks_times_stages_per_rank() -> None:
    assert Layout(pipeline_parallel_degree=4, virtual_stages_per_rank=3).num_stages == 12


def test_a_plain_layout_names_only_what_it_runs() -> None:
    assert str(Layout()) == "mb1 flash bf16"


def test_every_choice_that_differs_from_plain_is_named() -> None:
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


def test_a_sharded_optimizer_is_not_called_fsdp() -> None:
    assert str(Layout(data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER)).startswith("zero2 ")


@pytest.mark.parametrize("field", [name for name in LAYOUT_FIELDS if name.endswith(("_degree", "_size", "_per_rank"))])
def test_a_degree_of_zero_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_dict(Layout, {field: 0})
    assert (caught.value.field, caught.value.nearest) == (field, 1)


def test_a_norm_that_is_not_fused_is_named() -> None:
    assert str(Layout(fused_norm=False)) == "mb1 unfused-norm flash bf16"


def test_equal_layouts_are_one_key() -> None:
    assert len({Layout(), Layout(micro_batch_size=1), Layout(micro_batch_size=2)}) == 2


def test_narrow_formats_lossy_exchanges_and_early_clips_change_the_mathematics_and_no_other_option_does() -> None:
    changing = {
        (name, value) for name, one in OPTIONS.items() for value in one.values if _with(name, value).changes_mathematics
    }
    assert changing == {
        *(("precision", one) for one in (Precision.FP8, Precision.FP8_EMULATED, Precision.NVFP4)),
        *(("gradient_sync", one) for one in GradientSync if one != GradientSync.FULL),
        *(("gradient_clip", one) for one in (GradientClip.PRE, GradientClip.BUCKET)),
    }


def test_the_reference_of_a_lossy_exchange_sums_all_gradients() -> None:
    layout = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO, sync_top_k=2)
    assert layout.mathematics_reference((Precision.BF16,)) == Layout(data_parallel_replicate_degree=2)


def test_the_reference_of_fp8_is_bf16_where_the_accelerator_multiplies_it() -> None:
    layout = Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.ROWWISE, tensor_parallel_degree=2)
    assert layout.mathematics_reference((Precision.FP32, Precision.BF16)) == Layout(tensor_parallel_degree=2)


def test_the_reference_of_emulated_fp8_without_bf16_sums_gradients_in_fp32_as_it_is() -> None:
    layout = Layout(precision=Precision.FP8_EMULATED, fp32_gradient_reduce=True)
    assert layout.mathematics_reference((Precision.FP32,)) == Layout(precision=Precision.FP32)


def test_a_layout_that_changes_nothing_is_its_own_reference() -> None:
    layout = Layout(precision=Precision.FP32, compiled=True)
    assert layout.mathematics_reference((Precision.BF16,)) == layout


def _with(name: str, value: int) -> Layout:
    return replace(Layout(), **{name: value})  # type: ignore[arg-type]  # each field has its own type
