"""Simulated trials: times of the cost model with seeded noise and failures, which say that they are simulated."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from autotuner.core.choices import AttentionKernel, Precision, Recompute, ShardLevel
from autotuner.core.cluster import SIMULATED
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.trial import EngineJobPhase, FailureKind, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.launch.simulation import Luck, Scenario
from tests.builders import h100_cluster, llama_70b
from tests.trials.launching import ENDLESS, SHORT, Watcher, measured

EXACT = Scenario(noise=0.0, run_noise=0.0, step_noise=0.0, memory_noise=0.0)


def large(num_nodes: int = 1250, **changes: object) -> TrialSpec:
    """Llama 70B on 10,000 GPUs, in a layout that fits."""
    cluster = replace(h100_cluster(num_nodes), engine=SIMULATED)
    layout = Layout(
        data_parallel_shard_degree=num_nodes,
        tensor_parallel_degree=8,
        sequence_parallel=True,
        shard_level=ShardLevel.PARAMETERS,
        recompute=Recompute.FULL,
        precision=Precision.BF16,
        attention_kernel=AttentionKernel.FLASH,
    )
    spec = TrialSpec(
        trial_id="large",
        model=llama_70b(),
        workload=Workload(seq_len=8192, global_batch_size=num_nodes),
        layout=layout,
        device="cuda",
        settings=SHORT,
        reference_flop_per_s=cluster.accelerator.reference_flop_per_s,
        memory_bytes=cluster.accelerator.memory_bytes,
        cluster=cluster,
    )
    return replace(spec, **changes)  # type: ignore[arg-type]  # the fields are the caller's business


def by(scenario: Scenario, *, seed: int = 0) -> SimulatedLauncher:
    return SimulatedLauncher({"only": scenario}, seed=seed)


def died(outcome: Outcome) -> TrialFailure:
    assert isinstance(outcome, TrialFailure), outcome
    assert outcome.message.startswith("simulated: ")
    return outcome


def layouts(spec: TrialSpec, count: int) -> Mapping[int, TrialSpec]:
    """As many different trials, by the length of their sequences."""
    return {n: replace(spec, workload=replace(spec.workload, seq_len=1024 + 2 * n)) for n in range(count)}


def test_without_noise_ten_thousand_ranks_take_what_is_predicted_and_say_that_it_is_simulated() -> None:
    spec = large()
    assert spec.cluster is not None
    predicted = predict_one(spec.layout, Job(model=spec.model, cluster=spec.cluster, workload=spec.workload))
    found = measured(by(EXACT).run(spec, Watcher()))
    assert found.step_time_s == pytest.approx(predicted.step_time.total_s)
    assert (found.mfu, found.hfu) == pytest.approx((predicted.mfu, predicted.hfu))
    assert found.peak_bytes == (round(predicted.memory.total_bytes - predicted.memory.allowance_bytes),)
    assert found.phases is not None
    assert found.phases.optimizer_s == pytest.approx(predicted.step_time.optimizer_s)
    assert found.is_simulated
    assert found.peak_source == "simulated"
    assert "nothing ran" in found.environment["simulated"]


def test_a_seed_and_a_layout_take_equally_long_but_for_the_noise_of_runs() -> None:
    spec, other = large(), large(num_nodes=1000)
    first, again = (measured(by(Scenario()).run(spec, Watcher())) for _ in range(2))
    assert first == again
    with_seed = measured(by(Scenario(), seed=1).run(spec, Watcher()))
    assert with_seed.step_time_s != first.step_time_s
    ratios = {measured(by(Scenario()).run(one, Watcher())).step_time_s / exact(one) for one in (spec, other)}
    assert len(ratios) == 2
    quiet = by(Scenario(run_noise=0.0))
    first, later = (measured(quiet.run(replace(large(), seed=seed), Watcher())) for seed in (0, 7))
    assert later.step_time_s == pytest.approx(first.step_time_s, rel=0.01)  # the median of steps that scatter by 1 %
    assert later.peak_bytes == first.peak_bytes
    assert later.step_time_s != first.step_time_s
    launcher = by(Scenario())
    one_run, another = (measured(launcher.run(large(run=run), Watcher())).step_time_s for run in (0, 1))
    assert one_run != another
    assert one_run == pytest.approx(another, rel=0.05)
    launcher = by(Scenario(noise=0.1, run_noise=0.003, step_noise=0.0))
    times = [measured(launcher.run(large(repeat=number), Watcher())).step_time_s for number in range(12)]
    assert len(set(times)) == len(times)
    assert statistics.stdev(map(math.log, times)) == pytest.approx(0.003, rel=0.6)  # of a dozen
    # Simulated trials stay what they were when a model, or a field of it, is called otherwise.
    spec = large()
    renamed = replace(spec, model=replace(spec.model, name="another"))
    other = replace(spec, model=replace(spec.model, num_kv_heads=spec.model.num_heads))
    share = Luck(spec, seed=1).share("crash")
    assert share == 0.09480503708381775  # a field of another name leaves it where it is
    assert Luck(renamed, seed=1).share("crash") == share
    assert Luck(other, seed=1).share("crash") != share


def exact(spec: TrialSpec) -> float:
    return measured(by(EXACT).run(spec, Watcher())).step_time_s


def test_layouts_scatter_about_what_is_predicted_by_as_much_as_the_scenario_says() -> None:
    noisy = by(replace(EXACT, noise=0.2))
    logs = [
        math.log(measured(noisy.run(one, Watcher())).step_time_s / exact(one)) for one in layouts(large(), 100).values()
    ]
    # of a hundred draws the mean scatters by 0.02 and the deviation by 0.014
    assert statistics.mean(logs) == pytest.approx(0.0, abs=0.06)
    assert statistics.stdev(logs) == pytest.approx(0.2, abs=0.045)


@pytest.mark.parametrize(
    ("limit", "count", "least", "most"),
    [(1.3, 10, 0, 0), (1.0, 60, 15, 45), (0.7, 10, 10, 10)],  # of 60: four standard deviations from 30
    ids=["well within memory", "filling it", "far beyond it"],
)
def test_layouts_run_out_as_often_as_what_is_predicted_of_their_memory_makes_likely(
    limit: float, count: int, least: int, most: int
) -> None:
    outcomes = []
    for one in layouts(large(), count).values():
        assert one.cluster is not None
        job = Job(model=one.model, cluster=one.cluster, workload=one.workload)
        predicted_bytes = predict_one(one.layout, job).memory.total_bytes
        outcomes.append(by(Scenario()).run(replace(one, memory_bytes=int(limit * predicted_bytes)), Watcher()))
    ran_out = [died(outcome).kind for outcome in outcomes if isinstance(outcome, TrialFailure)]
    assert set(ran_out) <= {FailureKind.OOM}
    assert least <= len(ran_out) <= most


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [(Scenario(crashes=1.0), FailureKind.CRASH), (Scenario(hangs=1.0), FailureKind.TIMEOUT)],
    ids=["crash", "hang"],
)
def test_layouts_die_as_the_scenario_says(scenario: Scenario, kind: FailureKind) -> None:
    assert died(by(scenario).run(large(), Watcher())).kind is kind


def test_nodes_that_are_lost_say_nothing_of_the_trial_and_the_next_attempt_may_have_others() -> None:
    watcher, launcher = Watcher(), by(replace(EXACT, lost_nodes=0.5))
    outcomes: list[Outcome] = []
    while len(outcomes) < 20 and not (outcomes and isinstance(outcomes[-1], Measurement)):
        jobs = tuple({job.name: job for job in watcher.jobs}.values())
        outcomes.append(launcher.run(large(num_nodes=999, jobs=jobs), watcher))
    *lost, last = outcomes
    assert measured(last)
    assert all(isinstance(one, Stopped) and one.reason == "infrastructure" for one in lost)


def test_a_job_is_told_from_its_queue_to_its_end_and_has_its_accelerators_for_simulated_time() -> None:
    watcher = Watcher()
    found = measured(by(replace(EXACT, queue_s=60.0, start_s=30.0)).run(large(), watcher))
    assert [job.phase for job in watcher.jobs] == [EngineJobPhase.QUEUED, EngineJobPhase.RUNNING, EngineJobPhase.ENDED]
    ended = watcher.jobs[-1]
    assert ended.queued_s(time.time()) == pytest.approx(60.0)
    assert ended.running_s(time.time()) == pytest.approx(30.0 + 3 * found.step_time_s)


def test_a_service_that_restarts_goes_on_with_the_same_job() -> None:
    watcher = Watcher(stop_after=0)
    SimulatedLauncher().run(large(), watcher)
    (waits,) = {job.name: job for job in watcher.jobs if not job.phase.is_over}.values()
    again = Watcher()
    measured(SimulatedLauncher().run(large(jobs=(waits,)), again))
    assert {job.name for job in again.jobs} == {waits.name}


def test_a_trial_that_takes_longer_ends_at_its_limit() -> None:
    failed = died(by(EXACT).run(large(settings=ENDLESS), Watcher()))
    assert (failed.kind, failed.message) == (
        FailureKind.TIMEOUT,
        f"simulated: no result after {ENDLESS.timeout_s:.0f} s",
    )


def test_time_passes_as_fast_as_the_scenario_says_and_a_wish_to_stop_ends_it() -> None:
    class Impatient(Watcher):
        asked = 0

        def stop_requested(self) -> Stopped | None:
            self.asked += 1
            return Stopped(reason="cancelled") if self.asked > 3 else None

    slow = by(replace(EXACT, queue_s=1e9, speed=1.0))
    assert slow.run(large(), Impatient()) == Stopped(reason="cancelled")


def test_a_queue_that_names_no_scenario_is_refused_with_those_there_are() -> None:
    cluster = h100_cluster(1, engine=SIMULATED, queue="batch")
    launcher = SimulatedLauncher()
    refusal = "the engine simulated has no queue batch; its queues are plain, flaky, watched"
    assert launcher.refuses(cluster) == refusal
    assert died(launcher.run(large(cluster=cluster), Watcher())).message == f"simulated: {refusal}"
    assert launcher.refuses(replace(cluster, queue="flaky")) is None


LONG = replace(SHORT, timeout_s=1e6)


def test_under_a_fault_trace_each_step_takes_what_is_predicted_of_its_links() -> None:
    trace = FaultTrace.parse("2;0_1;0.5\n4;0_1;0", num_steps=6)
    watcher = Watcher()
    exactly = by(Scenario(noise=0.0, run_noise=0.0, step_noise=0.0))
    outcome = measured(exactly.run(large(num_nodes=16, settings=LONG, fault_trace=trace), watcher))
    assert outcome.robust is not None
    before, slow, after = outcome.robust.stretches
    assert before.step_times_s == pytest.approx([outcome.step_time_s] * 2)  # the exponential of no noise
    assert min(slow.step_times_s) > outcome.step_time_s
    assert after.step_times_s == pytest.approx(before.step_times_s)
    assert [step.is_under_trace for step in watcher.steps][-6:] == [True] * 6
