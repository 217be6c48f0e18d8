"""Layers chosen together, on two nodes of two ranks over 200 Mbit/s: ``python -m bench.cross_layer`` (needs root).

``collectives`` sums 8 MiB over all ranks by each algorithm, hierarchy and placement, and prints what a node sent by its
interface's counters and what a sum took, beside theory; its bound are bytes within 8 % of theory. ``sweeps`` has our
own trial job tried with each of them: a sweep over algorithm, hierarchy and placement together, and one over algorithm
and one over placement alone, the others as in the worst start; its bounds are that the joint sweep picks two levels,
and that neither algorithm nor placement alone gains as much from that start.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple

import optuna
import structlog
import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import (
    AttentionKernel,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    Precision,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.core.placement import Nodes
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Trial
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.units import MIB
from autotuner.core.workload import Workload
from autotuner.launch.contract import Launcher
from autotuner.runs.clock import SystemClock
from autotuner.store.schema import migrate
from autotuner.store.sql import Store, memory_store, open_store
from autotuner.training.ring_and_tree import branches
from autotuner.training.two_level import communicator_of
from bench.forked_ranks import on_ranks
from bench.sweeping import sweep_worker
from bench.two_node_trials import TwoNodeLauncher
from bench.two_nodes import TwoNodes

_BITS_PER_S = 200e6
_NUM_RANKS, _RANKS_PER_NODE = 4, 2
_SUMMED_BYTES = 8 * MIB
_NUM_SUMS = 6
"""One to connect, which nobody times, and five whose median counts."""

_ALGORITHMS = (CollectiveAlgorithm.AUTO, CollectiveAlgorithm.RING, CollectiveAlgorithm.TREE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How ranks sum, by the three layers under the strategy that choose it."""

    algorithm: CollectiveAlgorithm
    hierarchy: CollectiveHierarchy
    placement: RankPlacement

    def __str__(self) -> str:
        return f"{self.algorithm.label:5} {self.hierarchy.label:10} {self.placement.label:7}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One way, measured."""

    sent: float
    """What the busier node's interface sent per sum, as a multiple of the bytes summed."""
    seconds: float
    """From the first rank that began to the last one that had its sum."""


def theory_of(way: Way) -> float:
    """What a node sends of the bytes summed, headers aside.

    Each of a ring's edges carries 2 (n - 1) / n: one of them leaves a node where neighbours share it, else both do.
    Each edge of two trees carries half both ways. On two levels two ranks send half of the bytes each, whichever way
    two of them take, 2 (N - 1) / N times over N nodes.
    """
    if way.hierarchy == CollectiveHierarchy.TWO_LEVEL:
        return 2 * (1 / 2)
    nodes = Nodes(num_nodes=2, ranks_per_node=_RANKS_PER_NODE, placement=way.placement)
    if way.algorithm == CollectiveAlgorithm.TREE:
        edges = [
            (rank, branch.parent)
            for rank in range(_NUM_RANKS)
            for branch in branches(rank, _NUM_RANKS)
            if branch.parent is not None
        ]
        return sum(0.5 for one, other in edges if nodes.node_of(one) != nodes.node_of(other))
    leaving = [rank for rank in range(_NUM_RANKS) if nodes.node_of(rank) != nodes.node_of((rank + 1) % _NUM_RANKS)]
    return len(leaving) / 2 * 2 * (_NUM_RANKS - 1) / _NUM_RANKS


def collectives() -> bool:
    """Print bytes and times of every way; whether the bytes are those of theory."""
    _say("one sum of 8 MiB            node sends   theory      takes   bytes / bandwidth")
    holds = True
    with TwoNodes(_BITS_PER_S) as nodes:
        for way in _ways():
            seen = _seen(on_ranks(_NUM_RANKS, partial(_sum_up, way, nodes)))
            theory = theory_of(way)
            line_s = seen.sent * _SUMMED_BYTES * 8 / _BITS_PER_S
            holds &= abs(seen.sent / theory - 1) <= 0.08
            _say(f"{way}  {seen.sent:6.2f} M   {theory:5.2f} M  {1e3 * seen.seconds:6.0f} ms  {1e3 * line_s:6.0f} ms")
    return holds


