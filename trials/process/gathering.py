"""Waits on every node of a job until all nodes have started.

Engines that start nodes one by one run ``python -m autotuner.trials.process.gathering`` before
``autotuner.trials.process.node``. The time limit of the latter begins when it starts, and a node that waits an hour for
its neighbour must not lose that hour. Node 0 listens. The others connect, send their number, and wait for its signal.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Sequence

_RETRY_S = 0.5
_GO = b"go"

_ANSWER_S = 10.0
"""Seconds in which a node must send its number after it has connected."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait until all nodes of a job have started, so that no node starts its ranks too early.

    There is no timeout, because the parent process can end this one.

    Args:
        arguments: The command-line arguments after the program's name; None: the arguments of this process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m autotuner.trials.process.gathering", description="Wait for all nodes."
    )
    parser.add_argument("--node-rank", type=int, required=True, help="number of this node, from 0")
    parser.add_argument("--num-nodes", type=int, required=True, help="nodes of the job")
    parser.add_argument("--master-address", required=True, help="name or address of node 0")
    parser.add_argument("--master-port", type=int, required=True, help="a free port of node 0")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the first process of a container
    gather(given.node_rank, given.num_nodes, (given.master_address, given.master_port))
    return 0


def gather(node_rank: int, num_nodes: int, address: tuple[str, int]) -> None:
    """Wait until all nodes of a job have called this function.

    Args:
        node_rank: Number of this node, from 0. Node 0 listens, and all other nodes connect to it.
        num_nodes: Number of nodes of the job.
        address: Host and port of node 0.
    """
    if node_rank == 0:
        _listen(num_nodes, address[1])
    else:
        while not _told_to_go(node_rank, address):
            time.sleep(_RETRY_S)


def _listen(num_nodes: int, port: int) -> None:
    waiting: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as opened, _server(port, num_nodes) as server:
        while len(waiting) < num_nodes - 1:
            connection = opened.enter_context(server.accept()[0])
            if (node_rank := _number(connection)) is not None:
                waiting[node_rank] = connection  # a node that connects again has lost its first connection
        for connection in waiting.values():
            with contextlib.suppress(OSError):
                connection.sendall(_GO)


def _server(port: int, num_nodes: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=num_nodes, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=num_nodes)


def _number(connection: socket.socket) -> int | None:
    connection.settimeout(_ANSWER_S)
    try:
        return int(connection.recv(16).decode())
    except (OSError, ValueError):
        return None


def _told_to_go(node_rank: int, address: tuple[str, int]) -> bool:
    """Return True if node 0 answered and gave the signal to start."""
    try:
        with socket.create_connection(address, timeout=_ANSWER_S) as connection:
            connection.sendall(str(node_rank).encode())
            connection.settimeout(None)
            return connection.recv(len(_GO)) == _GO
    except OSError:  # its name does not resolve yet, or nothing listens there
        return False


if __name__ == "__main__":
    sys.exit(main())
