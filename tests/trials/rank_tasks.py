"""Small tasks for ranks that a zygote forks."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from autotuner.trials.process.task import TaskContext


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
