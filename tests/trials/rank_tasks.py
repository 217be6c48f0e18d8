"""Small tasks for ranks that a fork server forks."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.codec import dumps, loads, to_plain
from autotuner.core.dry_run import DryRunRequest
from autotuner.core.link import LinkHealth
from autotuner.launch.contract import ATTEMPT_ID
from autotuner.trials.__main__ import main as run_rank
from autotuner.trials.benchmarks import gemm
from autotuner.trials.benchmarks.pairs import PairSizes, link_points
from autotuner.trials.dry_run.dry_run import dry_run
from autotuner.trials.faults import LateCollectives, Links
from autotuner.trials.process import fork_server
from autotuner.trials.process.task import TaskContext
from tests.builders import cpu_cluster
from tests.patience import PATIENCE_S
from tests.trials.joined import joined


def confess(context: TaskContext) -> int:
    """Write down what this process is, and say it."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    facts = {
        "rank": context.rank_info.rank,
        "world_size": context.rank_info.world_size,
        "pid": os.getpid(),
        "session": os.getsid(0),
        "threads": int(status["Threads"]),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_initialized(),  # type: ignore[no-untyped-call]  # torch gives it no types
        "descriptors": len(os.listdir("/proc/self/fd")),
        "frozen": gc.get_freeze_count() > 0,
        "environment": {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "COLOUR")},
    }
    (context.folder / f"{context.rank_info.rank}.json").write_text(json.dumps(facts))
    sys.stdout.write(f"rank {context.rank_info.rank} was here\n")
    return context.rank_info.rank


def raise_error(context: TaskContext) -> int:
    raise ValueError(f"rank {context.rank_info.rank} is broken")


def die(context: TaskContext) -> int:
    """Rank 1 is killed, the others wait."""
    if context.rank_info.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return ask_back(context)


def ask_back(context: TaskContext) -> int:
    """Say that this rank runs, and go on for as long as nobody ends it."""
    (context.folder / f"{context.rank_info.rank}.running").touch()
    while True:
        time.sleep(60.0)


def ignore_sigterm(context: TaskContext) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return ask_back(context)


def hire(context: TaskContext) -> int:
    """Start a process that outlives its rank."""
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    (context.folder / f"{context.rank_info.rank}.running").touch()
    return 0


def serve_a_dead_launcher(context: TaskContext) -> int:
    """Be the fork server's program, whose launcher asked for a rank and died before torch was imported."""
    request = {"id": "a", "task": "tests.trials.rank_tasks:confess", "folder": str(context.folder / "asked")}
    reading, writing = os.pipe()
    line = json.dumps({**request, "num_ranks": 1, "environment": {ATTEMPT_ID: os.environ[ATTEMPT_ID]}}) + "\n"
    os.write(writing, line.encode())
    os.close(writing)
    os.dup2(reading, 0)
    sys.argv = ["fork", ATTEMPT_ID]
    fork_server.main()
    return 0


def measure_pairs(context: TaskContext) -> int:
    """Say what links between nodes of one rank each take, on one of which whatever is sent is late."""
    joined(context)
    late, rank, send = json.loads((context.folder / "late").read_text()), context.rank_info.rank, dist.send

    def send_late(message: Tensor, peer: int) -> object:
        if sorted((rank, peer)) == late["ends"]:
            time.sleep(late["delay_s"] + message.nbytes / late["bytes_per_s"])
        return send(message, peer)

    dist.send = send_late  # type: ignore[assignment]  # this process ends with its task
    sizes = PairSizes(fewest=5, most=20, budget_s=0.1, long_bytes=2**20)
    points = link_points(sizes, torch.device("cpu"), replace(context.rank_info, local_rank=0, local_world_size=1))
    (context.folder / f"{rank}.json").write_text(json.dumps(to_plain(points)))
    return 0


class _GivenUpSlowly:
    """What a backward pass leaves with each collective behind it: a Python object, which gloo's thread gives up."""

    def __init__(self) -> None:
        self.is_being_given_up = threading.Event()

    def __del__(self) -> None:
        self.is_being_given_up.set()
        time.sleep(0.2)  # for the main thread to be in the next collective when this wants Python's lock again


def reduces_while_gloo_gives_up_an_object(context: TaskContext) -> int:
    """A late reduction whose object is given up, under the lock of gloo's queue, while the next one is put there."""
    store = context.store()
    late = LateCollectives([joined(context, store=store)], torch.device("cpu"), seed=0, wait=lambda _: None)
    late.meet(Links.of(replace(cpu_cluster(2), link_health=(LinkHealth(ends=(0, 1), delay_s=1.0),))))
    if context.rank_info.rank == 0:
        given_up = _begin_a_reduction()
        store.set("begun", "")
        assert given_up.wait(PATIENCE_S)
    else:
        store.wait(["begun"])
        dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(4))
    return 0


def _begin_a_reduction() -> threading.Event:
    """Leave a reduction to gloo that alone holds a slow object; the event is set when gloo gives it up."""
    slow = _GivenUpSlowly()
    torch._C._stash_obj_in_tls("context", slow)  # as torch.autograd does with each backward pass
    dist.all_reduce(torch.ones(4), async_op=True)
    torch._C._stash_obj_in_tls("context", None)
    return slow.is_being_given_up


def run_dry(context: TaskContext) -> int:
    """Answer the request in ``request.json``, and say how many bytes the fullest of its processes took for it."""
    answer = dry_run(loads(DryRunRequest, (context.folder / "request.json").read_text()))
    taken_bytes = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    (context.folder / "answer.json").write_text(dumps(answer))
    (context.folder / "taken").write_text(str(taken_bytes))
    return 0


def run_alone(context: TaskContext) -> int:
    """Be the program ``python -m autotuner.trials``."""
    return run_rank(["--spec", str(context.folder / "spec.json"), "--reports", str(context.folder / "reports.jsonl")])


def measure_gemm(_: TaskContext) -> int:
    """Be the program ``python -m autotuner.trials.benchmarks.gemm``."""
    gemm.main()
    return 0
