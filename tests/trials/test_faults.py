"""Late and dead links: what trials, pipelines and collectives make of them, and how a sweep ranks layouts on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import (
    AttentionKernel,
    GradientSync,
    P2PTransport,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.cluster import SIMULATED
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.objective import Objective
from autotuner.core.placement import Place
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import FailureKind, Outcome, Trial
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import Workload
from autotuner.launch.contract import Launcher
from autotuner.launch.forks import Forks
from autotuner.launch.local import LocalLauncher
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.launch.simulation import Scenario
from autotuner.runs.clock import SystemClock
from autotuner.store.sql import memory_store
from autotuner.trials.distributed.expert import all_gather, all_to_all
from autotuner.trials.dry_run.fake_ranks import fake_ranks
from autotuner.trials.faults import GroupCut, LateCollectives, Links, pipeline_conditions, ring_hold_s
from autotuner.trials.step.exchange import exchange_of
from tests.builders import cpu_cluster, cpu_layout, tiny_model
from tests.fake_launcher import sweep_worker
from tests.trials.fork_server import ForkServer
from tests.trials.launching import Watcher, failed, measured, spec

# ---------------------------------------------------------------- fault sweep
SETTINGS = TrialSettings(
    warmup_steps=2,
    max_warmup_steps=2,
    measured_steps=4,
    max_measured_steps=4,
    profiled_steps=0,
    max_repeats=0,
    timeout_s=120.0,
)


def eight_layers() -> TransformerSpec:
    """Two layers per stage, about a GFLOP per forward of a micro-batch: 20 ms at what a core multiplies."""
    return TransformerSpec(
        name="eight layers",
        num_layers=8,
        hidden_size=256,
        num_heads=8,
        num_kv_heads=4,
        head_dim=32,
        ffn_size=1024,
        vocab_size=512,
    )


def sweep_request(trace: FaultTrace | None, *, is_simulated: bool = False) -> SweepRequest:
    """Four replicas without a pipeline, and pipelines of four ranks: who sends, and in which order passes run."""
    cluster = load_cluster("cpu:1x4")
    job = Job(
        model=eight_layers(),
        cluster=replace(cluster, engine=SIMULATED) if is_simulated else cluster,
        workload=Workload(seq_len=256, global_batch_size=12),
    )
    return SweepRequest(
        job=job,
        space=SearchSpace(
            pipeline_parallel_degree=(1, 4),
            tensor_parallel_degree=(1,),
            shard_level=(ShardLevel.NONE,),
            micro_batch_size=(1,),
            first_stage_less_layers=(0,),
            last_stage_less_layers=(0,),
            pipeline_schedule=(
                PipelineSchedule.ONE_F_ONE_B,
                PipelineSchedule.ZERO_BUBBLE,
                PipelineSchedule.ADAPTIVE,
            ),
            p2p_transport=(P2PTransport.INLINE, P2PTransport.DELEGATED),
            num_delegates=(3,),
            precision=(Precision.FP32,),
            attention_kernel=(AttentionKernel.FLASH,),
            recompute=(Recompute.NONE,),
        ),
        budget=Budget(num_trials=12, min_gain=0.0, prune_below=0.0),
        trial=SETTINGS,
        objective=Objective(under_faults=trace is not None),
        fault_trace=trace,
        uses_history=False,
    )


def tried(request: SweepRequest, launcher: Launcher) -> tuple[list[Trial], list[Trial]]:
    """The trials of a sweep that have a rank, the best first, and the others."""
    store, clock = memory_store(), SystemClock()
    sweep, _ = store.create_sweep(request, now=clock.now())
    sweep_worker(store, launcher, clock, owner="tests", lease_s=600.0).run_once()
    trials = store.all_trials(sweep.id)
    return request.objective.ranked(trials), [trial for trial in trials if not trial.is_ranked]


def test_replicas_are_first_on_healthy_links_and_an_adaptive_pipeline_while_one_is_late() -> None:
    trace = FaultTrace.parse("3;2_3;0.06", num_steps=12)
    exact = Scenario(noise=0.0, run_noise=0.0, step_noise=0.0, memory_noise=0.0)  # what the cost model says, no luck
    with closing(SimulatedLauncher({"exact": exact})) as launcher:
        healthy, _ = tried(sweep_request(None, is_simulated=True), launcher)
        faulty, _ = tried(sweep_request(trace, is_simulated=True), launcher)
    assert healthy[0].layout.pipeline_parallel_degree == 1
    assert faulty[0].layout.pipeline_schedule is PipelineSchedule.ADAPTIVE
    assert faulty[0].layout.p2p_transport is P2PTransport.DELEGATED
    assert {trial.layout for trial in healthy} == {trial.layout for trial in faulty}


@pytest.mark.oracle
def test_real_trials_rank_an_adaptive_pipeline_first_where_a_link_is_very_late(tmp_path: Path, forks: Forks) -> None:
    """So late that nothing else takes as long on whatever machine: a quarter of a second for each message."""
    asked = sweep_request(FaultTrace.parse("2;2_3;0.25", num_steps=10))
    job = replace(asked.job, model=tiny_model(num_layers=8), workload=replace(asked.job.workload, seq_len=64))
    space = asked.space.with_axes(
        pipeline_parallel_degree=(4,),
        pipeline_schedule=(PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ADAPTIVE),
        p2p_transport=(P2PTransport.DELEGATED,),
    )
    with closing(LocalLauncher(tmp_path, forks)) as launcher:
        ranked, others = tried(replace(asked, job=job, space=space), launcher)
    assert others == []
    first, second = ranked
    assert first.layout.pipeline_schedule is PipelineSchedule.ADAPTIVE
    assert second.layout.pipeline_schedule is PipelineSchedule.ONE_F_ONE_B
    assert first.measurement is not None
    assert [event.kind.value for event in first.measurement.link_events][:2] == ["link_slow", "replanned"]


# ---------------------------------------------------------------- links
SLOW, DEAD = LinkHealth(ends=(2, 3), delay_s=0.06), LinkHealth(ends=(0, 1), is_dead=True)
PIPELINE = Layout(pipeline_parallel_degree=4)
FIRST = Place(0, 0, 0, 0)


def links(*health: LinkHealth, num_cores: int = 4) -> Links:
    return Links.of(replace(cpu_cluster(num_cores), link_health=health))


def test_measured_slow_links_are_real_and_assumed_ones_are_emulated() -> None:
    assert not links(SLOW).are_healthy
    assert links(replace(SLOW, source="profile of cpu:4")).are_healthy


def test_a_fault_has_the_last_word_on_its_link_and_leaves_the_others_as_they_are() -> None:
    worse = links(SLOW).befallen_by([replace(SLOW, delay_s=0.1), DEAD])
    assert [found and found.delay_s for found in (worse.between(3, 2), worse.between(1, 2))] == [0.1, None]
    assert [found and found.is_dead for found in (worse.between(0, 1),)] == [True]


def test_a_ring_meets_links_of_its_neighbours_and_an_exchange_those_of_any_two() -> None:
    met = links(LinkHealth(ends=(0, 2), delay_s=0.02))
    assert met.in_ring((0, 1, 2, 3)) is None
    assert met.among((0, 1, 2, 3)) is not None
    around = links(LinkHealth(ends=(0, 3), delay_s=0.02))
    assert around.in_ring((0, 1, 2, 3)) is not None


def test_a_dead_link_and_the_smallest_bandwidth_of_several_links_count() -> None:
    thin = LinkHealth(ends=(1, 2), bandwidth_bytes_per_s=1e6)
    worst = links(SLOW, thin, DEAD).in_ring((0, 1, 2, 3))
    assert worst is not None
    assert (worst.is_dead, worst.bandwidth_bytes_per_s) == (True, 1e6)


def test_a_pipeline_meets_the_links_between_its_own_stages() -> None:
    found = pipeline_conditions(links(SLOW), PIPELINE, FIRST)
    assert {pair: condition.delay_s for pair, condition in found.of_pairs.items()} == {(2, 3): 0.06}


def test_rotated_stages_meet_the_link_elsewhere() -> None:
    rotated = replace(PIPELINE, stage_rotation=3)  # stage 0 lies at end 3, stage 3 at end 2: nobody sends over 2_3
    assert set(pipeline_conditions(links(SLOW), rotated, FIRST).of_pairs) == {(0, 3)}


def test_only_the_pipeline_that_crosses_a_link_between_nodes_meets_it() -> None:
    nodes = replace(cpu_cluster(2), num_nodes=2, link_health=(LinkHealth(ends=(0, 1), delay_s=0.06),))
    both = Layout(pipeline_parallel_degree=2, tensor_parallel_degree=2)
    assert set(pipeline_conditions(Links.of(nodes), both, Place(0, 0, 0, 1)).of_pairs) == {(0, 1)}
    assert Links.of(nodes).in_ring((0, 1)) is None


def test_a_trace_that_heals_a_link_leaves_nothing_to_emulate() -> None:
    trace = FaultTrace.parse("1;2_3;0.06\n2;2_3;0", num_steps=4)
    assert [links().befallen_by(stretch.links).are_healthy for stretch in trace.stretches()] == [True, False, True]


# ---------------------------------------------------------------- replay
LATE_S = 0.03


def run(trace: str, folder: Path, forks: Forks, watcher: Watcher, **changes: Any) -> Outcome:
    """Two replicas, whose gradients are reduced once a step: two steps of a ring."""
    asked = spec("faults", cluster=cpu_cluster(2), fault_trace=FaultTrace.parse(trace, num_steps=4), **changes)
    return LocalLauncher(folder, forks).run(asked, watcher)


def test_the_trace_is_replayed_behind_the_measured_steps_and_counts_for_robust_figures_alone(
    tmp_path: Path, forks: Forks
) -> None:
    watcher = Watcher()
    outcome = measured(run(f"1;0_1;{LATE_S}\n3;0_1;0", tmp_path, forks, watcher))
    assert [step.is_under_trace for step in watcher.steps] == [False] * 3 + [True] * 4
    assert (outcome.num_steps, outcome.num_warmup_steps) == (2, 1)
    assert outcome.robust is not None
    healthy, late, healed = (stretch.step_times_s for stretch in outcome.robust.stretches)
    assert (len(healthy), len(late), len(healed)) == (1, 2, 1)
    assert min(late) >= 2 * LATE_S  # the ring's two steps, each of them late
    mean_s = sum((*healthy, *late, *healed)) / 4
    assert outcome.robust.step_time_s == pytest.approx(mean_s)  # added in another order


def test_a_layout_that_cannot_do_without_a_dead_link_fails_and_says_which(tmp_path: Path, forks: Forks) -> None:
    outcome = failed(run("1;0_1;dead", tmp_path, forks, Watcher()))
    assert outcome.kind is FailureKind.COMMUNICATION
    assert "link 0_1 is dead" in outcome.message


@pytest.mark.parametrize("schedule", [PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ZERO_BUBBLE])
def test_a_pipeline_meets_the_trace_on_the_link_between_its_stages(
    tmp_path: Path, forks: Forks, schedule: PipelineSchedule
) -> None:
    layout = cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, pipeline_schedule=schedule)
    outcome = measured(run(f"2;0_1;{LATE_S}", tmp_path, forks, Watcher(), layout=layout))
    assert outcome.robust is not None
    _, late = outcome.robust.stretches
    assert min(late.step_times_s) >= 4 * LATE_S  # a rank's own sends are held back one after the other: 4 micro-batches


def test_an_assumed_delay_of_the_cluster_stands_during_all_steps(tmp_path: Path, forks: Forks) -> None:
    slow = replace(cpu_cluster(2), link_health=(LinkHealth(ends=(0, 1), delay_s=LATE_S),))
    outcome = measured(LocalLauncher(tmp_path, forks).run(spec("assumed", cluster=slow), Watcher()))
    assert outcome.step_time_s >= 2 * LATE_S
    assert outcome.robust is None


# ---------------------------------------------------------------- late collectives

CPU = torch.device("cpu")
DELAY_S = 0.004


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    """Four ranks, of which this is the first and the others answer at once."""
    with fake_ranks(0, 4):
        made = dist.new_group([0, 1, 2, 3])
        assert isinstance(made, dist.ProcessGroup)
        yield made


def late_links(**health: object) -> Links:
    ailing = replace(LinkHealth(ends=(1, 2), delay_s=DELAY_S), **health)  # type: ignore[arg-type]
    return Links.of(replace(cpu_cluster(4), link_health=(ailing,)))


def test_each_step_of_a_ring_is_late_and_bytes_pass_a_thin_link_no_faster_than_it_lets_them() -> None:
    assert ring_hold_s(2, 4, 800, 0.01, None) == pytest.approx(0.06)  # a product of floats
    assert ring_hold_s(1, 4, 800, 0.0, 1000.0) == pytest.approx(3 * 200 / 1000)


@pytest.mark.parametrize(
    ("collective", "num_steps"),
    [
        (lambda tensor, group: dist.all_reduce(tensor, group=group), 6),
        (lambda tensor, group: dist.all_reduce(tensor, group=group, async_op=True), 6),
        (all_gather, 3),
        (lambda tensor, group: all_to_all(tensor, [2] * 4, [2] * 4, group), 3),
    ],
)
def test_a_collective_waits_for_the_late_link_in_each_of_its_steps(
    group: dist.ProcessGroup, collective: Callable[[Tensor, dist.ProcessGroup], object], num_steps: int
) -> None:
    waits_s: list[float] = []
    LateCollectives([group], CPU, seed=0, wait=waits_s.append).meet(late_links())
    collective(torch.ones(8), group)
    assert waits_s == [pytest.approx(num_steps * DELAY_S)]  # a product of floats


@pytest.mark.parametrize(("sync", "num_steps"), [(GradientSync.DEMO, 3), (GradientSync.RANDOM, 6)])
def test_a_lossy_exchange_is_delayed_by_slow_links_too(
    group: dist.ProcessGroup, sync: GradientSync, num_steps: int
) -> None:
    waits_s: list[float] = []
    LateCollectives([group], CPU, seed=0, wait=waits_s.append).meet(late_links())
    exchange = exchange_of(Layout(data_parallel_replicate_degree=4, gradient_sync=sync), [torch.zeros(640)], group)
    assert exchange is not None
    exchange.gradients([torch.ones(640)])
    assert sum(waits_s) == pytest.approx(num_steps * DELAY_S)  # a sum of floats


def test_other_groups_pass_as_they_are_and_so_does_a_group_whose_link_has_healed(group: dist.ProcessGroup) -> None:
    late = LateCollectives([group], CPU, seed=0)
    late.meet(late_links(is_dead=True))
    dist.all_reduce(torch.ones(8))  # of all ranks, which is another group
    with pytest.raises(GroupCut, match=r"link 1_2 is dead, .* ranks \[0, 1, 2, 3\]"):
        dist.all_reduce(torch.ones(8), group=group)
    late.meet(late_links(delay_s=0.0))
    dist.all_reduce(torch.ones(8), group=group)


def test_a_ring_that_passes_by_the_link_is_not_late_but_an_exchange_between_all_is(group: dist.ProcessGroup) -> None:
    late = LateCollectives([group], CPU, seed=0)
    late.meet(late_links(ends=(0, 2), is_dead=True))
    dist.all_reduce(torch.ones(8), group=group)
    with pytest.raises(GroupCut):
        all_to_all(torch.ones(8), [2] * 4, [2] * 4, group)


def test_no_rank_waits_for_ever_while_gloo_gives_up_what_a_backward_pass_left(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    run = fork_server.have_done("tests.trials.rank_tasks:reduces_while_gloo_gives_up_an_object", tmp_path, 2)
    assert run.exit_codes == (0, 0), run.logs
