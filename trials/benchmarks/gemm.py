"""The GEMM rate of the cores or devices of the ranks: the peak that MFU refers to where no data sheet gives one.

``python -m autotuner.trials.benchmarks.gemm`` measures every allowed core at once and prints one JSON line:
``num_cores``, and the mean rate of a core in each precision, ``fp32_flop_per_s`` and ``bf16_flop_per_s``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import torch

from autotuner.trials.measurement.environment import pin

_CPU_SIZES = (256, 512, 1024)  # one of them fits the caches of any server core well
_CPU_BUDGET_S = 0.06  # per size; dozens of repetitions of the smaller ones, of which the best counts
_LONGEST_PRODUCT_S = 0.12  # a core without bf16 takes seconds for one product of the largest size, at no higher rate
_CUDA_SIZE = 8192  # one product takes over a millisecond: launch, tail and synchronisation vanish
_CUDA_REPETITIONS = 20


def flop_per_s(device: torch.device, dtype: torch.dtype) -> float:
    """Return the highest measured rate, in FLOP/s, of square matrix products on this rank's core or device.

    Call it on all ranks at once. On a CPU, the thread's CPU time is measured. Therefore the rate does not fall if
    another process uses the core for a while. It does fall if the core itself becomes slower, for example because the
    other hardware thread of the core is busy. Large products are left out if they would take long, because a core that
    is so slow computes them at no higher rate.

    Args:
        device: The device of this rank.
        dtype: Number format of the matrices.
    """
    if device.type == "cuda":
        return _cuda_rate(device, dtype)
    rate = 0.0
    for size in _CPU_SIZES:
        if rate == 0.0 or _flop(size) / rate < _LONGEST_PRODUCT_S:
            rate = max(rate, _cpu_rate(size, dtype))
    return rate


def _cpu_rate(size: int, dtype: torch.dtype) -> float:
    left, right = torch.rand(2, size, size).to(dtype)
    out = torch.empty(size, size, dtype=dtype)
    torch.mm(left, right, out=out)  # the first product packs and dispatches
    best_s, end_s = float("inf"), time.thread_time() + _CPU_BUDGET_S
    while (start_s := time.thread_time()) < end_s:
        torch.mm(left, right, out=out)
        best_s = min(best_s, time.thread_time() - start_s)
    return _flop(size) / best_s


def _cuda_rate(device: torch.device, dtype: torch.dtype) -> float:
    left, right = torch.rand(2, _CUDA_SIZE, _CUDA_SIZE, device=device, dtype=torch.float32).to(dtype)
    best_s = float("inf")
    for _ in range(_CUDA_REPETITIONS):
        torch.cuda.synchronize(device)
        start_s = time.perf_counter()
        torch.mm(left, right)
        torch.cuda.synchronize(device)
        best_s = min(best_s, time.perf_counter() - start_s)
    return _flop(_CUDA_SIZE) / best_s


def _flop(size: int) -> int:
    return 2 * size**3


def _measure_core(core: int, barrier: Barrier, answer: Connection) -> None:
    pin(core)
    torch.set_num_threads(1)
    rates = []
    for dtype in (torch.float32, torch.bfloat16):
        barrier.wait()
        rates.append(flop_per_s(torch.device("cpu"), dtype))
    answer.send(rates)


def main() -> None:
    """Measure the rate of matrix products on all cores at the same time, one process per core, and print it."""
    torch.set_num_threads(1)  # before any operation: a forked process must not inherit a thread pool
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(cores))
    pipes = [context.Pipe(duplex=False) for _ in cores]
    workers = [
        context.Process(target=_measure_core, args=(core, barrier, answer))
        for core, (_, answer) in zip(cores, pipes, strict=True)
    ]
    for worker in workers:
        worker.start()
    rates = [receiver.recv() for receiver, _ in pipes]
    for worker in workers:
        worker.join()
    fp32, bf16 = (sum(column) / len(cores) for column in zip(*rates, strict=True))
    line = {"fp32_flop_per_s": fp32, "bf16_flop_per_s": bf16, "num_cores": len(cores)}
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
