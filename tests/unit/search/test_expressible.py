"""What a sweep of a registered trainer may try."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    ExportFormat,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.space import SearchSpace, default_space
from autotuner.core.trial_spec import Trainer
from autotuner.core.workload import Workload
from autotuner.exports.formats import FORMATS
from autotuner.exports.shared.target import Target
from autotuner.search.space.legal import legal_layouts
from autotuner.search.space.trainers import (
    sayable_space,
    searched_by,
    trainer_rules,
    trainer_space,
    trial_rules,
    trial_space,
)
from tests.builders import tiny_job
from tests.targets import PLAIN_TARGET

GPUS = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:8"),
    workload=Workload(seq_len=8192, global_batch_size=64),
)


def trainer(**changes: Any) -> Trainer:
    return Trainer(**{"name": "mine", "format": ExportFormat.ARGUMENTS, **changes})


def space(job: Job = GPUS, *, one: Trainer | None = None, is_gated: bool = True, **axes: Any) -> SearchSpace:
    return trainer_space(job, one or trainer(), PLAIN_TARGET, axes, is_gated=is_gated)


def layouts(job: Job = GPUS, *, one: Trainer | None = None, **axes: Any) -> list[Any]:
    one = one or trainer()
    found = legal_layouts(job, space(job, one=one, **axes), (*RULES, *trainer_rules(one, PLAIN_TARGET)))
    return [found.row(index) for index in range(len(found))]


def test_the_space_is_that_of_predictions_without_what_a_trainer_cannot_be_told() -> None:
    kernel = (AttentionKernel.FLASH,)  # the format says none
    usual = default_space(GPUS).with_axes(compiled=(False,), attention_kernel=kernel, context_parallel_degree=(1,))
    assert space() == usual
    found = layouts(context_parallel_degree=None)
    assert {layout.context_parallel_degree for layout in found} == {1}
    schedules = {layout.pipeline_schedule for layout in found if layout.pipeline_parallel_degree > 1}
    assert schedules <= {PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B}


def test_fields_are_held_at_what_code_decides_and_values_that_are_not_known_refused() -> None:
    narrowed = space(one=trainer(fixed={"recompute": "full", "attention_kernel": "cudnn"}))
    assert narrowed.values("recompute") == (Recompute.FULL,)
    assert narrowed.values("attention_kernel") == (AttentionKernel.CUDNN,)
    assert narrowed.values("fused_norm") == (True,)
    one = trainer(values={"shard_level": ("none", "parameters"), "data_parallel_replicate_degree": (1, 2)})
    assert space(one=one).values("shard_level") == (ShardLevel.NONE, ShardLevel.PARAMETERS)
    assert {layout.data_parallel_replicate_degree for layout in layouts(one=one)} == {1, 2}
    job = tiny_job()
    narrowed = trainer_space(job, trainer(options=("micro_batch_size",)), PLAIN_TARGET, {})
    assert narrowed.values("precision") == default_space(job).values("precision") == (Precision.FP32,)
    one = trainer(values={"shard_level": ("none", "parameters")})
    with pytest.raises(InvalidInput, match="supports only none, parameters for shard_level, not optimizer") as caught:
        space(one=one, shard_level=(ShardLevel.OPTIMIZER,))
    assert (caught.value.field, caught.value.nearest) == ("space.shard_level", ShardLevel.NONE)


def test_a_trainer_that_reads_few_fields_is_tried_with_these_alone() -> None:
    one = trainer(options=("data_parallel_replicate_degree", "micro_batch_size"), fixed={"precision": "bf16"})
    found = layouts(one=one, micro_batch_size=(1, 2))
    assert {layout.micro_batch_size for layout in found} == {1, 2}
    assert {layout.data_parallel_replicate_degree for layout in found} == {8}
    assert len(found) == 2
    one = trainer(options=("data_parallel_shard_degree", "shard_level", "micro_batch_size"))
    found = layouts(one=one)
    assert found
    assert {layout.data_parallel_replicate_degree for layout in found} == {1}


@pytest.mark.parametrize(
    ("axes", "field", "value", "nearest"),
    [
        ({"attention_kernel": (AttentionKernel.MATH,)}, "space.attention_kernel", ["math"], "[flash]"),
        ({"context_parallel_degree": (1, 2)}, "space.context_parallel_degree", 2, 1),
        ({"compiled": (False, True)}, "space.compiled", True, False),
        (
            {"pipeline_parallel_degree": (2,), "pipeline_schedule": (PipelineSchedule.GPIPE,)},
            "space.pipeline_schedule",
            "gpipe",
            "1f1b",
        ),
    ],
)
def test_an_axis_that_the_trainer_cannot_be_told_is_refused_with_the_nearest_that_it_can(
    axes: dict[str, Any], field: str, value: object, nearest: object
) -> None:
    with pytest.raises(InvalidInput, match="trainer mine") as caught:
        space(**axes)
    assert (caught.value.field, caught.value.value, caught.value.nearest) == (field, value, nearest)


def test_values_that_are_held_useless_or_never_run_are_no_reason_to_refuse() -> None:
    assert space(attention_kernel=(AttentionKernel.FLASH,)).values("attention_kernel") == (AttentionKernel.FLASH,)
    assert space(tensor_parallel_degree=(1, 3)).values("tensor_parallel_degree") == (1, 3)
    asked = (ContextExchange.ALL_GATHER,)
    assert space(context_exchange=asked).values("context_exchange") == asked


def test_without_a_gate_no_layout_that_is_not_numerically_equivalent_is_tried() -> None:
    assert Precision.FP8 in (space().values("precision") or ())
    assert Precision.FP8 not in (space(is_gated=False).values("precision") or ())


def test_a_trainer_searches_the_options_that_it_reads_and_the_built_in_decoder_keeps_its_space() -> None:
    assert searched_by(trainer(options=("recompute", "micro_batch_size")), PLAIN_TARGET) == (
        "micro_batch_size",
        "recompute",
    )
    assert "attention_kernel" not in searched_by(trainer(), PLAIN_TARGET)
    assert trial_rules(None) == (*RULES, *TRIAL_RULES)
    job = replace(tiny_job())
    assert trial_space(job, None, {"micro_batch_size": (1,)}).values("micro_batch_size") == (1,)


@pytest.mark.parametrize("target", [one for one in FORMATS.values() if one.format.is_of_a_trainer])
def test_every_format_leaves_a_sweep_layouts_with_several_data_parallel_ranks(target: Target) -> None:
    one = trainer(format=target.format)
    found = legal_layouts(GPUS, trainer_space(GPUS, one, target, {}), (*RULES, *trainer_rules(one, target)))
    assert (found.data_parallel_degree > 1).any()


def test_option_values_with_names_of_the_trainer_are_searched_by_these_names() -> None:
    one, target = trainer(format=ExportFormat.TORCHTITAN), FORMATS[ExportFormat.TORCHTITAN]
    found = legal_layouts(GPUS, trainer_space(GPUS, one, target, {}), (*RULES, *trainer_rules(one, target)))
    several = found.data_parallel_degree * found.context_parallel_degree > 1
    assert (found.fp32_gradient_reduce[several] == 1).all()
    named = trainer_space(GPUS, one, target, {"fp32_gradient_reduce": (True,)})
    assert named.values("fp32_gradient_reduce") == (True,)


# ---------------------------------------------------------------- predictions in the words of a format
def test_a_prediction_in_a_format_tries_what_that_can_say_or_a_sweep_would() -> None:
    found, rules = sayable_space(GPUS, ExportFormat.TORCHTITAN, {})
    assert ShardLevel.OPTIMIZER in (default_space(GPUS).values("shard_level") or ())
    assert ShardLevel.OPTIMIZER not in (found.values("shard_level") or ())
    assert len(legal_layouts(GPUS, found, rules))
    found, rules = sayable_space(GPUS, ExportFormat.TORCHRUN, {})
    assert found == trial_space(GPUS, None, {})
    assert rules == trial_rules(None)


def test_values_of_the_layout_in_use_join_the_space_or_are_fixed_by_code() -> None:
    today = Layout(data_parallel_shard_degree=8, attention_kernel=AttentionKernel.FLASH, recompute_every=2)
    found, _ = sayable_space(GPUS, ExportFormat.MEGATRON_LM, {"recompute_every": (1,)}, today)
    assert found.values("attention_kernel") == (AttentionKernel.CUDNN, AttentionKernel.FLASH)
    assert found.values("recompute_every") == (1,)  # somebody named it
    today = Layout(attention_kernel=AttentionKernel.FLASH_3, compiled=True)
    found, _ = sayable_space(GPUS, ExportFormat.DEEPSPEED, {}, today)
    assert (found.values("attention_kernel"), found.values("compiled")) == ((AttentionKernel.FLASH_3,), (True,))
    with pytest.raises(InvalidInput, match="does not read it"):
        sayable_space(GPUS, ExportFormat.DEEPSPEED, {"compiled": (False,)}, today)