def _ways() -> Iterator[Way]:
    for placement, hierarchy, algorithm in product(RankPlacement, CollectiveHierarchy, _ALGORITHMS):
        yield Way(algorithm=algorithm, hierarchy=hierarchy, placement=placement)


class _Rank(NamedTuple):
    """What a rank saw: bytes that the busier node sent in all timed sums, and when its own began and ended."""

    sent_bytes: int
    began_s: list[float]
    ended_s: list[float]


def _seen(ranks: Sequence[_Rank]) -> Seen:
    """The ranks' clocks are one, that of the machine."""
    began_s = map(min, zip(*(rank.began_s for rank in ranks), strict=True))
    ended_s = map(max, zip(*(rank.ended_s for rank in ranks), strict=True))
    times_s = [end - begin for begin, end in zip(began_s, ended_s, strict=True)]
    return Seen(sent=ranks[0].sent_bytes / _SUMMED_BYTES / len(times_s), seconds=median(times_s))


def _sum_up(way: Way, shaped: TwoNodes, process: int, folder: Path) -> _Rank:
    node, local_rank = divmod(process, _RANKS_PER_NODE)
    shaped.enter(node)
    torch.set_num_threads(1)
    nodes = Nodes(num_nodes=2, ranks_per_node=_RANKS_PER_NODE, placement=way.placement)
    dist.init_process_group(
        "gloo",
        store=FileStore(str(folder / "store"), _NUM_RANKS),
        rank=nodes.number_of(node, local_rank),
        world_size=_NUM_RANKS,
        timeout=timedelta(seconds=120.0),
    )
    everybody = communicator_of(
        [range(_NUM_RANKS)],
        nodes,
        hierarchy=way.hierarchy,
        algorithm=way.algorithm,
        device=torch.device("cpu"),
    )
    tensor = torch.ones(_SUMMED_BYTES // 4)
    began_s, ended_s = [], []
    sent_bytes = [0, 0]
    for number in range(_NUM_SUMS):
        dist.barrier()
        if number == 1:
            sent_bytes = [shaped.sent_bytes(each) for each in range(2)]
        began_s.append(time.monotonic())
        everybody.all_reduce(tensor).wait()
        ended_s.append(time.monotonic())
    dist.barrier()
    sent_bytes = [shaped.sent_bytes(each) - before for each, before in enumerate(sent_bytes)]
    return _Rank(max(sent_bytes), began_s[1:], ended_s[1:])


# ---------------------------------------------------------------- sweeps of trials
_MODEL = TransformerSpec(
    name="2M", num_layers=2, hidden_size=256, num_heads=4, num_kv_heads=4, head_dim=64, ffn_size=768, vocab_size=256
)
"""Of 8 MB of gradients in fp32, about what ``collectives`` sums."""

_WORKLOAD = Workload(seq_len=16, global_batch_size=4)
"""Few tokens, so that a step is its all-reduce: it is the network's layers that are judged."""

_SETTINGS = TrialSettings(
    warmup_steps=1,
    max_warmup_steps=1,
    measured_steps=4,
    max_measured_steps=4,
    profiled_steps=0,
    max_repeats=0,
    timeout_s=300.0,
)

_WORST = Way(algorithm=CollectiveAlgorithm.AUTO, hierarchy=CollectiveHierarchy.FLAT, placement=RankPlacement.CYCLIC)
"""Where somebody begins who tunes one layer: ranks dealt in turn, as Slurm does unasked, and torch's own ring."""

_SPACES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "algorithm alone": {"collective_algorithm": _ALGORITHMS},
    "placement alone": {"rank_placement": tuple(RankPlacement)},
    "together": {
        "collective_algorithm": _ALGORITHMS,
        "collective_hierarchy": tuple(CollectiveHierarchy),
        "rank_placement": tuple(RankPlacement),
    },
}


