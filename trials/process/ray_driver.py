"""The entry point of a job on Ray, ``python -m autotuner.trials.process.ray_driver``; it runs on the cluster itself.

It waits for a placement group with a bundle on each of as many nodes as the job has, starts an actor in each bundle,
which runs ``python -m autotuner.trials.process.node``, and passes on what these print. All that it has to say it
prints, so that it stands in the job's log for whoever asks, then or later: lines ``#MARK {json}``, in order, of these
shapes:

* ``{"phase": "queued", "detail": WHY}``: there is no room yet, or actors are being started;
* ``{"phase": "running"}``: from here on nodes run;
* ``{"node": RANK, "text": TEXT}``: what a node printed, a character (Latin-1) for each byte;
* ``{"phase": "ended" | "lost", "detail": HOW}`` last: no process of the job is left. With ``"was_stopped": true``: Ray
  told this process to end before any node had failed.

Whoever stops the job has Ray send SIGTERM. Where this process is killed, Ray kills its actors, and these their nodes.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
import time
import zlib
from types import FrameType
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from autotuner.trials.process import ray_node

ORDER = "AUTOTUNER_RAY_ORDER"
"""Variable with the order: JSON, deflated and in base64, since Ray writes it into other JSON again and again."""

_WAIT_S = 0.1
_PATIENCE_S = 10.0

_STOP_S = 8.0
"""Time that nodes get to end all that they started; their supervisors need less than half of it."""

_BEREFT_S = 5.0
"""Time that nodes get to end by themselves once one has failed: their ranks may wait for ranks that are gone."""

_OUTLAST_S = 8.0
"""Maximum time for which a node's processes outlast its daemon: a worker of Ray looks for it once a second, the
supervisor below it has a grace of three, and a machine may be busy."""

_LOOKING = "Ray looks for {num_nodes} nodes with {bundle} each"

_WAITING = {
    "INFEASIBLE": "Ray has no {num_nodes} nodes with {bundle} each",
    "NO_RESOURCES": "no {num_nodes} nodes have {bundle} free",
}
"""Ray's states of a placement group that waits."""


class _Over(Exception):
    """The job is over, in that phase."""

    def __init__(self, phase: str, detail: str) -> None:
        super().__init__(detail)
        self.phase = phase


def main() -> int:
    """Run the job that a variable of the environment describes; return 0 when its outcome has been printed."""
    order = json.loads(zlib.decompress(base64.b64decode(os.environ.pop(ORDER))))
    ray.init(address="auto", log_to_driver=False, logging_level="error")
    ray.cloudpickle.register_pickle_by_value(ray_node)
    _Driver(order).run()
    ray.shutdown()
    return 0


