"""Tests of ``autotuner.core.trial_spec``."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.choices import (
    AttentionKernel,
    ExportFormat,
    GradientClip,
    GradientSync,
    PipelineSchedule,
    ShardLevel,
)
from autotuner.core.codec import dumps, from_plain, loads, to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, Trainer, TrialSettings, TrialSpec
from tests.builders import cpu_layout, sweep_request
from tests.trials.launching import spec
from tests.trials.specs import trial_spec

LAMB = OptimizerSettings(name=OptimizerName.LAMB, learning_rate=1e-2)
ADAMW = OptimizerSettings(learning_rate=1e-3)

WHOLE = (
    cpu_layout(),
    cpu_layout(data_parallel_replicate_degree=2),
    cpu_layout(data_parallel_replicate_degree=2, pipeline_parallel_degree=2),
    cpu_layout(pipeline_parallel_degree=2, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE),
)
IN_PARTS = (
    cpu_layout(tensor_parallel_degree=2),
    cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS),
    cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER),
    cpu_layout(
        data_parallel_replicate_degree=2,
        pipeline_parallel_degree=2,
        pipeline_schedule=PipelineSchedule.ZERO_BUBBLE,
    ),
    cpu_layout(data_parallel_replicate_degree=2, gradient_clip=GradientClip.BUCKET),
)


@pytest.mark.parametrize("layout", WHOLE)
def test_lamb_trains_where_ranks_hold_whole_tensors(layout: Layout) -> None:
    assert LAMB.refuses(layout) is None


@pytest.mark.parametrize("layout", IN_PARTS)
def test_lamb_is_refused_with_its_reason_where_ranks_hold_parts(layout: Layout) -> None:
    assert "norm of each whole tensor" in (LAMB.refuses(layout) or "")
    assert ADAMW.refuses(layout) is None


def test_behind_an_exchange_of_less_than_gradients_only_adamw_has_been_tried() -> None:
    lossy = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)
    assert "only AdamW has been tried" in (LAMB.refuses(lossy) or "")
    assert ADAMW.refuses(lossy) is None


def test_the_learning_rate_rises_by_equal_parts_and_stays() -> None:
    warming = OptimizerSettings(learning_rate=0.4, warmup_steps=3)
    assert [warming.learning_rate_at(step) for step in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


@pytest.mark.parametrize(
    ("field", "value"),
    [("learning_rate", 0.0), ("beta1", 1.0), ("beta2", -0.1), ("weight_decay", -1.0), ("warmup_steps", -1)],
)
def test_numbers_that_no_optimizer_takes_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=field):
        OptimizerSettings(**{"learning_rate": 0.1, field: value})


def trainer(**changes: Any) -> Trainer:
    return Trainer(**{"name": "mine", "format": ExportFormat.ARGUMENTS, **changes})


def test_it_reads_all_that_neither_its_format_nor_its_operator_takes_away() -> None:
    one = trainer(fixed={"recompute": "full"})
    assert one.reads("micro_batch_size", {"attention_kernel"})
    assert not one.reads("attention_kernel", {"attention_kernel"})
    assert not one.reads("recompute", ())


def test_it_reads_its_options_alone_also_what_the_format_leaves_to_its_code() -> None:
    one = trainer(options=("attention_kernel",))
    assert one.reads("attention_kernel", {"attention_kernel"})
    assert not one.reads("micro_batch_size", ())


def test_a_fixed_field_has_a_value_of_its_own_kind() -> None:
    one = trainer(fixed={"attention_kernel": "math"})
    assert one.held("attention_kernel") is AttentionKernel.MATH
    assert one.held("recompute") is None


@pytest.mark.parametrize(
    ("changes", "field", "nearest"),
    [
        ({"name": "../x"}, "name", None),
        ({"options": ("tensor_degree",)}, "options.0", "tensor_parallel_degree"),
        ({"fixed": {"precison": "bf16"}}, "fixed.precison", "precision"),
        ({"fixed": {"precision": "bf17"}}, "fixed.precision", "bf16"),
        ({"fixed": {"micro_batch_size": 0}}, "fixed.micro_batch_size", 1),
        ({"options": ("recompute",), "fixed": {"recompute": "full"}}, "fixed.recompute", None),
        ({"values": {"precison": ("bf16",)}}, "values.precison", "precision"),
        ({"values": {"precision": ("bf16", "bf17")}}, "values.precision", "bf16"),
        ({"values": {"recompute": ()}}, "values.recompute", None),
        ({"options": ("micro_batch_size",), "values": {"recompute": ("full",)}}, "values.recompute", None),
        ({"fixed": {"recompute": "full"}, "values": {"recompute": ("full",)}}, "values.recompute", None),
        ({"format": ExportFormat.SBATCH}, "format", None),
    ],
)
def test_what_is_no_trainer_is_refused_with_the_nearest_that_is(
    changes: dict[str, Any], field: str, nearest: object
) -> None:
    with pytest.raises(InvalidInput) as caught:
        trainer(**changes)
    assert (caught.value.field, caught.value.nearest) == (field, nearest)


def test_it_travels_with_its_sweep() -> None:
    fixed, values = {"compiled": True, "recompute_every": 2}, {"shard_level": ("none", "parameters")}
    request = sweep_request(trainer=trainer(fixed=fixed, values=values))
    assert loads(SweepRequest, dumps(request)) == request


def test_a_sweep_that_was_stored_before_there_were_trainers_runs_our_own_decoder() -> None:
    document = to_plain(sweep_request())
    del document["trainer"]
    assert from_plain(SweepRequest, document).trainer is None


def test_a_trial_that_was_written_before_there_were_trainers_runs_our_own_decoder() -> None:
    document = to_plain(spec("old"))
    del document["trainer"], document["cluster"]
    assert from_plain(TrialSpec, document).trainer is None


def test_a_trainer_is_never_run_at_smaller_depths() -> None:
    with pytest.raises(InvalidInput, match="whole") as caught:
        sweep_request(trainer=trainer(), trial=TrialSettings(proxy_layers_per_stage=(1, 2)))
    assert caught.value.field == "trial.proxy_layers_per_stage"


def test_a_trainers_trial_says_where_it_runs() -> None:
    document = to_plain(spec("where"))
    with pytest.raises(InvalidInput, match="with a trainer"):
        from_plain(TrialSpec, {**document, "trainer": to_plain(trainer())})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("warmup_steps", -1),
        ("max_warmup_steps", -1),
        ("measured_steps", 0),
        ("measuring_budget_s", 0.0),
        ("target_interval", -0.01),
        ("profiled_steps", -1),
        ("num_runs", 0),
        ("max_foreign_share", 1.5),
        ("timeout_s", 0.0),
        ("memory_budget_bytes", 0),
        ("max_gradient_norm", 0.0),
        ("proxy_layers_per_stage", (4,)),
        ("proxy_layers_per_stage", (4, 4)),
        ("proxy_layers_per_stage", (0, 2)),
    ],
)
def test_impossible_settings_are_refused_by_name(field: str, value: float | tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        TrialSettings(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("clip", [GradientClip.PRE, GradientClip.BUCKET])
def test_a_trial_that_clips_before_the_reduction_asks_for_a_norm(clip: GradientClip) -> None:
    layout = cpu_layout(data_parallel_replicate_degree=2, gradient_clip=clip)
    with pytest.raises(InvalidInput, match=f"must be set where clip {clip} is tried") as caught:
        trial_spec(layout)
    assert caught.value.field == "settings.max_gradient_norm"
    assert trial_spec(layout, settings=TrialSettings.default_for(layout)).settings.max_gradient_norm == 1.0
