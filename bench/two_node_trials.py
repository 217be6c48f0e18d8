"""Trials of our own decoder on two nodes of this machine, joined by a shaped link (``bench.two_nodes``; needs root)."""

from __future__ import annotations

import json
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core import codec
from autotuner.core.cluster import Cluster
from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.contract import TrialWatcher
from bench.forked_ranks import on_ranks
from bench.two_nodes import TwoNodes
from trials.job.attempt import attempt
from trials.runtime.rank import RankInfo
from trials.runtime.report import Reporter


def measured(spec: TrialSpec, nodes: TwoNodes) -> Measurement:
    """What a trial measures whose ranks lie half on the one node and half on the other.

    Raises:
        RuntimeError: It failed; with what its ranks reported.
    """
    found, *_ = on_ranks(spec.layout.world_size, partial(_of_rank, spec, nodes))
    assert found is not None
    return found


def _of_rank(spec: TrialSpec, nodes: TwoNodes, rank: int, folder: Path) -> Measurement | None:
    size = spec.layout.world_size
    nodes.enter(rank // (size // 2))
    reports = folder / "reports.jsonl"
    info = RankInfo(rank=rank, world_size=size, local_rank=rank, local_world_size=size, ranks_per_node=size // 2)
    code = attempt(codec.dumps(spec), Reporter(reports, rank=rank), info, store=FileStore(str(folder / "store"), size))
    if code != 0:
        raise RuntimeError(reports.read_text())
    return _measurement(reports) if rank == 0 else None


def _measurement(reports: Path) -> Measurement:
    for line in reports.read_text().splitlines():
        found: dict[str, Any] = json.loads(line)
        if found.pop("type") == "measurement":
            return codec.from_plain(Measurement, found)
    raise RuntimeError("the trial measured nothing")


class TwoNodeLauncher:
    """A ``Launcher`` of trials on both nodes; a process of a single thread, which it keeps, forks their ranks."""

    def __init__(self, bits_per_s: float | None) -> None:
        """Nodes whose link carries so much each way."""
        context = get_context("fork")
        self._asked, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far, bits_per_s))  # before anybody else starts a thread
        self._process.start()

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Clusters of other than two nodes, and trainers that are not our decoder."""
        if trainer is not None:
            return f"only our own decoder runs between these nodes, not {trainer.name}"
        return None if cluster.num_nodes == 2 else f"{cluster.name} has {cluster.num_nodes} node(s), and these are two"

    def capacity(self, cluster: Cluster) -> int:
        """One at a time: trials would share the link."""
        del cluster
        return 1

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """See ``Launcher``; a trial is asked to stop before it begins, and else runs to its end."""
        if stopped := watcher.stop_requested():
            return stopped
        self._asked.send(codec.dumps(spec))
        measurement, words = self._asked.recv()
        if measurement is None:
            return TrialFailure(kind=FailureKind.CRASH, message=words.strip().splitlines()[-1])
        return codec.loads(Measurement, measurement)

    def close(self) -> None:
        """End the process, and with it the nodes."""
        self._process.terminate()
        self._process.join()


def _serve(asked: Connection, bits_per_s: float | None) -> None:
    """Run trials as they are asked for, until nobody asks any more."""
    with TwoNodes(bits_per_s) as nodes:
        while True:
            try:
                spec = codec.loads(TrialSpec, asked.recv())
            except EOFError:
                return
            asked.send(_answer(spec, nodes))


def _answer(spec: TrialSpec, nodes: TwoNodes) -> tuple[str | None, str]:
    """The measurement as JSON, or why there is none."""
    try:
        return codec.dumps(measured(spec, nodes)), ""
    except RuntimeError as error:
        return None, str(error)
