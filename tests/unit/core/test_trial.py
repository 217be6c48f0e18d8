"""Trials, and what their processes are told."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from autotuner.core.choices import AttentionKernel, GradientClip, GradientSync, PipelineSchedule, ShardLevel
from autotuner.core.codec import dumps, from_plain, loads, to_plain
from autotuner.core.convergence_gate import GateOutcome, GateResult, LossGate
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import PastTrial, Trial, TrialState, time_to_loss_s
from autotuner.core.trial_spec import ExportFormat, OptimizerName, OptimizerSettings, Trainer, TrialSettings, TrialSpec
from tests.builders import big_job, cpu_layout, measurement, prediction, sweep_request
from tests.trials.launching import spec
from tests.trials.specs import trial_spec

GATE = LossGate(num_lossy_steps=20)
DILOCO = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DILOCO)
PASSED = GateResult(
    outcome=GateOutcome.PASSED,
    detail="within 2 %",
    reference=cpu_layout(data_parallel_replicate_degree=2),
    tolerance=0.02,
    reference_steps=32,
    steps_to_loss=40.0,
)


def trial(layout: Layout, gate: GateResult | None = None) -> Trial:
    return Trial(
        id="sw-0",
        sweep_id="sw",
        number=0,
        state=TrialState.COMPLETE,
        layout=layout,
        prediction=prediction(),
        measurement=measurement(step_time_s=0.5),
        gate=gate,
    )


def test_time_to_the_loss_is_that_of_the_steps_of_the_gate() -> None:
    assert time_to_loss_s(trial(cpu_layout()), GATE) == 10.0
    assert time_to_loss_s(trial(DILOCO, PASSED), GATE) == pytest.approx(20 * 40 / 32 * 0.5)  # but for rounding
    assert time_to_loss_s(trial(cpu_layout()), replace(GATE, enabled=False)) is None


@pytest.mark.parametrize(
    "gate", [None, replace(PASSED, outcome=GateOutcome.FAILED), replace(PASSED, steps_to_loss=None)]
)
def test_nothing_is_known_of_a_layout_that_no_gate_passed(gate: GateResult | None) -> None:
    assert time_to_loss_s(trial(DILOCO, gate), GATE) is None


LEGAL = {
    (TrialState.QUEUED, TrialState.RUNNING),
    (TrialState.QUEUED, TrialState.CANCELLED),
    (TrialState.RUNNING, TrialState.COMPLETE),
    (TrialState.RUNNING, TrialState.PRUNED),
    (TrialState.RUNNING, TrialState.FAILED),
    (TrialState.RUNNING, TrialState.CANCELLED),
    (TrialState.RUNNING, TrialState.QUEUED),  # interrupted, to be tried again
    (TrialState.RUNNING, TrialState.WAITING),
    *((TrialState.WAITING, new) for new in TrialState),  # another reason to wait, or any end of a started trial
    (TrialState.CANCELLED, TrialState.QUEUED),  # cut short by the end of a sweep that is opened again
}


@pytest.mark.parametrize(("old", "new"), sorted(LEGAL))
def test_a_legal_step_leads_to_the_new_state(old: TrialState, new: TrialState) -> None:
    assert old.to(new) is new


@pytest.mark.parametrize(("old", "new"), sorted(set(product(TrialState, TrialState)) - LEGAL))
def test_every_other_step_is_a_conflict_that_names_both(old: TrialState, new: TrialState) -> None:
    with pytest.raises(Conflict, match=f"a {old.value} trial cannot become {new.value}"):
        old.to(new)


_JOB = big_job()
_TRIAL = PastTrial(
    job=_JOB,
    layout=Layout(data_parallel_shard_degree=_JOB.cluster.world_size),
    step_time_s=1.0,
    sweep_id="s",
    finished_at=0.0,
)


def test_a_past_trial_has_the_ranks_of_its_cluster_and_a_step_time_or_ran_out_of_memory() -> None:
    assert replace(_TRIAL, step_time_s=None).ran_out_of_memory
    assert not _TRIAL.ran_out_of_memory
    with pytest.raises(InvalidInput, match="step_time_s"):
        replace(_TRIAL, step_time_s=0.0)
    with pytest.raises(InvalidInput, match="ranks"):
        replace(_TRIAL, layout=Layout())


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
    Layout.parse("dp2 pp2 zero_bubble math fp32"),
    cpu_layout(data_parallel_replicate_degree=2, gradient_clip=GradientClip.BUCKET),
)


@pytest.mark.parametrize("layout", WHOLE)
def test_lamb_trains_where_ranks_hold_whole_tensors(layout: Layout) -> None:
    assert LAMB.refuses(layout) is None


@pytest.mark.parametrize("layout", IN_PARTS)
def test_lamb_is_refused_with_its_reason_where_ranks_hold_parts(layout: Layout) -> None:
    assert "norm of each whole tensor" in (LAMB.refuses(layout) or "")
    assert ADAMW.refuses(layout) is None


def test_behind_an_exchange_of_less_only_adamw_runs_and_its_rate_rises_by_equal_parts() -> None:
    lossy = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)
    assert "only AdamW has been tried" in (LAMB.refuses(lossy) or "")
    assert ADAMW.refuses(lossy) is None
    warming = OptimizerSettings(learning_rate=0.4, warmup_steps=3)
    assert [warming.learning_rate_at(step) for step in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


def trainer(**changes: Any) -> Trainer:
    return Trainer(**{"name": "mine", "format": ExportFormat.ARGUMENTS, **changes})


def test_a_trainer_reads_what_neither_its_format_nor_its_operator_takes_away() -> None:
    one = trainer(fixed={"recompute": "full"})
    assert one.reads("micro_batch_size", {"attention_kernel"})
    assert not one.reads("attention_kernel", {"attention_kernel"})
    assert not one.reads("recompute", ())
    one = trainer(options=("attention_kernel",))
    assert one.reads("attention_kernel", {"attention_kernel"})
    assert not one.reads("micro_batch_size", ())
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


def test_a_trainer_travels_with_its_sweep_and_before_there_were_any_our_own_decoder_ran() -> None:
    fixed, values = {"compiled": True, "recompute_every": 2}, {"shard_level": ("none", "parameters")}
    request = sweep_request(trainer=trainer(fixed=fixed, values=values))
    assert loads(SweepRequest, dumps(request)) == request
    document = to_plain(sweep_request())
    del document["trainer"]
    assert from_plain(SweepRequest, document).trainer is None
    document = to_plain(spec("old"))
    del document["trainer"], document["cluster"]
    assert from_plain(TrialSpec, document).trainer is None
    with pytest.raises(InvalidInput, match="whole") as caught:
        sweep_request(trainer=trainer(), trial=TrialSettings(proxy_layers_per_stage=(1, 2)))
    assert caught.value.field == "trial.proxy_layers_per_stage"
    document = to_plain(spec("where"))
    with pytest.raises(InvalidInput, match="with a trainer"):
        from_plain(TrialSpec, {**document, "trainer": to_plain(trainer())})


@pytest.mark.parametrize("clip", [GradientClip.PRE, GradientClip.BUCKET])
def test_a_trial_that_clips_before_the_reduction_asks_for_a_norm(clip: GradientClip) -> None:
    layout = cpu_layout(data_parallel_replicate_degree=2, gradient_clip=clip)
    with pytest.raises(InvalidInput, match=f"must be set where clip {clip} is tried") as caught:
        trial_spec(layout)
    assert caught.value.field == "settings.max_gradient_norm"
    assert trial_spec(layout, settings=TrialSettings.default_for(layout)).settings.max_gradient_norm == 1.0
