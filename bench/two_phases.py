"""A training whose network gets thinner on the way, lived through: ``python -m bench.two_phases``.

Four ranks on two nodes of this machine (network namespaces; needs root). The link between them is fast at first and
carries 10 Mbit/s later, by ``tc``. A retune finds the layout for the first phase by real trials, hears of the new
links, and finds another for the second. Then the training itself is run three ways: with a switch in between, its
checkpoint saved in the one layout and loaded in the other, and in either layout throughout. Bounds: the retune picks
two layouts, the training that switches is done first, and it learns the same losses.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import numpy as np
import optuna
import structlog
import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core.choices import AttentionKernel, P2PTransport, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.comparison import SequentialTest
from autotuner.core.job import Job, JobPhase, PhasedJob, SwitchCost
from autotuner.core.layout import Layout
from autotuner.core.link import Link, LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.space import default_space
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.upkeep import RetuneRequest, RetuneRun
from autotuner.core.workload import Workload
from autotuner.launch.this_machine import detect_cluster
from autotuner.report.jobs import course_in_words
from autotuner.report.verdicts import explanation
from autotuner.runs.clock import SystemClock
from autotuner.runs.retune import retune_kind
from autotuner.runs.retune_clock import RetuneScheduler
from autotuner.runs.retuning import Retuning
from autotuner.runs.worker import Worker
from autotuner.search.planning.phases import PhasesQuestion, cheapest_course, plan_phases
from autotuner.store.sql import Store, memory_store
from bench.forked_ranks import on_ranks
from bench.sweeping import sweep_worker
from bench.trials_between_nodes import NodesLauncher
from bench.two_nodes import TwoNodes
from trials.checkpoint import Checkpoints
from trials.distributed.context import context_part
from trials.distributed.mesh import Grid
from trials.distributed.parallelize import parallel_stages
from trials.measurement.environment import own_core, pin
from trials.measurement.measure import Stopwatch
from trials.runtime.rank import RankInfo, join_process_group
from trials.training.data import batch
from trials.training.step import build_step

_SLOW_BITS_PER_S = 10e6
_NUM_RANKS = 4
_PROBE_BYTES = 1 << 20

_MODEL = TransformerSpec(
    name="0.8M",
    num_layers=4,
    hidden_size=128,
    num_heads=4,
    num_kv_heads=4,
    head_dim=32,
    ffn_size=344,
    vocab_size=64,
)
_LARGER = replace(_MODEL, name="51M", hidden_size=1024, head_dim=256, ffn_size=2752)
"""For what a byte of a checkpoint takes."""
_WORKLOAD = Workload(seq_len=64, global_batch_size=16)
_NAME = "two-nodes"

_SETTINGS = TrialSettings(
    warmup_steps=1,
    max_warmup_steps=1,
    measured_steps=3,
    max_measured_steps=12,
    measuring_budget_s=5.0,
    profiled_steps=0,
    max_repeats=0,
    timeout_s=120.0,
)
_TEST = SequentialTest(tolerance=0.05, loss=0.2, max_runs=8)
"""Cores that others use scatter by several percent; the layouts differ by a multiple."""


# ---------------------------------------------------------------- the retune
def layouts_by_retune(
    nodes: TwoNodes, cluster: Cluster, num_trials: int
) -> tuple[Layout, Layout, list[dict[str, Any]]]:
    """The layout in use on the fast link and on the slow one, as a retune finds them; what was stored of its trials."""
    store, clock = memory_store(), SystemClock()
    store.descriptions.save(cluster)
    retuning = Retuning(store, clock)
    scheduler = RetuneScheduler(store, clock, dict)
    sweeps = sweep_worker(store, NodesLauncher(nodes), clock, owner="bench", lease_s=600.0)
    kind = retune_kind(store)
    runs = Worker(store.runs, {kind.name: kind}, clock, owner="bench-runs", lease_s=600.0, shutdown=Event())
    request = RetuneRequest(
        name="phases",
        cron="0 0 1 1 *",
        template=SweepRequest(
            job=_job(cluster),
            space=default_space(_job(cluster)).with_axes(**_AXES),
            budget=Budget(num_trials=num_trials, min_gain=0.0),
            trial=_SETTINGS,
        ),
        test=_TEST,
        on_new_links=True,
        adopts=True,
    )
    retuning.add(request)
    retuning.run_now("phases")
    first = _concluded(store, sweeps, runs)
    nodes.shape(_SLOW_BITS_PER_S)
    measured = _bandwidth_bytes_per_s(nodes)
    _say(f"the link was changed by tc; a probe sees {8e-6 * measured:.1f} Mbit/s, and the stored cluster is told")
    ailing = LinkHealth(link_class="inter_node", bandwidth_bytes_per_s=measured, source="a probe between both nodes")
    store.descriptions.remove(Cluster, _NAME)
    store.descriptions.save(replace(cluster, link_health=(ailing,)))
    scheduler.step()  # hears of the links, and begins a run
    second = _concluded(store, sweeps, runs)
    return first, second, [_stored(store, run) for run in reversed(store.retunes.runs("phases")[0])]


_AXES: dict[str, tuple[int, ...] | None] = {
    "tensor_parallel_degree": (1,),
    "context_parallel_degree": (1,),
    "precision": (Precision.FP32,),
    "attention_kernel": (AttentionKernel.MATH,),
    "recompute": (Recompute.NONE,),
    "compiled": (False,),
    "pipeline_schedule": (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B),
    "p2p_transport": (P2PTransport.INLINE,),
}
"""Tensor ranks on cores take several times as long as any other; the others would only be more trials."""


def _concluded(store: Store, *workers: Worker) -> Layout:
    for worker in workers:
        while worker.run_once():
            pass
    run, *_ = store.retunes.runs("phases")[0]
    assert run.result is not None
    _say(f"retune, begun by {run.request.trigger}: {run.result.verdict}: {run.detail}")
    for sentence in explanation(run.result, "UTC"):
        _say(f"  {sentence}")
    incumbent = store.retunes.get("phases").incumbent
    assert incumbent is not None
    return incumbent


def _stored(store: Store, run: RetuneRun) -> dict[str, Any]:
    """A run as the store has it, with the step times of its trials."""
    trials = store.all_trials(run.child_id or "")
    steps = [(str(one.layout), one.measurement.step_time_s) for one in trials if one.measurement is not None]
    return {
        "trigger": run.request.trigger.value,
        "verdict": run.result.verdict.value if run.result else None,
        "trials": [{"layout": label, "step_s": round(step_s, 4)} for label, step_s in steps],
    }


# ---------------------------------------------------------------- the training
@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Steps of the training that one set of ranks does."""

    layout: Layout
    first_step: int
    num_steps: int
    model: TransformerSpec = field(default_factory=lambda: _MODEL)
    """What is trained."""
    pauses_at: int | None = None
    """The step before which the ranks wait for the link to be changed; None: before none."""
    begins_from: Path | None = None
    """The checkpoint that it goes on from."""
    ends_in: Path | None = None
    """Where it leaves one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a rank saw of a leg."""

    ready_s: float
    """From the fork until its first step could begin, but for the checkpoint."""
    step_s: tuple[float, ...]
    """Of each step."""
    losses: tuple[float, ...]
    load_s: float = 0.0
    """0 where nothing was loaded."""
    save_s: float = 0.0
    """0 where nothing was saved."""
    own_bytes: int = 0
    """Of the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A whole training."""

    name: str
    total_s: float
    """From the first fork to the end of the last rank."""
    legs: tuple[Ran, ...]
    """What rank 0 saw of each."""

    @property
    def losses(self) -> tuple[float, ...]:
        """Of every step."""
        return tuple(loss for leg in self.legs for loss in leg.losses)


