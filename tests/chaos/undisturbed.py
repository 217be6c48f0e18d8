"""What a sweep comes to where nothing happens to it."""

from __future__ import annotations

from contextlib import closing

from autotuner.core.sweep import SweepRequest
from autotuner.runs.clock import SystemClock
from autotuner.store.sql import memory_store
from bench.sweeping import sweep_worker
from tests.chaos.account import Account, account_of
from tests.chaos.launcher import instant_launcher


def undisturbed(request: SweepRequest, *, is_ordered: bool) -> Account:
    """Run it in this process, at once: what comes of a trial follows from its layout, however long it takes."""
    with closing(memory_store()) as store:
        sweep, _ = store.create_sweep(request, now=0.0)
        assert sweep_worker(store, instant_launcher(), SystemClock(), owner="undisturbed", lease_s=60.0).run_once()
        return account_of(store, sweep.id, is_ordered=is_ordered)
