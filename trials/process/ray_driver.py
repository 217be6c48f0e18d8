"""The entry point of a job on Ray, ``python -m autotuner.trials.process.ray_driver``; it runs on the cluster itself.

It waits for a placement group with one bundle on each node of the job, starts an actor in each bundle,
which runs ``python -m autotuner.trials.process.node``, and passes on what these print. It prints all its reports, so
that they can be read from the job's log at any time. They are lines ``#MARK {json}``, in order, of these forms:

* ``{"phase": "queued", "detail": WHY}``: resources are not free yet, or actors are being started;
* ``{"phase": "running"}``: the nodes run from now on;
* ``{"node": RANK, "text": TEXT}``: output of a node, one character (Latin-1) for each byte;
* ``{"phase": "ended" | "lost", "detail": HOW}`` last: no process of the job is left. With ``"was_stopped": true``, Ray
  asked this process to end before any node had failed.

To stop the job, Ray sends SIGTERM. If this process is killed, Ray kills its actors, and these kill their nodes.
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
"""Environment variable with the order: JSON, compressed and in base64, because Ray embeds it in other JSON several
times."""

_WAIT_S = 0.1
_PATIENCE_S = 10.0

_STOP_S = 8.0
"""Seconds that nodes get to end everything that they started; their supervisors need less than half of it."""

_BEREFT_S = 5.0
"""Seconds that nodes get to end by themselves after one has failed, because their ranks may wait for ranks that are
gone."""

_OUTLAST_S = 8.0
"""Maximum seconds for which a node's processes outlive its Ray daemon: a worker of Ray looks for it once a second, the
supervisor below it waits three seconds, and the machine may be busy."""

_LOOKING = "Ray looks for {num_nodes} nodes with {bundle} each"

_WAITING = {
    "INFEASIBLE": "Ray does not have {num_nodes} nodes with {bundle} each",
    "NO_RESOURCES": "fewer than {num_nodes} nodes have {bundle} free",
}
"""Explanations of the states in which a placement group waits, by Ray's name of the state."""


class _Over(Exception):
    """Raised when the job is over; it carries the job's last phase."""

    def __init__(self, phase: str, detail: str) -> None:
        super().__init__(detail)
        self.phase = phase


def main() -> int:
    """Run the Ray job that an environment variable describes, from waiting for its nodes to its end.

    The outcome of the job is printed. The exit code is 0, even if the job failed.
    """
    order = json.loads(zlib.decompress(base64.b64decode(os.environ.pop(ORDER))))
    ray.init(address="auto", log_to_driver=False, logging_level="error")
    ray.cloudpickle.register_pickle_by_value(ray_node)
    _Driver(order).run()
    ray.shutdown()
    return 0


class _Driver:
    """The whole job, from waiting for resources to its end."""

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
        """Run the job, from waiting for resources to its end."""
        try:
            group = self._placed()
            self._start(group)
            self._follow()
        except _Over as over:
            self._end(over.phase, str(over))
        except RayError as error:
            self._end("lost", _in_a_line(error))

    def _placed(self) -> PlacementGroup:
        """Return a placement group with one bundle on each node, when resources are free."""
        group = placement_group([self._bundle] * self._num_nodes, strategy="STRICT_SPREAD")
        while not group.wait(_WAIT_S):
            self._leave_if_told()
            self._say(phase="queued", detail=self._why_waiting(group))
        self._say(phase="queued", detail="Ray is starting the actors")
        return group

    def _why_waiting(self, group: PlacementGroup) -> str:
        state = placement_group_table(group).get("stats", {}).get("scheduling_state", "")
        bundle = ", ".join(f"{amount:g} {name}" for name, amount in self._bundle.items())
        return _WAITING.get(state, "Ray looks for {num_nodes} nodes with {bundle} each").format(
            num_nodes=self._num_nodes, bundle=bundle
        )

    def _start(self, group: PlacementGroup) -> None:
        """Start an actor in each bundle, and the node's program in each actor."""
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
        """Return the actors' answers when all of them have answered."""
        while len(ray.wait(asked, num_returns=len(asked), timeout=_WAIT_S)[0]) < len(asked):
            self._leave_if_told()
        answers: list[Any] = ray.get(asked)
        return answers

    def _follow(self) -> None:
        """Pass on the nodes' output until all nodes have ended or have failed to end in time."""
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
                raise _Over("lost", f"{len(reads)} of {self._num_nodes} nodes did not end when they were asked to end")
        raise _Over("lost", self._lost) if self._lost else _Over("ended", self._failed)

    def _is_running(self, rank: int, read: Any) -> bool:
        """Pass on the output of a node; return False after the last of it."""
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
        """Ask every node to end; do so only once."""
        self._stop_at = float("inf")
        if self._give_up_at == float("inf"):
            self._give_up_at = now + _STOP_S
            for node in self._nodes:
                node.stop.remote()

    def _end(self, phase: str, detail: str) -> None:
        """Make sure that no process of a node is left, and report how the job ended."""
        if phase == "lost" and self._nodes:
            for node in self._nodes:
                ray.kill(node)
            time.sleep(_OUTLAST_S)
        self._say(phase=phase, detail=detail, was_stopped=self._was_stopped)

    def _leave_if_told(self) -> None:
        if self._told_to_end.is_set():
            self._was_stopped = True
            raise _Over("ended", "the job was stopped before its nodes started")

    def _asked_to_end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._told_to_end.set()

    def _say(self, **said: Any) -> None:
        """Print the state of the job, unless it was the last one printed."""
        if said != self._said:
            self._print(said)
        self._said = said

    def _print(self, document: dict[str, Any]) -> None:
        """Print a document on a line of its own, also if the line before was not ended."""
        rest = f"#{self._mark} {json.dumps(document)}\n".encode()
        while rest:
            rest = rest[os.write(1, rest) :]


def _in_a_line(error: Exception) -> str:
    """Return Ray's message for an error on one line, without the details on its other lines."""
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line and not line.partition(" ")[0].endswith(":"))


if __name__ == "__main__":
    sys.exit(main())
