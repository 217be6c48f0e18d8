"""Sweeps, their jobs and their trials."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from autotuner.core.announcement import AnnouncementKind, announce_end
from autotuner.core.choices import (
    AttentionKernel,
    ExportFormat,
    GradientClip,
    GradientSync,
    PipelineSchedule,
    ShardLevel,
)
from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps, from_plain, loads, to_plain
from autotuner.core.comparison import Challenge, SequentialTest
from autotuner.core.convergence_gate import ConvergenceGate, GateOutcome, GateResult
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout
from autotuner.core.objective import Objective
from autotuner.core.run import RunState, StopReason
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.study import LossCurve, Range, front
from autotuner.core.sweep import Budget, Progress, SweepOverview, SweepRequest, job_key
from autotuner.core.trial import PastTrial, Trial, TrialState, time_to_loss_s
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, Trainer, TrialSettings, TrialSpec
from autotuner.core.upkeep import RegressionGateRequest, gate_content, gate_key
from autotuner.core.workload import Workload
from tests.builders import (
    big_job,
    cpu_cluster,
    cpu_layout,
    measurement,
    prediction,
    sweep_request,
    tiny_job,
    tiny_model,
)
from tests.studies import candidate, curve, reached_trial, study_request, study_trial
from tests.trials.launching import spec
from tests.trials.specs import trial_spec


def measured_cluster(rate: float) -> Cluster:
    """A machine whose cores were just measured."""
    cluster = cpu_cluster()
    core = replace(cluster.accelerator, fp32_flop_per_s=rate, bf16_flop_per_s=2 * rate, peak_is_measured=True)
    return replace(cluster, accelerator=core)


def test_space_budget_seed_names_and_measured_rates_have_no_part_in_the_key_of_a_job() -> None:
    challenge = Challenge(incumbent=Layout())
    asked = sweep_request(budget=Budget(num_trials=99), seed=5, name="nightly", challenge=challenge, uses_history=False)
    assert job_key(asked) == job_key(sweep_request())
    renamed = sweep_request(job=tiny_job(model=tiny_model(name="ours"), stack=Stack(matrix_slowdown=1.5)))
    assert job_key(renamed) == job_key(sweep_request())
    first, second = (sweep_request(job=tiny_job(cluster=measured_cluster(rate))) for rate in (100e9, 101e9))
    assert job_key(first) == job_key(second)
    few = (replace(measured_cluster(rate), name="few", accelerators_per_node=1) for rate in (100e9, 101e9))
    smaller = [sweep_request(job=first.job, trial_cluster=cluster) for cluster in few]
    assert len({job_key(request) for request in smaller}) == 1


def test_another_model_cluster_trainer_or_stack_is_another_job() -> None:
    requests = (
        sweep_request(),
        sweep_request(job=tiny_job(model=tiny_model(num_layers=6))),
        sweep_request(job=tiny_job(4)),
        sweep_request(job=tiny_job(4), trial_cluster=cpu_cluster(2)),
        sweep_request(trainer=Trainer(name="ours", format=ExportFormat.MEGATRON_LM)),
        sweep_request(job=tiny_job(stack=Stack(name="other"))),
    )
    assert len({job_key(request) for request in requests}) == 6


TRACE = FaultTrace.parse("3;0_1;0.06", num_steps=20)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"job": tiny_job(1)}, "which has no link 0_1: its links join 1 accelerators"),
        ({"trial_cluster": cpu_cluster(2), "job": tiny_job(8)}, "has other links than the cluster"),
        ({"trial": TrialSettings(proxy_layers_per_stage=(1, 2))}, "with proxy_layers_per_stage"),
        ({"challenge": Challenge(test=SequentialTest(), incumbent=cpu_layout())}, "the real links"),
    ],
)
def test_a_fault_trace_is_refused_where_it_could_not_befall_what_is_measured(changes: Any, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        sweep_request(**{"fault_trace": TRACE, **changes})


def test_nothing_is_ranked_by_faults_that_befall_nobody_and_steps_under_them_have_time_of_their_own() -> None:
    with pytest.raises(InvalidInput, match="needs a fault_trace"):
        sweep_request(objective=Objective(under_faults=True))
    settings = TrialSettings(timeout_s=100.0, faulty_step_timeout_s=5.0)
    assert sweep_request(trial=settings).trial_timeout_s == 100.0
    assert sweep_request(trial=settings, fault_trace=TRACE).trial_timeout_s == 200.0


def test_nothing_is_clipped_early_where_trials_have_no_norm() -> None:
    space = SearchSpace(gradient_clip=(GradientClip.POST, GradientClip.BUCKET))
    incumbent = cpu_layout(data_parallel_replicate_degree=2, gradient_clip=GradientClip.PRE)
    for changes in ({"space": space}, {"challenge": Challenge(incumbent=incumbent)}):
        with pytest.raises(
            InvalidInput, match=r"must be set, for example to 1.0, if gradient_clip (bucket|pre) is tried"
        ) as caught:
            sweep_request(**changes)
        assert caught.value.field == "trial.max_gradient_norm"
    assert sweep_request(space=space, trial=TrialSettings(max_gradient_norm=1.0)).space == space


ENDED = SweepOverview(
    id="sw-x",
    name="weekly",
    model="tiny",
    cluster="cpu:2",
    trial_cluster=None,
    engine="local",
    state=RunState.COMPLETE,
    created_at=1.0,
    started_at=2.0,
    finished_at=9.0,
    cancel_requested=False,
    stop_reason=StopReason.TRIAL_BUDGET,
    stop_detail="4 of 4 trials ran",
    budget=Budget(),
    objective=Objective(),
    num_trials={TrialState.COMPLETE: 3, TrialState.FAILED: 1},
    progress=Progress(fraction=1.0, num_trials=4, elapsed_s=7.0, accelerator_hours=0.5),
    best_value=0.382,
    best_mfu=0.382,
)


def test_a_sweep_is_described_by_its_name_how_it_ended_and_the_best_that_was_found_at_that_size() -> None:
    told = announce_end(ENDED)
    assert (told.id, told.at, told.kind) == ("an-sw-x", 9.0, AnnouncementKind.SWEEP_FINISHED)
    assert told.title == "Sweep weekly, tiny on cpu:2: complete, best MFU 38.2 % measured"
    assert (told.text, told.path, told.subject_id) == ("4 of 4 trials ran", "/sweeps/sw-x", "sw-x")
    assert (told.facts["num_trials"], told.facts["accelerator_hours"]) == (4, 0.5)
    told = announce_end(replace(ENDED, name="", state=RunState.FAILED, best_mfu=None, stop_reason=None))
    assert told.title == "Sweep sw-x, tiny on cpu:2: failed"
    assert (told.facts["best_measured_mfu"], told.facts["stop_reason"]) == (None, None)
    simulated, small = replace(ENDED, engine="simulated"), replace(ENDED, cluster="cpu:8", trial_cluster="cpu:2")
    assert [announce_end(each).title.rsplit(" ", 1)[1] for each in (simulated, small)] == ["simulated", "estimated"]
    assert "best_simulated_mfu" in announce_end(simulated).facts


SOFTWARE = {"torch": "2.13.0"}


def gate_request(**changes: Any) -> RegressionGateRequest:
    return replace(RegressionGateRequest(sweep=sweep_request(), layout=cpu_layout(), baseline="main"), **changes)


def content(versions: dict[str, str] | None = None, **changes: Any) -> str:
    return gate_content(gate_request(**changes), SOFTWARE if versions is None else versions)


@pytest.mark.parametrize(
    "job",
    [
        tiny_job(model=tiny_model(ffn_size=256)),
        tiny_job(workload=Workload(seq_len=64, global_batch_size=16)),
        tiny_job(cluster=cpu_cluster(4)),
        tiny_job(cluster=cpu_cluster(2, name="another")),
    ],
    ids=["model", "workload", "number of cores", "cluster"],
)
def test_runs_of_another_job_are_not_compared(job: Any) -> None:
    assert gate_key(sweep_request(job=job)) != gate_key(sweep_request())


def test_names_measured_peaks_layouts_and_settings_are_no_part_of_the_job() -> None:
    cluster = cpu_cluster()
    measured = replace(cluster.accelerator, fp32_flop_per_s=97e9, peak_is_measured=True)
    again = tiny_job(model=tiny_model(name="renamed"), cluster=replace(cluster, accelerator=measured))
    assert gate_key(sweep_request(job=again)) == gate_key(sweep_request())
    longer = sweep_request(trial=TrialSettings(measured_steps=9))
    assert gate_key(longer) == gate_key(sweep_request())


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": cpu_layout(micro_batch_size=2)},
        {"layout": None},
        {"software": "commit 17"},
        {"sweep": sweep_request(trial=TrialSettings(measured_steps=9))},
    ],
    ids=["layout", "search", "software", "settings"],
)
def test_measured_runs_are_part_of_the_content(changes: dict[str, Any]) -> None:
    assert content(**changes) != content()


def test_versions_of_this_machine_are_part_of_the_content_and_the_baseline_is_not() -> None:
    assert content({"torch": "2.14.0"}) != content()
    assert content(baseline="release", sets_baseline=True) == content()


def test_losses_and_steps_are_counted_in_sequences_and_a_target_by_whole_windows() -> None:
    small, large = curve(6.0, 4.0, 2.0, batch=16), curve(6.0, 4.0, 2.0, batch=32)
    assert small.smoothed(32) == (6.0, 5.0, 3.0)
    assert large.smoothed(32) == (6.0, 4.0, 2.0)
    # The first loss lies below the target by luck, and one batch says less than two.
    lucky = curve(4.9, 6.0, 5.1, 4.7, 4.6, batch=16)
    assert lucky.steps_to(5.0, 32) == 4
    assert lucky.steps_to(4.0, 32) is None
    times = (9.0, 1.0, 1.2, 1.1)
    assert LossCurve(losses=(1.0,) * 4, step_times_s=times, global_batch_size=4).step_time_s == pytest.approx(1.1)
    assert curve().step_time_s == 0.0
    assert curve(5.0, step_time_s=3.0).step_time_s == 3.0  # before there is another
    assert curve(5.0, 4.0, batch=16).with_step(3.0, 1.0).num_samples == 48


def test_a_candidate_runs_on_as_much_of_the_cluster_as_it_takes_sharding_where_the_layout_shards() -> None:
    job = study_request().job_of(candidate(batch=64, replicas=1))
    assert (job.cluster.world_size, job.workload.global_batch_size) == (1, 64)
    sharded = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS)
    assert study_request(layout=sharded).layout_of(4).data_parallel_shard_degree == 4
    assert study_request().layout_of(4).data_parallel_replicate_degree == 4


def test_a_study_has_ranges_that_rise_and_losses_of_its_own() -> None:
    request = study_request()
    pretending = replace(request.job, cluster=replace(request.job.cluster, engine="simulated"))
    with pytest.raises(InvalidInput, match="must be a cluster that runs trials"):
        replace(request, job=pretending)
    with pytest.raises(InvalidInput, match="the upper end of the range"):
        Range(low=2.0, high=1.0)


def test_the_front_has_what_none_beats_in_time_and_accelerator_hours_the_fastest_first() -> None:
    cheap, fast, beaten = reached_trial(0, 8.0, 1.0), reached_trial(1, 2.0, 3.0), reached_trial(2, 8.0, 3.0)
    missed = study_trial(3, 6.0, 6.0)
    assert [trial.number for trial in front([cheap, fast, beaten, missed])] == [1, 0]
    assert [trial.number for trial in front([reached_trial(0, 1.0, 1.0), reached_trial(1, 1.0, 1.0)])] == [0, 1]


GATE = ConvergenceGate(num_lossy_steps=20)
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


def test_a_legal_step_leads_to_the_new_state_and_every_other_is_a_conflict_that_names_both() -> None:
    for old, new in product(TrialState, TrialState):
        if (old, new) in LEGAL:
            assert old.to(new) is new
        else:
            with pytest.raises(Conflict, match=f"a trial in the state {old.value} cannot change to {new.value}"):
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


def test_lamb_trains_where_ranks_hold_whole_tensors_and_is_refused_with_its_reason_where_they_hold_parts() -> None:
    assert [LAMB.refuses(layout) for layout in WHOLE] == [None] * len(WHOLE)
    for layout in IN_PARTS:
        assert "norm of each whole tensor" in (LAMB.refuses(layout) or "")
        assert ADAMW.refuses(layout) is None


def test_behind_an_exchange_of_less_only_adamw_runs_and_its_rate_rises_by_equal_parts() -> None:
    lossy = cpu_layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)
    assert "supported only with AdamW" in (LAMB.refuses(lossy) or "")
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
def test_an_unknown_trainer_is_refused_with_the_nearest_one(
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
    with pytest.raises(
        InvalidInput, match="must be given if a trainer is given, because the cluster decides where the trainer starts"
    ):
        from_plain(TrialSpec, {**document, "trainer": to_plain(trainer())})


@pytest.mark.parametrize("clip", [GradientClip.PRE, GradientClip.BUCKET])
def test_a_trial_that_clips_before_the_reduction_asks_for_a_norm(clip: GradientClip) -> None:
    layout = cpu_layout(data_parallel_replicate_degree=2, gradient_clip=clip)
    with pytest.raises(InvalidInput, match=f"for example to 1.0, if gradient_clip {clip} is tried") as caught:
        trial_spec(layout)
    assert caught.value.field == "settings.max_gradient_norm"
    assert trial_spec(layout, settings=TrialSettings.default_for(layout)).settings.max_gradient_norm == 1.0
