"""A launcher whose trials run between two nodes on this machine (``bench.two_nodes``), half of the ranks on each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core import codec
from autotuner.core.cluster import Cluster
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.contract import TrialWatcher
from bench.forked_ranks import on_ranks
from bench.two_nodes import TwoNodes
from trials.job.attempt import attempt
from trials.runtime.rank import RankInfo
from trials.runtime.report import Reporter

T = TypeVar("T")


class NodesLauncher:
    """Runs each trial to its end on ranks that are forked from this process; a stop is heard before a trial alone."""

    def __init__(self, nodes: TwoNodes) -> None:
        self._nodes = nodes

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """What does not lie on two nodes, and trainers."""
        if cluster.num_nodes != 2 or trainer is not None:
            return "only trials of our own decoder on two nodes run between these"
        return None

    def capacity(self, cluster: Cluster) -> int:
        """One: they share the link."""
        del cluster
        return 1

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Run the trial, and pass its steps on once it has ended."""
        if stopped := watcher.stop_requested():
            return stopped
        try:
            lines, *_ = on_ranks(spec.layout.world_size, partial(self._of_rank, spec))
        except RuntimeError as error:
            return TrialFailure(kind=FailureKind.CRASH, message=str(error)[-400:])
        for step in _reported(lines, StepReport, "step"):
            watcher.on_step(step)
        return next(_reported(lines, Measurement, "measurement"))

    def close(self) -> None:
        """Nothing is kept."""

    def _of_rank(self, spec: TrialSpec, rank: int, folder: Path) -> list[dict[str, Any]]:
        num_ranks = spec.layout.world_size
        self._nodes.enter(2 * rank // num_ranks)
        reports = folder / "reports.jsonl"
        info = RankInfo(rank=rank, world_size=num_ranks, local_rank=rank, local_world_size=num_ranks)
        store = FileStore(str(folder / "store"), num_ranks)
        if attempt(codec.dumps(spec), Reporter(reports, rank=rank), info, store=store):
            raise RuntimeError(reports.read_text())
        return [json.loads(line) for line in reports.read_text().splitlines()] if rank == 0 else []


def _reported(lines: list[dict[str, Any]], kind: type[T], name: str) -> Iterator[T]:
    found = ({key: value for key, value in line.items() if key != "type"} for line in lines if line["type"] == name)
    return (codec.from_plain(kind, one) for one in found)
