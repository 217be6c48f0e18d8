"""What the costliest requests of predictions take, and how long others wait beside them.

``python -m bench.costly_requests`` starts a service of its own on an SQLite file and sends it, one after the other, the
request that once froze it, spaces close to the bounds of what is looked at, and ordinary predictions of one and of
eight callers. Printed are the answer, seconds, the most memory of the service and of all its processes together, and
what ``/health`` takes meanwhile, which nothing but the event loop delays.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil

from autotuner.core.layout import OPTIONS
from bench.predict_speed import WIDE

_POLL_S = 0.02
_NUM_ORDINARY = 10


def _wide(**changed: Sequence[int | str]) -> dict[str, Any]:
    """``WIDE`` as JSON, with other values on some axes."""
    names = ("pipeline_schedule", "shard_level", "attention_kernel", "precision")
    axes: dict[str, Any] = {
        name: [OPTIONS[name].to_plain(value) for value in WIDE.values(name) or ()] for name in names
    }
    return axes | {"context_parallel_degree": [1, 2, 4, 8, 16, 32]} | changed


def _job(model: str, cluster: str, batch: int = 4096) -> dict[str, Any]:
    return {"model": model, "cluster": cluster, "workload": {"seq_len": 8192, "global_batch_size": batch}}


_TINY = {
    "name": "tiny",
    "num_layers": 4,
    "hidden_size": 64,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "ffn_size": 128,
    "vocab_size": 256,
}

_FROZE_SPACE: dict[str, Any] = {
    "recompute": ["full"],
    "recompute_every": list(range(1, 3001)),
    "gradient_bucket_bytes": list(range(1, 301)),
}

_FROZE: dict[str, Any] = {
    "model": _TINY,
    "cluster": "h100:64",
    "workload": {"seq_len": 1024, "global_batch_size": 64},
    "space": _FROZE_SPACE,
}
"""Once 7 GB and minutes, in one call of which nothing else was answered for a minute."""

_COSTLY: Mapping[str, Mapping[str, Any]] = {
    "the request that froze it": _FROZE,
    "as many values as an axis may have": _FROZE | {"space": _FROZE_SPACE | {"recompute_every": list(range(1, 1001))}},
    "70B on 16,384, every kernel and schedule": _job("llama-3-70b", "h100:16384", 16384) | {"space": _wide()},
    "256 experts on 1,024, three quarters of the bound": _job("deepseek-v3", "h100:1024")
    | {"space": _wide(shard_level=["none", "optimizer", "parameters"])},
    "choices close to the bound": _FROZE
    | {
        "cluster": "h100:8",
        "space": {
            "recompute": ["full"],
            "precision": ["bf16"],
            "recompute_every": list(range(1, 301)),
            "gradient_bucket_bytes": list(range(1, 126)),
            "shard_level": ["none"],
            "reshard_after_forward": [False],
        },
    },
    "nothing fits, 256 experts on 64": _job("deepseek-v3", "h100:64") | {"space": _wide(precision=["bf16"])},
    "1,000 rows": _job("llama-3-70b", "h100:1024") | {"limit": 1000},
}

_ORDINARY = {f"70B on {size:,}": _job("llama-3-70b", f"h100:{size}", 1024) for size in (64, 1024)}


@dataclass(slots=True)
class _Beside:
    """What is seen of a service while it works."""

    waits_s: list[float] = field(default_factory=list)
    """What answers to ``/health`` took."""
    own_bytes: int = 0
    """The most memory of the service's own process."""
    all_bytes: int = 0
    """The same of all its processes; pages that they share count for each."""

    def told(self) -> str:
        """In a line."""
        waits = sorted(self.waits_s) or [0.0]
        p99 = waits[round(0.99 * (len(waits) - 1))]
        return (
            f"memory {self.own_bytes / 1e6:.0f} MB, with asides {self.all_bytes / 1e6:.0f} MB; beside it /health "
            f"p50 {1e3 * statistics.median(waits):.1f}, p99 {1e3 * p99:.1f}, most {1e3 * waits[-1]:.0f} ms"
        )


