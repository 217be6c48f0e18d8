"""What a caller of another process waits for an answer that asks nothing but the event loop.

``python -m bench.probe ADDRESS`` asks ``/api/v1/health`` until its standard input ends, then prints the seconds of
each answer as JSON. ``probed`` runs it beside a block.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

_EVERY_S = 0.02
_ANSWER_S = 60.0


@contextmanager
def probed(address: str) -> Iterator[list[float]]:
    """Seconds that each answer takes within the block; there when it is over."""
    waits: list[float] = []
    with subprocess.Popen(
        [sys.executable, "-m", "bench.probe", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield waits
            said, _ = process.communicate(timeout=2 * _ANSWER_S)
            waits += json.loads(said)
        finally:
            process.kill()


def main() -> None:
    """Ask until nobody listens any more."""
    is_over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(is_over,), daemon=True).start()
    connection = http.client.HTTPConnection(urlsplit(sys.argv[1]).netloc, timeout=_ANSWER_S)
    waits = []
    while not is_over.wait(_EVERY_S):
        waits.append(_asked_s(connection))
    print(json.dumps(waits[1:]))  # noqa: T201  # without the first, which connects


def _wait_for_end(is_over: threading.Event) -> None:
    sys.stdin.read()
    is_over.set()


def _asked_s(connection: http.client.HTTPConnection) -> float:
    started = time.perf_counter()
    connection.request("GET", "/api/v1/health")
    connection.getresponse().read()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
