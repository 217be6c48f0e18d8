"""How long the page ``/explore`` takes to answer while its inputs move.

``python -m bench.explore_speed`` starts a service of its own on an SQLite file, with its asides, and moves inputs as a
person does, one after the other: degrees, micro-batch, recomputation, precision, on a dense model on 64 ranks and on
one with experts on 1,024. As the page's script does, it asks for both parts at once: verdict, controls and memory, and
the timeline. Printed are the median and the 99th percentile of each in milliseconds, and their size.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from bench.costly_requests import running_service

_ROUNDS = 6
_PARTS = ("explore", "timeline")
_HEADERS = {"Accept": "text/html"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer to a move."""

    part: str
    seconds: float
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, and a layout that people begin with."""

    name: str
    query: str


_JOBS = (
    Job(
        name="llama-3-70b on 64 ranks",
        query="model=llama-3-70b&cluster=h100:64&seq_len=8192&global_batch_size=1024"
        "&layout=fsdp2+tp8+pp4+1f1b+mb1+sp+recompute-selective+flash+bf16",
    ),
    Job(
        name="deepseek-v3 on 1,024 ranks",
        query="model=deepseek-v3&cluster=h100:1024&seq_len=8192&global_batch_size=8192"
        "&layout=fsdp64+ep8+pp16+1f1b+mb1+recompute-full+flash+bf16",
    ),
)

_MOVES = (
    *("tensor_parallel_degree=4", "tensor_parallel_degree=2", "pipeline_parallel_degree=8"),
    *("pipeline_parallel_degree=1", "context_parallel_degree=2", "micro_batch_size=2", "recompute=full"),
    *("recompute=none", "shard_level=parameters", "shard_level=none", "pipeline_schedule=interleaved_1f1b"),
    *("pipeline_schedule=zero_bubble", "precision=fp8", "attention_kernel=cudnn", "compiled=on", "seq_len=4096"),
)


def main() -> None:
    """Measure, and print a line for each job and part."""
    with running_service() as (_, address), httpx.Client(base_url=address, headers=_HEADERS, timeout=60.0) as client:
        for job in _JOBS:
            client.get(f"/explore?{job.query}").raise_for_status()
            answers = [answer for _ in range(_ROUNDS) for move in _MOVES for answer in _moved(client, job, move)]
            for part in _PARTS:
                sys.stdout.write(f"{job.name}, {part}: {_told([one for one in answers if one.part == part])}\n")


def _moved(client: httpx.Client, job: Job, move: str) -> list[Answer]:
    def asked(part: str) -> Answer:
        started = time.perf_counter()
        answer = client.get(f"/explore?{job.query}&{move}&part={part}")
        answer.raise_for_status()
        return Answer(part=part, seconds=time.perf_counter() - started, num_bytes=len(answer.content))

    with ThreadPoolExecutor(len(_PARTS)) as threads:
        return list(threads.map(asked, _PARTS))


def _told(answers: Sequence[Answer]) -> str:
    times = sorted(answer.seconds for answer in answers)
    p99 = times[min(len(times) - 1, round(0.99 * len(times)))]
    size = max(answer.num_bytes for answer in answers)
    median = f"median {1e3 * statistics.median(times):.0f} ms, 99th percentile {1e3 * p99:.0f} ms"
    return f"{len(times)} answers, {median}, at most {size / 1000:.0f} kB"


if __name__ == "__main__":
    main()