def static(nodes: TwoNodes, layout: Layout, fast_bits_per_s: float, steps: tuple[int, int]) -> Training:
    """The training in one layout: the link changes under it."""
    nodes.shape(fast_bits_per_s)
    with TemporaryDirectory(dir="/dev/shm") as shared:
        leg = Leg(layout=layout, first_step=0, num_steps=sum(steps), pauses_at=steps[0])
        began = time.perf_counter()
        changer = threading.Thread(target=_change_link, args=(nodes, Path(shared)))
        changer.start()
        ran = _run_leg(nodes, leg, Path(shared))
        changer.join()
        return Training(name=f"stays in {layout}", total_s=time.perf_counter() - began, legs=(ran,))


def switched(
    nodes: TwoNodes, layouts: tuple[Layout, Layout], fast_bits_per_s: float, steps: tuple[int, int]
) -> Training:
    """The training that leaves a checkpoint when the link changes, and goes on from it in the other layout."""
    nodes.shape(fast_bits_per_s)
    with TemporaryDirectory(dir="/dev/shm") as shared:
        checkpoint = Path(shared) / "checkpoint"
        first = Leg(layout=layouts[0], first_step=0, num_steps=steps[0], ends_in=checkpoint)
        second = Leg(layout=layouts[1], first_step=steps[0], num_steps=steps[1], begins_from=checkpoint)
        began = time.perf_counter()
        before = _run_leg(nodes, first, Path(shared))
        nodes.shape(_SLOW_BITS_PER_S)
        behind = _run_leg(nodes, second, Path(shared))
        name = f"switches from {layouts[0]} to {layouts[1]}"
        return Training(name=name, total_s=time.perf_counter() - began, legs=(before, behind))