class _Driver:
    """The job, from its wait for room to its end."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._mark: str = order["mark"]
        self._task: str = order["task"]
        self._python: str = order["python"]
        self._num_nodes: int = order["num_nodes"]
        self._bundle: dict[str, float] = order["bundle"]
        self._nodes: list[Any] = []
        self._said: dict[str, Any] = {}
        self._failed = ""
        self._lost = ""
        self._was_stopped = False
        self._stop_at = float("inf")
        self._give_up_at = float("inf")
        self._told_to_end = threading.Event()
        signal.signal(signal.SIGTERM, self._asked_to_end)  # in the place of Ray's own, which leaves at once

    def run(self) -> None:
        """Run the job from its wait for room to its end."""
        try:
            group = self._placed()
            self._start(group)
            self._follow()
        except _Over as over:
            self._end(over.phase, str(over))
        except RayError as error:
            self._end("lost", _in_a_line(error))

    def _placed(self) -> PlacementGroup:
        """A bundle on each of the nodes, as soon as there is room."""
        group = placement_group([self._bundle] * self._num_nodes, strategy="STRICT_SPREAD")
        while not group.wait(_WAIT_S):
            self._leave_if_told()
            self._say(phase="queued", detail=self._why_waiting(group))
        self._say(phase="queued", detail="Ray starts the actors")
        return group

    def _why_waiting(self, group: PlacementGroup) -> str:
        state = placement_group_table(group).get("stats", {}).get("scheduling_state", "")
        bundle = ", ".join(f"{amount:g} {name}" for name, amount in self._bundle.items())
        return _WAITING.get(state, "Ray looks for {num_nodes} nodes with {bundle} each").format(
            num_nodes=self._num_nodes, bundle=bundle
        )

    def _start(self, group: PlacementGroup) -> None:
        """Start an actor in each bundle, and the node's part in each."""
        self._nodes = [self._actor(group, rank) for rank in range(self._num_nodes)]
        address, port = self._answers([node.place.remote() for node in self._nodes])[0]
        where = ["--master-address", address, "--master-port", str(port)]
        self._say(phase="running", detail="")
        for rank, node in enumerate(self._nodes):
            node.start.remote(self._python, ["--node-rank", str(rank), *where], self._task)

    def _actor(self, group: PlacementGroup, rank: int) -> Any:
        amounts = dict(self._bundle)
        place = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=rank)
        options = {"num_cpus": amounts.pop("CPU", 0), "num_gpus": amounts.pop("GPU", 0), "resources": amounts}
        actor = ray.remote(ray_node.NodeActor)
        return actor.options(scheduling_strategy=place, max_concurrency=4, **options).remote()

    def _answers(self, asked: list[Any]) -> list[Any]:
        """Return the actors' answers, as soon as all have answered."""
        while len(ray.wait(asked, num_returns=len(asked), timeout=_WAIT_S)[0]) < len(asked):
            self._leave_if_told()
        answers: list[Any] = ray.get(asked)
        return answers

    def _follow(self) -> None:
        """Pass on what nodes print until all have ended, or until they would not."""
        reads = {node.read.remote(_PATIENCE_S): rank for rank, node in enumerate(self._nodes)}
        while reads:
            for read in ray.wait(list(reads), num_returns=len(reads), timeout=_WAIT_S)[0]:
                rank = reads.pop(read)
                if self._is_running(rank, read):
                    reads[self._nodes[rank].read.remote(_PATIENCE_S)] = rank
            now = time.monotonic()
            if self._told_to_end.is_set() or now >= self._stop_at:
                self._was_stopped |= self._told_to_end.is_set() and not self._failed
                self._stop(now)
            if now >= self._give_up_at:
                raise _Over("lost", f"{len(reads)} of {self._num_nodes} nodes did not end when they were asked to")
        raise _Over("lost", self._lost) if self._lost else _Over("ended", self._failed)

    def _is_running(self, rank: int, read: Any) -> bool:
        """Pass on what a node has printed; False after the last of it."""
        try:
            printed = ray.get(read)
        except RayError as error:
            self._lost = self._lost or f"node {rank}: {_in_a_line(error)}"
            self._stop(time.monotonic())
            return False
        if printed["output"]:
            self._print({"node": rank, "text": printed["output"].decode("latin-1")})
        code, last_words = printed["exit_code"], printed["last_words"]
        if code and not self._failed:
            self._failed = f"node {rank} ended with exit code {code}" + (f": {last_words}" if last_words else "")
            self._stop_at = time.monotonic() + _BEREFT_S
        return code is None

    def _stop(self, now: float) -> None:
        """Tell every node to end its part, once."""
        self._stop_at = float("inf")
        if self._give_up_at == float("inf"):
            self._give_up_at = now + _STOP_S
            for node in self._nodes:
                node.stop.remote()

    def _end(self, phase: str, detail: str) -> None:
        """Leave no process of any node, and say how the job ended."""
        if phase == "lost" and self._nodes:
            for node in self._nodes:
                ray.kill(node)
            time.sleep(_OUTLAST_S)
        self._say(phase=phase, detail=detail, was_stopped=self._was_stopped)

    def _leave_if_told(self) -> None:
        if self._told_to_end.is_set():
            self._was_stopped = True
            raise _Over("ended", "stopped before its nodes started")

    def _asked_to_end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._told_to_end.set()

    def _say(self, **said: Any) -> None:
        """Print where the job stands, unless that was the last that was said of it."""
        if said != self._said:
            self._print(said)
        self._said = said

    def _print(self, document: dict[str, Any]) -> None:
        """A line of its own, whatever else was printed before it."""
        rest = f"#{self._mark} {json.dumps(document)}\n".encode()
        while rest:
            rest = rest[os.write(1, rest) :]


def _in_a_line(error: Exception) -> str:
    """Return Ray's words for an error, without the particulars that it puts on lines of their own."""
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line and not line.partition(" ")[0].endswith(":"))


if __name__ == "__main__":
    sys.exit(main())
