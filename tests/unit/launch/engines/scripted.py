"""An engine whose jobs go through the phases, and print the lines, that a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from autotuner.core.cluster import Cluster
from autotuner.core.node_line import PREFIX
from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import EngineRefused, JobOrder, JobStatus, check_exist
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.engines.processes import ProcessEngine, ProcessSettings
from autotuner.launch.engines.registration import EngineRegistration, EngineSettings, Kind
from tests.trainers.registered import registered

QUEUED, RUNNING = JobStatus(phase=EngineJobPhase.QUEUED), JobStatus(phase=EngineJobPhase.RUNNING)
ENDED, LOST = JobStatus(phase=EngineJobPhase.ENDED), JobStatus(phase=EngineJobPhase.LOST, detail="node 7 is down")


class Scripted:
    """An engine whose every job goes through the same phases, and prints the same.

    Attributes:
        orders: Jobs that it was given.
        ended: Handles of those that were cancelled, and of those that were forgotten.
    """

    def __init__(self, *phases: JobStatus | Exception, printed: Callable[[int], bytes] = lambda node_rank: b"") -> None:
        self._phases = phases
        self._printed = printed
        self._looks: dict[str, Iterator[JobStatus | Exception]] = {}
        self.orders: dict[str, JobOrder] = {}
        self.cancelled: list[str] = []
        self.forgotten: list[str] = []
        self.refusal: EngineRefused | None = None

    def refuses(self, cluster: Cluster) -> str | None:
        return f"{cluster.name} is too large" if cluster.num_nodes > 2 else None

    def check(self, queues: Sequence[str] = ()) -> str:
        check_exist("queue", queues, ("cpu", "gpu"))
        return "scripted"

    def submit(self, order: JobOrder) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.orders[order.name] = order
        return f"#{len(self.orders)} {order.name}"

    def find(self, name: str) -> str | None:
        del name
        return None

    def look(self, handle: str) -> JobStatus:
        looks = self._looks.setdefault(handle, iter(self._phases))
        status = next(looks, self._phases[-1])
        if isinstance(status, Exception):
            raise status
        return status

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        del handle
        return self._printed(node_rank)[offset:]

    def cancel(self, handle: str) -> bool:
        self.cancelled.append(handle)
        return True

    def forget(self, handle: str) -> None:
        self.forgotten.append(handle)

    def close(self) -> None:
        pass


def told(**document: Any) -> bytes:
    return PREFIX + json.dumps(document).encode() + b"\n"


def launcher(tmp_path: Path, engine: Scripted, **settings: Any) -> EngineLauncher:
    common = EngineSettings(**{"poll_s": 0.01, "patience_s": 0.2, **settings})
    kind = Kind(ProcessSettings, ProcessEngine)
    own = ProcessSettings(folder=str(tmp_path))
    registration = EngineRegistration(name="scripted", kind="processes", settings=common, own=own, make=kind)
    trainers = {one.trainer.name: one for one in (registered(),)}
    return EngineLauncher(registration, trainers, engine)