def switch_rates(nodes: TwoNodes, fast_bits_per_s: float) -> None:
    """Print what a switch of two sizes of the model takes, and so what its start and each byte do."""
    nodes.shape(fast_bits_per_s)
    layout = replace(Layout(), data_parallel_shard_degree=_NUM_RANKS, shard_level=ShardLevel.PARAMETERS)
    layout = replace(layout, micro_batch_size=4, precision=Precision.FP32, attention_kernel=AttentionKernel.MATH)
    found = []
    for model in (_MODEL, _LARGER):
        with TemporaryDirectory(dir="/dev/shm") as shared:
            checkpoint = Path(shared) / "checkpoint"
            leg = Leg(layout=layout, first_step=0, num_steps=1, model=model)
            saved = _run_leg(nodes, replace(leg, ends_in=checkpoint), Path(shared))
            loaded = _run_leg(nodes, replace(leg, begins_from=checkpoint, first_step=1), Path(shared))
        found.append((saved.own_bytes, saved.save_s, loaded.load_s, loaded.ready_s))
        each = f"{saved.own_bytes / 1e6:.1f} MB per rank saved in {saved.save_s:.2f} s, loaded in {loaded.load_s:.2f} s"
        _say(f"{model.name}: {each}, new ranks stood after {loaded.ready_s:.2f} s")
    (few, few_save_s, few_load_s, _), (many, many_save_s, many_load_s, _) = found
    rate = 2 * (many - few) / (many_save_s + many_load_s - few_save_s - few_load_s)
    start_s = few_save_s + few_load_s - 2 * few / rate
    _say(f"a rank writes and reads {rate / 1e6:.0f} MB/s, behind {start_s:.2f} s that no byte takes")


def _change_link(nodes: TwoNodes, shared: Path) -> None:
    while not (shared / "paused").exists():
        time.sleep(0.005)
    nodes.shape(_SLOW_BITS_PER_S)
    (shared / "changed").touch()


def _run_leg(nodes: TwoNodes, leg: Leg, shared: Path) -> Ran:
    began = time.monotonic()
    return on_ranks(_NUM_RANKS, partial(_train, leg, nodes, shared, began))[0]


