"""A trainer as a user might have one, of the standard library alone: forks its ranks, which count steps.

``MISBEHAVE`` has it fail in a way of its own, ``TORCH_PACE_S`` has each step take so much longer. It reports as
``autotuner_report`` does, or prints lines where ``LOG`` is set.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--recompute", default="none")
    options, _ = parser.parse_known_args()
    spec = json.loads(options.spec.read_text())
    assert json.loads(os.environ["AUTOTUNER_SPEC"]) == spec
    print("a line that says nothing", flush=True)
    together = multiprocessing.get_context("fork").Barrier(options.ranks)
    ranks = [fork(rank, options, spec, together.wait) for rank in range(options.ranks)]
    while ranks:
        pid, status = os.wait()
        ranks.remove(pid)
        if status:
            end(ranks)
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code  # as a shell tells it
    return 0


def fork(rank: int, options: argparse.Namespace, spec: dict[str, object], barrier: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = train(rank, options, spec, barrier)
        except MemoryError:
            print(f"[rank{rank}]: MemoryError", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return pid


def end(ranks: list[int]) -> None:
    """The others cannot go on without the one that died."""
    for pid in ranks:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def train(rank: int, options: argparse.Namespace, spec: dict[str, object], barrier: Callable[[], object]) -> int:
    weights = bytearray(num_bytes(spec)) if os.environ.get("MISBEHAVE") != "starve" else bytearray(10**12)
    for step in range(options.steps):
        began_s = time.perf_counter()
        time.sleep(0.1 if os.environ.get("LOG") else 0.002)  # lines that are read at once tell no times
        time.sleep(0.05 if options.recompute == "full" else 0.0)
        time.sleep(float(os.environ.get("TORCH_PACE_S", "0")))  # a machine that becomes slower, and is known to be
        barrier()  # no rank ends a step before all have begun it, as where gradients are summed
        if step == 2:
            misbehave(rank)
        tell(rank, step, time.perf_counter() - began_s, peak_bytes=len(weights) + 1000)
    return 0


def num_bytes(spec: dict[str, object]) -> int:
    """The weights of the model, about."""
    model = spec["model"]
    assert isinstance(model, dict)
    layer = 4 * model["hidden_size"] ** 2 + 3 * model["hidden_size"] * model["ffn_size"]
    return 4 * int(model["num_layers"]) * int(layer)


def tell(rank: int, step: int, step_time_s: float, *, peak_bytes: int) -> None:
    loss = float("nan") if os.environ.get("MISBEHAVE") == "diverge" and step == 2 else 5.0 - 0.001 * step
    if os.environ.get("LOG"):
        if rank == 0:
            print(f"step {step} loss {loss:.4f} bytes {peak_bytes}", flush=True)
        return
    line = {
        "step": step,
        "rank": rank,
        "step_time_s": step_time_s,
        "num_steps": 1,
        "loss": None if os.environ.get("NO_LOSS") else loss,
        "tokens": int(os.environ["TOKENS"]) if "TOKENS" in os.environ else None,
        "peak_bytes": peak_bytes,
        **({"environment": {"torch": "2.13"}} if step == 0 else {}),
    }
    path = Path(os.environ["AUTOTUNER_REPORT_DIR"]) / f"rank-{0 if os.environ.get('ALONE') else rank}.jsonl"
    line["rank"] = 0 if os.environ.get("ALONE") else rank
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def misbehave(rank: int) -> None:
    match os.environ.get("MISBEHAVE"):
        case "oom" if rank == 1:
            print(f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB.", flush=True)
            os._exit(1)
        case "crash" if rank == 1:
            print(f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: ValueError: "no"', flush=True)
            os._exit(3)
        case "quiet":
            os._exit(4)
        case "killed" if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "lonely" if rank == 1:
            error = "torch.distributed.DistBackendError: NCCL error: remote process exited"
            print(f"[rank{rank}]: {error}", flush=True)
            os._exit(1)
        case "hang":
            time.sleep(600)
        case "stop":
            os._exit(0)
        case "leave" if rank == 0:
            leave_a_daemon()


def leave_a_daemon() -> None:
    """A process that no session, group or variable ties to its trainer."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)", "left"], {})
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
