"""A worker of its own on a SQLite file, for tests that kill it: its trials take a moment, and are of nobody."""

from __future__ import annotations

import sys
import threading
import time

from autotuner.core.measurement import Measurement
from autotuner.core.trial_spec import TrialSpec
from autotuner.runs.clock import SystemClock
from autotuner.runs.worker import forever
from autotuner.store.sql import open_store
from tests.fake_launcher import FakeLauncher, sweep_worker
from tests.unit.runs.challenged import a_fifth_slower_incumbent

TRIAL_S = 0.4
"""Time enough for whoever kills the worker to see the trial run."""


def slowly(spec: TrialSpec) -> Measurement:
    time.sleep(TRIAL_S)
    return a_fifth_slower_incumbent(spec)


if __name__ == "__main__":
    url, owner = sys.argv[1:]
    worker = sweep_worker(open_store(url), FakeLauncher(slowly), SystemClock(), owner=owner, lease_s=0.5)
    forever(worker.run_once, poll_s=0.05, shutdown=threading.Event(), name="worker")
