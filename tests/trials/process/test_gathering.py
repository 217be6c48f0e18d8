"""Nodes that are started one after the other begin together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from autotuner.launch.ranks import free_port
from tests.patience import PATIENCE_S
from trials.process.gathering import gather


def test_nobody_goes_on_before_the_last_is_there() -> None:
    address, gone_on = ("127.0.0.1", free_port()), threading.Semaphore(0)

    def node(rank: int) -> None:
        gather(rank, 4, address)
        gone_on.release()

    with ThreadPoolExecutor(4) as threads:
        early = [threads.submit(node, rank) for rank in (3, 0, 1)]
        assert not gone_on.acquire(timeout=1.0)
        early.append(threads.submit(node, 2))
        for one in early:
            one.result(PATIENCE_S)


def test_a_node_that_connects_again_is_counted_once() -> None:
    address = ("127.0.0.1", free_port())
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(gather, 0, 3, address)
        for _ in range(2):
            with _connected(address) as connection:
                connection.sendall(b"1")
        with _connected(address) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n")
        time.sleep(0.5)
        assert not first.done()
        with _connected(address) as connection:
            connection.sendall(b"1")
            threads.submit(gather, 2, 3, address).result(PATIENCE_S)
            first.result(PATIENCE_S)


@contextmanager
def _connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = socket.create_connection(address)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            continue
        with connection:
            yield connection
        return


def test_one_that_waits_leaves_when_it_is_told_to() -> None:
    """As the first process of a container, which ignores SIGTERM unless it says otherwise."""
    command = [sys.executable, "-m", "trials.process.gathering", "--node-rank", "1", "--num-nodes", "2"]
    address = ["--master-address", "127.0.0.1", "--master-port", str(free_port())]
    process = subprocess.Popen([*command, *address], env=os.environ)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) in (128 + signal.SIGTERM, -signal.SIGTERM)
