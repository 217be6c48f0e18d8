"""How long the form of ``/new`` takes to answer while somebody fills it in.

``python -m bench.new_sweep_speed`` starts a service of its own on an SQLite file, with its asides, and types as people
do, one input after the other, for three jobs. Printed are the median and the slowest of the answers' milliseconds: of
inputs that change what is searched, each asked for the first time; of those that do not (name, budget, how trials are
measured) or that were asked before; and of a form with something wrong.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable, Mapping

import httpx

from bench.costly_requests import running_service

_HEADERS = {"Accept": "text/html"}

_JOBS: Mapping[str, Mapping[str, str]] = {
    "llama-3-8b on 8 ranks": {"model": "llama-3-8b", "cluster.count": "8", "global_batch": "64"},
    "llama-3-70b on 64 ranks": {"model": "llama-3-70b", "cluster.count": "64", "global_batch": "1024"},
    "mixtral-8x22b on 1,024 ranks": {
        "model": "mixtral-8x22b",
        "cluster.count": "1024",
        "global_batch": "8192",
    },
}

_ALWAYS = {
    "model.from": "name",
    "cluster.from": "catalog",
    "cluster.accelerator": "h100-sxm",
    "seq_len": "8192",
}

_SEARCHED: tuple[Mapping[str, str], ...] = (
    *({"seq_len": str(tokens)} for tokens in (2048, 4096, 6144, 10240, 12288, 16384)),
    *({"space.recompute": "chosen", "space.recompute.values": value} for value in ("none", "full")),
    *({"space.tensor_parallel_degree": "chosen", "space.tensor_parallel_degree.values": v} for v in ("8", "4, 8", "2")),
    *({"memory_budget_bytes": str(gigabytes)} for gigabytes in (60, 70)),
    {"space.fused_norm": "all"},
    {"optimizer_states": "bf16"},
)

_UNSEARCHED = (
    *({"name": name} for name in ("n", "ni", "nig", "nigh", "night")),
    *({"trials": trials} for trials in ("4", "40")),
    *({"timeout": seconds} for seconds in ("6", "60", "600")),
)

_WRONG = (
    {"trials": "4o"},
    {"seq_len": "8q"},
    {"model": "lama"},
    {"space.tensor_parallel_degree": "chosen"},
)


def main() -> None:
    """Measure, and print a line for each job."""
    with running_service() as (_, address), httpx.Client(base_url=address, headers=_HEADERS, timeout=60.0) as client:
        for name, job in _JOBS.items():
            form = {**_ALWAYS, **job}
            first = _times(client, form, ({},))
            sys.stdout.write(f"{name}: first {_said(first)}, ")
            sys.stdout.write(f"what is searched {_said(_times(client, form, _SEARCHED))}, ")
            sys.stdout.write(f"what is not {_said(_times(client, form, (*_UNSEARCHED, *_SEARCHED)))}, ")
            sys.stdout.write(f"mistakes {_said(_times(client, form, _WRONG))}\n")


def _times(client: httpx.Client, form: Mapping[str, str], typed: Iterable[Mapping[str, str]]) -> list[float]:
    """Milliseconds of each answer."""
    times = []
    for one in typed:
        started = time.perf_counter()
        client.post("/new/check?part=answer", data={**form, **one}).raise_for_status()
        times.append(1e3 * (time.perf_counter() - started))
    return times


def _said(times: list[float]) -> str:
    return f"{statistics.median(times):.0f} ms (slowest {max(times):.0f})"


if __name__ == "__main__":
    main()
