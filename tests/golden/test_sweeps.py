"""What is said of sweeps of every kind, as recorded.

Each sweep runs to its end with trials that are made up: plain ones, on fewer ranks, under faults, challenged, gated,
out of memory, cancelled and so on. Recorded are its end, its trials with whatever is said of each, the answer, what
failed, how right predictions were, and for some kinds the front, what mattered and where the time of the best goes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.software import load_stack
from autotuner.core.choices import AttentionKernel, ExportFormat, GradientSync, Precision, Recompute, ShardLevel
from autotuner.core.cluster import SIMULATED
from autotuner.core.comparison import Challenge, RunGroup, SequentialTest
from autotuner.core.convergence_gate import ConvergenceGate
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.measurement import LinkEvent, LinkEventKind, Measurement
from autotuner.core.objective import Metric, Objective
from autotuner.core.space import default_space
from autotuner.core.stack import Stack
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import FailureKind, Trial, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSettings, TrialSpec
from autotuner.core.workload import Workload
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.report.comparison import comparison_report
from autotuner.report.markdown import markdown
from autotuner.report.parts import loss_in_words
from autotuner.report.report import Report
from autotuner.report.sweep import charts_report
from autotuner.report.sweep_answer import answer_report, front_report
from autotuner.report.sweep_trials import decisive, way_out
from autotuner.report.timelines import cost_in_words
from autotuner.report.trial_facts import (
    certainty,
    facts,
    phases,
    unranked_in_words,
)
from autotuner.report.trial_parts import time_to_loss_in_words
from autotuner.report.verdicts import findings_in_words
from autotuner.report.words import estimate_in_words
from autotuner.runs.challenge import findings
from autotuner.search.explain.explanation import trial_parts
from autotuner.search.explain.layers import measured_layers
from autotuner.search.explain.link_timelines import trial_link_timelines
from autotuner.search.results.failures import failures
from autotuner.search.results.layout_comparison import LayoutCandidate, side_by_side
from autotuner.search.results.reached import ranked_times, standings
from autotuner.search.results.sensitivity import sweep_choices
from autotuner.search.results.sweep_answer import accuracy, answer
from autotuner.search.results.sweep_front import sweep_front
from autotuner.search.space.trainers import trial_space
from autotuner.store.sql import memory_store
from tests.builders import breakdown, tiny_space
from tests.golden.golden import Golden
from tests.golden.jobs import EndedSweep, abbreviate, few_digits, file_name, job_of, outcome_of, run_sweep

Kind = Callable[[], EndedSweep]


def _gpus(**changes: Any) -> SweepRequest:
    """Return a request for 16 A100s."""
    job = replace(job_of("thin network"), stack=Stack())
    axes = {
        "compiled": (False,),
        "first_stage_less_layers": (0,),
        "last_stage_less_layers": (0,),
        "attention_kernel": (AttentionKernel.FLASH,),
        "recompute": (Recompute.NONE, Recompute.FULL),
        "micro_batch_size": (1, 2),
        "virtual_stages_per_rank": (1, 2),
    }
    usual = {"job": job, "space": default_space(job).with_axes(**axes), "budget": _trials(6)}
    return SweepRequest(**{**usual, **changes})


def _cores(num_trials: int = 6, **changes: Any) -> SweepRequest:
    """Return a request for eight cores."""
    usual = {"job": job_of("cores"), "space": tiny_space(), "budget": _trials(num_trials)}
    return SweepRequest(**{**usual, **changes})


def _lossy(**changes: Any) -> SweepRequest:
    """Return a request whose trials may exchange less than their gradients."""
    syncs = (GradientSync.FULL, GradientSync.DEMO, GradientSync.DILOCO)
    axes = {"gradient_sync": syncs, "pipeline_parallel_degree": (1,), "tensor_parallel_degree": (1,)}
    return _cores(space=tiny_space(shard_level=(ShardLevel.NONE,), micro_batch_size=(1, 2), **axes), **changes)


def _with_trainer() -> SweepRequest:
    """Return a request whose trials a registered trainer runs."""
    trainer = Trainer(name="ours", format=ExportFormat.TORCHTITAN, stack="torchtitan")
    job = replace(job_of("thin network"), stack=load_stack("torchtitan"))
    return _gpus(job=job, space=trial_space(job, trainer, {}), trainer=trainer)


_FP8 = {"precision": (Precision.BF16, Precision.FP8), "compiled": (True,)}


def _in_fp8(**changes: Any) -> SweepRequest:
    """Return a request for trials in fp8, too."""
    job = replace(job_of("dense, bf16 moments"), stack=Stack(), workload=Workload(seq_len=8192, global_batch_size=256))
    return _gpus(job=job, space=default_space(job).with_axes(**_FP8, micro_batch_size=(1, 2)), **changes)


def _under_faults() -> SweepRequest:
    """Return a request for trials under faults, on a cluster with links that are not healthy."""
    job = job_of("slow links")
    axes: dict[str, tuple[int, ...]] = {}
    axes |= {"precision": (Precision.BF16,), "shard_level": (ShardLevel.PARAMETERS,), "recompute": (Recompute.NONE,)}
    axes |= {"pipeline_parallel_degree": (4,), "micro_batch_size": (1,), "compiled": (False,)}
    axes |= {"tensor_parallel_degree": (2,), "attention_kernel": (AttentionKernel.FLASH,)}
    return _gpus(
        job=job,
        space=default_space(job).with_axes(**axes),
        fault_trace=FaultTrace.parse("2;0_1;0.06\n4;2_3;100mbit\n6;0_1;dead", num_steps=8),
        objective=Objective(under_faults=True),
    )


def _trials(number: int, **changes: Any) -> Budget:
    return Budget(**{"num_trials": number, "min_gain": 0.0, "prune_below": 0.0, **changes})


_INCUMBENT = Layout(
    data_parallel_replicate_degree=8,
    micro_batch_size=2,
    precision=Precision.FP32,
    attention_kernel=OPTIONS["attention_kernel"].value_of(0),  # type: ignore[arg-type]  # a kernel by its number
)


def _challenge(baseline: float = 0.0, incumbent: Layout | None = _INCUMBENT, **changes: Any) -> SweepRequest:
    """Return a request that compares the incumbent, which reached a token rate before where one is given."""
    rates = (baseline, 0.997 * baseline, 1.002 * baseline)
    groups = [RunGroup(rates=rates, mfu=0.2, at=float(at)) for at in (1, 2, 3) if baseline]
    test = SequentialTest(max_runs=6)
    asked = Challenge(incumbent=incumbent, baseline=tuple(groups), test=test, **changes)
    return _cores(4, challenge=asked)


def _number(spec: TrialSpec) -> int:
    return int(spec.trial_id.split("-")[2])


def _outcome_with(spec: TrialSpec, **changes: Any) -> Measurement | TrialFailure:
    found = outcome_of(spec)
    return replace(found, **changes) if isinstance(found, Measurement) else found


def _tie(spec: TrialSpec) -> Measurement | TrialFailure:
    """Return a trial that is as fast as any other but for noise."""
    step_s = 2.0 + 0.002 * random.Random(f"{spec.layout} {spec.run}").random()
    tokens_per_s = spec.workload.tokens_per_step / step_s
    return _outcome_with(
        spec, step_time_s=step_s, tokens_per_s=tokens_per_s, mfu=0.2 / step_s, step_time_interval_s=0.01
    )


def _measure_everything(spec: TrialSpec) -> Measurement | TrialFailure:
    """Return a trial of which everything that may be measured was measured."""
    number, found = _number(spec), outcome_of(spec)
    if isinstance(found, TrialFailure):
        return found
    shares = {
        "forward_s": 0.3,
        "backward_s": 0.5,
        "all_reduce_s": 0.05 * number,
        "pipeline_idle_s": 0.02,
        "optimizer_s": 0.03,
    }
    parts = breakdown(**{name: share * found.step_time_s for name, share in shares.items()})
    events = (
        LinkEvent(step=3, kind=LinkEventKind.LINK_SLOW, stages=(0, 1), delay_s=0.06),
        LinkEvent(step=5, kind=LinkEventKind.REPLANNED, warm_up=(3, 2), delegated=True, cost_s=0.4),
    )
    return replace(
        found,
        hfu=1.2 * found.mfu,
        breakdown=parts if number != 2 else None,
        breakdown_failure="oom: no memory" if number == 2 else None,
        compile_s=18.2,
        power_w=287.0,
        num_warmup_steps=3,
        num_disturbed=1,
        extrapolated_from=(2, 4) if number == 1 else (),
        link_events=events,
        overlapped_share=0.875,
        reserved_bytes=tuple(2 * one for one in found.peak_bytes),
        precision_flop_per_s=2 * found.peak_flop_per_s,
        sync_payload_bytes=12_340.0,
    )


def _die_in_turn(spec: TrialSpec) -> Measurement | TrialFailure:
    """Return a trial that dies of another cause than the one before it, if its number is odd."""
    causes = (
        FailureKind.CRASH,
        FailureKind.TIMEOUT,
        FailureKind.COMMUNICATION,
        FailureKind.NUMERICS,
        FailureKind.CRASH,
    )
    number = _number(spec)
    if number % 2 == 0:
        return outcome_of(spec)
    kind = causes[number // 2 % len(causes)]
    return TrialFailure(kind=kind, message=f"rank {number} died with signal 9", rank=number, log_tail="Aborted")


def _fail_reference(spec: TrialSpec) -> Measurement | TrialFailure:
    died = TrialFailure(kind=FailureKind.CRASH, message="a rank died")
    return died if spec.trial_id.endswith("reference") else outcome_of(spec)


def _slow_every_third(spec: TrialSpec) -> Measurement | TrialFailure:
    found = outcome_of(spec)
    if isinstance(found, TrialFailure) or _number(spec) % 3 != 2:
        return found
    return replace(found, step_time_s=9 * found.step_time_s, mfu=found.mfu / 9, tokens_per_s=found.tokens_per_s / 9)


def _interrupt(when: Callable[[Any, str], Any]) -> EndedSweep:
    """Return a sweep to which something happens when its fourth trial starts; what that returns counts, if anything."""
    store, seen = memory_store(), list[Any]()

    def behave(spec: TrialSpec) -> Measurement | TrialFailure:
        if _number(spec) == 3:
            seen.append(when(store, spec.trial_id.rpartition("-")[0]))
        return outcome_of(spec)

    found = run_sweep(_cores(), behave, store=store)
    return replace(found, sweep=seen[0][0], trials=seen[0][1]) if seen[0] else found


def _simulate() -> EndedSweep:
    request = _gpus()
    cluster = replace(request.job.cluster, engine=SIMULATED, queue="flaky")
    return run_sweep(replace(request, job=replace(request.job, cluster=cluster)), launcher=SimulatedLauncher())


_FEW = load_cluster("a100-40gb:4x2")

KINDS: Mapping[str, Kind] = {
    "plain": lambda: run_sweep(_cores(12)),
    "one trial": lambda: run_sweep(_gpus(budget=_trials(1))),
    "ties": lambda: run_sweep(_cores(), _tie),
    "measured in detail": lambda: run_sweep(_cores(), _measure_everything),
    "out of memory": lambda: run_sweep(_gpus(trial=TrialSettings(memory_budget_bytes=17 * 10**9), budget=_trials(9))),
    "deaths": lambda: run_sweep(_cores(11), _die_in_turn),
    "all failed": lambda: run_sweep(
        _cores(), lambda spec: TrialFailure(kind=FailureKind.CRASH, message="no such file")
    ),
    "nothing fits": lambda: run_sweep(_gpus(trial=TrialSettings(memory_budget_bytes=10**9))),
    "pruned": lambda: run_sweep(_cores(budget=_trials(6, prune_below=0.5, patience=5)), _slow_every_third),
    "little to gain": lambda: run_sweep(_cores(budget=_trials(50, min_gain=0.02))),
    "gates passed": lambda: run_sweep(_lossy()),
    "gates failed": lambda: run_sweep(_lossy(), partial(outcome_of, excess=0.2)),
    "gates without reference": lambda: run_sweep(_lossy(), _fail_reference),
    "fp8, no gates": lambda: run_sweep(_in_fp8(convergence_gate=ConvergenceGate(enabled=False))),
    "fp8": lambda: run_sweep(_in_fp8()),
    "challenge": lambda: run_sweep(_challenge(9000.0)),
    "challenge, slower": lambda: run_sweep(_challenge(50_000.0)),
    "challenge, no baseline": lambda: run_sweep(_challenge()),
    "challenge, no search": lambda: run_sweep(_challenge(9000.0, searches=False)),
    "challenge, no incumbent": lambda: run_sweep(_challenge(9000.0, incumbent=None)),
    "challenge, cannot run": lambda: run_sweep(_challenge(incumbent=replace(_INCUMBENT, micro_batch_size=64))),
    "energy": lambda: run_sweep(_gpus(objective=Objective(metric=Metric.TOKENS_PER_JOULE)), _measure_everything),
    "proxies, out of memory": lambda: run_sweep(
        _gpus(trial_cluster=_FEW, trial=TrialSettings(memory_budget_bytes=20 * 10**9))
    ),
    "proxies, front": lambda: run_sweep(
        _gpus(trial_cluster=_FEW, objective=Objective(front=(Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)))
    ),
    "faults": lambda: run_sweep(_under_faults()),
    "lengths": lambda: run_sweep(_cores(job=job_of("nodes of cores, lengths"))),
    "trainer": lambda: run_sweep(_with_trainer(), partial(_outcome_with, peak_bytes=(), losses=(), phases=None)),
    "cancelled": lambda: _interrupt(lambda store, sweep: store.request_cancel(sweep, now=1180.0) and None),
    "running": lambda: _interrupt(lambda store, sweep: (store.get_sweep(sweep), tuple(store.all_trials(sweep)))),
    "simulated, flaky": _simulate,
}


_WHOLE = ("plain", "measured in detail", "energy", "proxies, front", "faults")
"""Kinds of which all is recorded."""


@pytest.mark.parametrize("name", KINDS)
def test_the_answer_of_a_sweep_is_the_one_that_was_recorded(golden: Golden, name: str) -> None:
    found = KINDS[name]()
    golden.check(
        f"sweeps/{file_name(name)}",
        _without_id(dict(_report(found, is_whole=name in _WHOLE)), found.sweep.id),
    )


def _report(found: EndedSweep, *, is_whole: bool) -> Iterator[tuple[str, Any]]:
    """Yield what is said of a sweep, by its names; all of it, or what differs most from kind to kind."""
    sweep, request, trials = found.sweep, found.sweep.request, found.trials
    yield "state", [sweep.state.value, sweep.stop_reason, sweep.stop_detail]
    yield "trials", [_trial_row(trial) for trial in trials]
    yield "notes", found.notes[:6]
    yield "expected_improvement", abbreviate(sweep.expected_improvement)
    found_best, groups, right = answer(request, trials), failures(request, trials), accuracy(request, trials)
    yield "answer", abbreviate(found_best)
    if found_best is not None:
        expected = sweep.expected_improvement
        report = answer_report(found_best, request, sweep_id=sweep.id, expected_improvement=expected)
        yield "answer said", _said(report)
    yield "failures", abbreviate(groups)
    yield "failures said", [[*decisive(group), way_out(group)] for group in groups]
    yield "accuracy", [[one.error, one.is_within, one.reached_bytes] for one in right.trials]
    told = sweep_choices(request, trials)
    charts = charts_report(request, trials, source="measured", choices=told.choices, accuracy=right)
    yield "accuracy said", [one.note for one in charts.sections if one.key == "calibration"]
    if is_whole or request.objective.front:
        front = sweep_front(request, trials)
        yield "front", abbreviate(front)
        yield "front said", _said(front_report(front, sweep_id=sweep.id))
        yield "mattered", abbreviate((told.choices, told.grid))
        yield "layers", abbreviate(measured_layers(request.objective, trials))
    if request.challenge:
        challenge = findings(request, trials)
        yield "challenge", [abbreviate(challenge), findings_in_words(challenge)]
    standing = standings(ranked_times(request.objective, trials))
    yield "standings", [[few_digits(one.probability_best, 10), one.tied_with_best] for one in standing.values()]
    ranked = request.objective.ranked(trials)
    job = request.trial_job
    rivals = [
        LayoutCandidate(layout=one.layout, job=job, prediction=one.prediction, trial=one, standing=standing[one.id])
        for one in (*ranked[:1], *ranked[-2:])
    ]
    if len(ranked) > 1:
        beside = side_by_side(rivals)
        report = comparison_report(beside, rivals)
        yield "side by side", [report.headline, *report.facts, *([abbreviate(beside)] if is_whole else [])]
    if ranked and ranked[0].ran_measurement:
        best = ranked[0].ran_measurement
        divided = [] if best.breakdown is None else abbreviate(phases(best.breakdown))
        yield "best", [certainty(best), facts(best), divided]
        parts = trial_parts(ranked[0], request)
        lost = loss_in_words(parts.step if parts.step.rank is not None else parts.predicted_step)
        yield "parts", abbreviate(parts) | {"largest_loss": lost} if is_whole else lost
        yield "links", " ".join(cost_in_words(trial_link_timelines(ranked[0], request)))


def _said(report: Report) -> list[str]:
    """Return the lines of a report in Markdown."""
    return [line for line in markdown(report).splitlines() if line]


def _trial_row(trial: Trial) -> list[Any]:
    """Return a trial's layout, state, figures and whatever is said of how it ended."""
    said = [trial.failure.message if trial.failure else "", trial.stopped.detail if trial.stopped else ""]
    said += [unranked_in_words(trial), trial.gate.detail if trial.gate else ""]
    said += [time_to_loss_in_words(trial.gate, 1.0) if trial.gate else ""]
    said += [estimate_in_words(trial.estimate) if trial.estimate else "", f"ran {trial.ran}" if trial.proxy else ""]
    figures = [few_digits(trial.reached.step_time_s), few_digits(trial.reached.mfu)] if trial.reached else []
    return [str(trial.layout), trial.state.value, trial.repeats, *figures, *filter(None, said)]


def _without_id(value: Any, sweep_id: str) -> Any:
    """Return the value with another id of the sweep, which is drawn anew each time."""
    match value:
        case str():
            return value.replace(sweep_id, "sw")
        case Mapping():
            return {key: _without_id(one, sweep_id) for key, one in value.items()}
        case list() | tuple():
            return [_without_id(one, sweep_id) for one in value]
    return value
