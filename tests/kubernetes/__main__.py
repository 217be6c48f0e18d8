"""``python -m tests.kubernetes FOLDER [NODES]``: a cluster that is no real one, to try the engine out.

It writes ``engines.toml`` into the folder, which registers the cluster as ``fake`` (``AUTOTUNER_ENGINES``), and
``kubeconfig.yaml``, with which kubectl sees it; then it runs until it is interrupted.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from tests.kubernetes.cluster import FakeCluster


def main(arguments: list[str]) -> None:
    """Run it until SIGINT or SIGTERM."""
    folder, num_nodes = Path(arguments[0]).absolute(), int(arguments[1]) if len(arguments) > 1 else 2
    folder.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with FakeCluster(folder, num_nodes) as cluster:
        (folder / "engines.toml").write_text(f"[fake]\n{cluster.table()}\n")
        sys.stdout.write(f"{num_nodes} machines at {cluster.server.url}, registered in {folder / 'engines.toml'}\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
