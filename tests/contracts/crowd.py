"""Several threads or processes that act on one store at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from autotuner.store.sql import Store, open_store
from tests.contracts.acts import LEASE_S, claim_sweep

T = TypeVar("T")


def in_threads(num_threads: int, act: Callable[[int], T]) -> list[T]:
    """What each thread's call returned; they start together."""
    gate = Barrier(num_threads)

    def wait_and_act(index: int) -> T:
        gate.wait()
        return act(index)

    with ThreadPoolExecutor(num_threads) as pool:
        return list(pool.map(wait_and_act, range(num_threads)))


def in_processes(num_processes: int, act: Callable[[str, str], T], url: str) -> list[T]:
    """What ``act(url, owner)`` returned in each new process."""
    owners = [f"process-{index}" for index in range(num_processes)]
    context = multiprocessing.get_context("forkserver")  # it has imported what they need
    context.set_forkserver_preload(["__main__", "autotuner.service.preload", __name__])
    with ProcessPoolExecutor(num_processes, mp_context=context) as pool:
        return list(pool.map(act, [url] * num_processes, owners))


def claim_all(store: Store, owner: str) -> list[str]:
    """Claim until nothing is left; the ids of what this worker got."""
    claimed = []
    while sweep := claim_sweep(store, owner=owner, now=10.0, lease_s=LEASE_S):
        claimed.append(sweep.id)
    return claimed


def open_and_claim_all(url: str, owner: str) -> list[str]:
    """The same in a process of its own."""
    store = open_store(url)
    try:
        return claim_all(store, owner)
    finally:
        store.close()
