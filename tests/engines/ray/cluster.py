"""A real Ray of two nodes on this machine: ``python -m tests.engines.ray.cluster`` starts it and waits for orders.

A process of its own, since Ray sets signal handlers and starts threads where it is imported and used. Prints the
address of the dashboard; then, for each line ``lose``, ends the second node as a power cut would, and starts another.
Everything ends with its standard input.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.patience import PATIENCE_S


class RayCluster:
    """A cluster that runs.

    Attributes:
        address: Of its dashboard.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address: str = self._answer()

    def lose_node(self) -> None:
        """Take the second node away, with all that Ray has started on it, and add another."""
        assert self._process.stdin is not None
        self._process.stdin.write("lose\n")
        self._process.stdin.flush()
        assert self._answer() == "lost"

    def end(self) -> None:
        """End all of it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer: str = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def running_cluster(variables: Mapping[str, str] | None = None) -> Iterator[RayCluster]:
    """A cluster whose processes have these variables too, and which is gone afterwards."""
    # a socket's path has 107 characters at most, and Ray puts seventy below this folder
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        own = {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", **(variables or {})}
        command = [sys.executable, "-m", "tests.engines.ray.cluster"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **own}
        ) as process:
            cluster = RayCluster(process)
            try:
                yield cluster
            finally:
                cluster.end()


def main() -> None:
    """Run a cluster for as long as somebody holds the other end of standard input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints goes where errors go

    from ray.cluster_utils import Cluster  # noqa: PLC0415  # only this process

    head = {**_node(), "include_dashboard": True, "dashboard_host": "127.0.0.1", "dashboard_port": 0}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(**_node())
    answers.write(json.dumps(f"http://{cluster.head_node.webui_url}") + "\n")
    for line in sys.stdin:
        assert line == "lose\n"
        cluster.remove_node(second, allow_graceful=False)
        answers.write('"lost"\n')
        second = cluster.add_node(**_node())
    cluster.shutdown()


def _node() -> dict[str, int]:
    """A node of one core, whose agent listens beside those of other clusters on this machine."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    return {"num_cpus": 1, "object_store_memory": 80_000_000, "dashboard_agent_listen_port": port}


if __name__ == "__main__":
    main()