def _train(leg: Leg, nodes: TwoNodes, shared: Path, began: float, rank: int, folder: Path) -> Ran:
    nodes.enter(2 * rank // _NUM_RANKS)
    info = RankInfo(rank=rank, world_size=_NUM_RANKS, local_rank=rank, local_world_size=_NUM_RANKS)
    device = torch.device("cpu")
    pin(own_core(info))
    torch.set_num_threads(1)
    join_process_group(device, info, timeout_s=120.0, store=FileStore(str(folder / "store"), _NUM_RANKS))
    spec = _spec(leg)
    grid = Grid(leg.layout, device)
    stages = parallel_stages(spec, grid, device)
    step = build_step(spec, stages, grid, device, Stopwatch(device))
    checkpoints = Checkpoints(spec, stages, step.optimizer, grid)
    dist.barrier()
    ran = Ran(ready_s=time.monotonic() - began, step_s=(), losses=())
    if leg.begins_from is not None:
        loaded = checkpoints.load(leg.begins_from)
        ran = replace(ran, load_s=loaded.seconds, own_bytes=loaded.own_bytes)
    for number in range(leg.first_step, leg.first_step + leg.num_steps):
        if number == leg.pauses_at:
            _wait_for_link(shared)
        at = time.perf_counter()
        own = batch(
            spec, step=number, data_parallel_rank=grid.data_parallel_rank, device=device, part=context_part(grid)
        )
        loss = step(own, number=number)
        ran = replace(ran, losses=(*ran.losses, loss), step_s=(*ran.step_s, time.perf_counter() - at))
    if leg.ends_in is not None:
        saved = checkpoints.save(leg.ends_in)
        ran = replace(ran, save_s=saved.seconds, own_bytes=saved.own_bytes)
    return ran


def _wait_for_link(shared: Path) -> None:
    dist.barrier()
    (shared / "paused").touch()
    while not (shared / "changed").exists():
        time.sleep(0.005)


# ---------------------------------------------------------------- both
def _job(cluster: Cluster) -> Job:
    return Job(model=_MODEL, cluster=cluster, workload=_WORKLOAD)


def _spec(leg: Leg) -> TrialSpec:
    return TrialSpec(trial_id="phases", model=leg.model, workload=_WORKLOAD, layout=leg.layout, device="cpu")


def _cluster(bytes_per_s: float) -> Cluster:
    """This machine's cores as two nodes."""
    cores = detect_cluster()
    between = Link(name="veth", bandwidth_bytes_per_s=bytes_per_s / 2, latency_s=1e-4)
    return replace(cores, name=_NAME, num_nodes=2, accelerators_per_node=_NUM_RANKS // 2, inter_node_link=between)


def _bandwidth_bytes_per_s(nodes: TwoNodes) -> float:
    """What one rank of either node gets of the link, by a message that it sends."""

    def probed(rank: int, folder: Path) -> float:
        nodes.enter(rank)
        info = RankInfo(rank=rank, world_size=2, local_rank=rank, local_world_size=2)
        join_process_group(torch.device("cpu"), info, timeout_s=60.0, store=FileStore(str(folder / "store"), 2))
        times = []
        message = torch.zeros(_PROBE_BYTES, dtype=torch.uint8)
        for _ in range(3):
            dist.barrier()
            at = time.perf_counter()
            dist.broadcast(message, src=0)
            dist.barrier()
            times.append(time.perf_counter() - at)
        return _PROBE_BYTES / min(times)

    return min(on_ranks(2, probed))


def _told(trainings: Sequence[Training], steps: tuple[int, int]) -> None:
    for one in trainings:
        phase_s = [times[-count:] if number else times[:count] for number, (times, count) in _phases(one, steps)]
        medians = " and ".join(f"{1e3 * float(np.median(times)):.0f}" for times in phase_s)
        _say(f"{one.total_s:7.1f} s  {one.name}: median steps {medians} ms, last loss {one.losses[-1]:.4f}")


def _phases(one: Training, steps: tuple[int, int]) -> list[tuple[int, tuple[tuple[float, ...], int]]]:
    first, last = one.legs[0].step_s, one.legs[-1].step_s
    return [(0, (first, steps[0])), (1, (last, steps[1]))]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Live through it; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.two_phases", description=__doc__)
    parser.add_argument("--fast-steps", type=int, default=200)
    parser.add_argument("--slow-steps", type=int, default=8)
    parser.add_argument("--trials", type=int, default=4, help="layouts that each run of the retune tries")
    parser.add_argument("--fast", type=float, default=10e9, help="bit/s of the link in the first phase")
    parser.add_argument("--into", type=Path, help="JSON file for what was measured")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)  # before any operation: a forked rank must not inherit a thread pool
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    steps = chosen.fast_steps, chosen.slow_steps
    with TwoNodes(chosen.fast) as nodes:
        bytes_per_s = _bandwidth_bytes_per_s(nodes)
        _say(f"the link carries {8e-9 * bytes_per_s:.2f} Gbit/s at first")
        cluster = _cluster(bytes_per_s)
        first, second, runs = layouts_by_retune(nodes, cluster, chosen.trials)
        trainings = [
            switched(nodes, (first, second), chosen.fast, steps),
            *(static(nodes, layout, chosen.fast, steps) for layout in dict.fromkeys((first, second))),
        ]
        switch_rates(nodes, chosen.fast)
    _told(trainings, steps)
    switch = _switch_seconds(trainings[0])
    _say(f"the switch: {json.dumps({name: round(value, 3) for name, value in switch.items()})}")
    _say_planned(cluster, trainings, steps, sum(switch.values()))
    if chosen.into:
        found = {"runs": runs, "steps": steps, "switch": switch, "trainings": [asdict(one) for one in trainings]}
        chosen.into.write_text(json.dumps(found) + "\n")
    return _verdict(first, second, trainings)


def _switch_seconds(training: Training) -> dict[str, float]:
    before, behind = training.legs
    return {"save_s": before.save_s, "restart_s": behind.ready_s, "load_s": behind.load_s}


def _say_planned(cluster: Cluster, trainings: Sequence[Training], steps: tuple[int, int], switch_s: float) -> None:
    """What the programme over phases says, of the measured times and of the predicted ones."""
    measured = np.array([[sum(one.legs[0].step_s[: steps[0]]) for one in trainings[1:]]])
    slow = np.array([[sum(one.legs[0].step_s[steps[0] :]) for one in trainings[1:]]])
    course = cheapest_course(np.vstack((measured, slow)), switch_s)
    names = ["the first layout", "the second"]
    _say(f"by measured steps the cheapest course is {' then '.join(names[row] for row in course or ())}")
    tokens = [count * _WORKLOAD.tokens_per_step for count in steps]
    share = tokens[0] / sum(tokens)
    ailing = LinkHealth(link_class="inter_node", bandwidth_bytes_per_s=_SLOW_BITS_PER_S / 8)
    phases = (
        JobPhase(name="fast", token_share=share),
        JobPhase(name="slow", token_share=1.0 - share, link_health=(ailing,)),
    )
    cost = SwitchCost(restart_s=switch_s, storage_bytes_per_s=1e12)
    phased = PhasedJob(job=_job(cluster), num_tokens=float(sum(tokens)), phases=phases, switch=cost)
    plan = plan_phases(PhasesQuestion(phased=phased, axes=_AXES))
    for choice in plan.best.choices:
        _say(f"predicted for the phase {choice.phase}: {choice.label}, {1e3 * choice.step_s:.0f} ms per step")
    _say(f"predicted: {plan.best.total_s:.1f} s; {list(course_in_words(plan))[-1]}")


def _verdict(first: Layout, second: Layout, trainings: Sequence[Training]) -> int:
    switching, *statics = trainings
    # sums in another order, over hundreds of steps of AdamW
    learns = all(abs(one.losses[-1] / switching.losses[-1] - 1) < 0.01 for one in statics)
    bounds = {
        "the retune picks another layout for the second phase": first != second,
        "the training that switches is done before either that stays": all(
            switching.total_s < one.total_s for one in statics
        ),
        "its last loss is theirs within 1 %": learns,
    }
    for bound, holds in bounds.items():
        _say(f"{'holds' if holds else 'DOES NOT HOLD'}: {bound}")
    return 0 if all(bounds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