def main() -> None:
    """Print what each request takes."""
    with running_service() as (process, url):
        with httpx.Client(base_url=url, timeout=600) as client:
            _answered(client, _ORDINARY["70B on 64"])  # the first one starts what asides are forked from
        for what, body in _COSTLY.items():
            _report(process, url, what, body)
        for what, body in _ORDINARY.items():
            for num_callers in (1, 8):
                _report_ordinary(process, url, what, body, num_callers)


def _report(process: psutil.Process, url: str, what: str, body: Mapping[str, Any]) -> None:
    with _watched(process, url) as beside, httpx.Client(base_url=url, timeout=600) as client:
        started = time.perf_counter()
        answer = _answered(client, body)
        took_s = time.perf_counter() - started
    _say(f"{what} ({len(json.dumps(body)) / 1e3:.1f} kB): {_told(answer)}, {took_s:.2f} s; {beside.told()}")


def _report_ordinary(process: psutil.Process, url: str, what: str, body: Mapping[str, Any], num_callers: int) -> None:
    with _watched(process, url) as beside, ThreadPoolExecutor(num_callers) as callers:
        several = list(callers.map(lambda _: _times_s(url, body), range(num_callers)))
    times = sorted(seconds for one in several for seconds in one)
    p50, p99 = statistics.median(times), times[round(0.99 * (len(times) - 1))]
    _say(f"{what}, {num_callers} callers: p50 {1e3 * p50:.0f}, p99 {1e3 * p99:.0f} ms; {beside.told()}")


def _times_s(url: str, body: Mapping[str, Any]) -> list[float]:
    times = []
    with httpx.Client(base_url=url, timeout=600) as client:
        for _ in range(_NUM_ORDINARY):
            started = time.perf_counter()
            _answered(client, body).raise_for_status()
            times.append(time.perf_counter() - started)
    return times


def _answered(client: httpx.Client, body: Mapping[str, Any]) -> httpx.Response:
    return client.post("/api/v1/predictions", json=dict(body))


def _told(answer: httpx.Response) -> str:
    document = answer.json()
    if answer.status_code == httpx.codes.OK:
        return f"200, {document['num_legal']:,} legal layouts, {len(answer.content) / 1e3:.0f} kB"
    return f"{answer.status_code}, {document['detail'][:110]}"


@contextmanager
def _watched(process: psutil.Process, url: str) -> Iterator[_Beside]:
    """What is seen of the service until the block is left."""
    beside, over = _Beside(), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=600) as client:
            while not over.wait(_POLL_S):
                started = time.perf_counter()
                client.get("/api/v1/health").raise_for_status()
                beside.waits_s.append(time.perf_counter() - started)

    def weigh() -> None:
        while not over.wait(_POLL_S):
            own, *others = (_resident_bytes(one) for one in (process, *process.children(recursive=True)))
            beside.own_bytes = max(beside.own_bytes, own)
            beside.all_bytes = max(beside.all_bytes, own + sum(others))

    with ThreadPoolExecutor(2) as threads:
        watching = [threads.submit(ask), threads.submit(weigh)]
        try:
            yield beside
        finally:
            over.set()
        for one in watching:
            one.result()


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended
        return 0


@contextmanager
def running_service(database_url: str = "") -> Iterator[tuple[psutil.Process, str]]:
    """A service on that database, else on a file of its own, and its address."""
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        settings = {
            "DATABASE_URL": database_url or f"sqlite:///{folder}/autotuner.db",
            "PORT": str(port),
            "NUM_WORKERS": "0",
        }
        environment = {f"AUTOTUNER_{name}": value for name, value in settings.items()}
        service = subprocess.Popen(
            [sys.executable, "-m", "autotuner.cli", "serve"],
            env={**os.environ, **environment},
            stderr=subprocess.DEVNULL,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_for(url)
            yield psutil.Process(service.pid), url
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait()


def _wait_for(url: str) -> None:
    while True:
        try:
            httpx.get(f"{url}/api/v1/health").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