def sweeps(store: Store) -> bool:
    """Print what each sweep found; whether together they find two levels, and more than either layer alone."""
    found = {}
    with closing(TwoNodeLauncher(_BITS_PER_S)) as launcher:
        for name, axes in _SPACES.items():
            trials = _tried(_request(axes), launcher, store)
            _say("", f"{name}, sweep {trials[0].sweep_id}")
            for trial in trials:
                assert trial.measurement is not None, trial.failure
                _say(f"  {_way(trial)}  {1e3 * trial.measurement.step_time_s:6.0f} ms per step")
            found[name] = trials
    start_s = next(_step_s(trial) for trial in found["together"] if _way(trial) == _WORST)
    gains = {name: start_s / _step_s(trials[0]) for name, trials in found.items()}
    _say("", "gain over the worst start: " + ", ".join(f"{name} {gain:.2f} times" for name, gain in gains.items()))
    picked = _way(found["together"][0])
    return picked.hierarchy == CollectiveHierarchy.TWO_LEVEL and gains["together"] == max(gains.values())


def _request(axes: Mapping[str, tuple[int, ...]]) -> SweepRequest:
    cluster = load_cluster(f"cpu:2x{_RANKS_PER_NODE}")
    inside, of_rank = replace(cluster.intra_node_link, measured=()), _BITS_PER_S / 8 / _RANKS_PER_NODE
    link = replace(inside, name="200 Mbit/s", bandwidth_bytes_per_s=of_rank, efficiency=1.0)
    cluster = replace(cluster, intra_node_link=inside, inter_node_link=link)  # what was timed was this machine alone
    plain: dict[str, tuple[int, ...]] = {
        "collective_algorithm": (_WORST.algorithm,),
        "collective_hierarchy": (_WORST.hierarchy,),
        "rank_placement": (_WORST.placement,),
    }
    return SweepRequest(
        job=Job(model=_MODEL, cluster=cluster, workload=_WORKLOAD),
        space=SearchSpace(
            pipeline_parallel_degree=(1,),
            tensor_parallel_degree=(1,),
            data_parallel_shard_degree=(1,),
            shard_level=(ShardLevel.NONE,),
            micro_batch_size=(1,),
            gradient_bucket_bytes=(32 * MIB,),  # all gradients in one, so that a step has one all-reduce
            precision=(Precision.FP32,),
            attention_kernel=(AttentionKernel.MATH,),
            recompute=(Recompute.NONE,),
            **{**plain, **axes},
        ),
        budget=Budget(num_trials=12, min_gain=0.0, prune_below=0.0),
        trial=_SETTINGS,
        uses_history=False,
    )


def _tried(request: SweepRequest, launcher: Launcher, store: Store) -> list[Trial]:
    """The trials of a sweep, the best first."""
    clock = SystemClock()
    sweep, _ = store.create_sweep(request, now=clock.now())
    sweep_worker(store, launcher, clock, owner="bench", lease_s=600.0).run_once()
    return request.objective.ranked(store.all_trials(sweep.id))


def _way(trial: Trial) -> Way:
    layout = trial.layout
    return Way(
        algorithm=layout.collective_algorithm,
        hierarchy=layout.collective_hierarchy,
        placement=layout.rank_placement,
    )


def _step_s(trial: Trial) -> float:
    assert trial.measurement is not None
    return trial.measurement.step_time_s


def _store(url: str | None) -> Store:
    if url is None:
        return memory_store()
    migrate(url)
    return open_store(url)


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are named, or both; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.cross_layer", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["collectives", "sweeps"])
    parser.add_argument("--store", help="database that keeps the sweeps, as sqlite:///FILE; in memory where left out")
    given = parser.parse_args(arguments)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # what happens on the way is not asked for
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    holds = True
    if "collectives" in given.parts:
        holds &= collectives()
    if "sweeps" in given.parts:
        holds &= sweeps(_store(given.store))
    _say("every bound holds" if holds else "a bound does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
