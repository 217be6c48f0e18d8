"""A trainer for two nodes, of the standard library alone, whose step times are known before: what a sweep must rank.

Both nodes meet at the master's address before every step, so neither goes on without the other.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

_REFERENCE_S = 0.8
_RECOMPUTED = 1.25


def main() -> int:
    node_rank, num_nodes, address, port, num_steps = sys.argv[1:6]
    spec = json.loads(os.environ["AUTOTUNER_SPEC"])
    layout = spec["layout"]
    step_s = _REFERENCE_S / layout["micro_batch_size"] * (_RECOMPUTED if layout["recompute"] == "full" else 1.0)
    together = met(int(node_rank), int(num_nodes), (address, int(port)))
    for step in range(int(num_steps)):
        began_s = time.perf_counter()
        time.sleep(step_s)
        together()
        tell(int(node_rank), step, time.perf_counter() - began_s)
    return 0


def met(node_rank: int, num_nodes: int, address: tuple[str, int]) -> Callable[[], None]:
    """What returns on one node when it has been called on the others too."""
    if node_rank == 0:
        with socket.create_server(address) as server:
            peers = [server.accept()[0] for _ in range(num_nodes - 1)]
    else:
        peers = [reached(address)]

    def together() -> None:
        for peer in peers:
            peer.sendall(b".")
        for peer in peers:
            if not peer.recv(1):
                raise ConnectionResetError("Connection closed by peer")

    return together


def reached(address: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + 60.0
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def tell(rank: int, step: int, step_time_s: float) -> None:
    line = {"step": step, "rank": rank, "step_time_s": step_time_s, "num_steps": 1, "loss": 5.0, "peak_bytes": 1000}
    with (Path(os.environ["AUTOTUNER_REPORT_DIR"]) / f"rank-{rank}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
