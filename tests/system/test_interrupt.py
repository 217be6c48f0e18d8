"""Ctrl-C and SIGTERM on a command that runs its own service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from autotuner.core.errors import StoreUnavailable
from autotuner.store.sql import Store, open_store
from tests.builders import tiny_model
from tests.system.service import until
from tests.trials.launching import left_over


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.oracle)])
def test_an_interrupted_sweep_command_ends_its_trial_and_gives_the_sweep_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    url = f"sqlite:///{tmp_path}/autotuner.db"
    store = open_store(url)
    model = tmp_path / "tiny.json"
    model.write_text(json.dumps(to_plain(tiny_model())))
    # as in a terminal: a test run that a script started in the background has SIGINT ignored, and passes that on
    listening = ["env", "--default-signal=INT"]
    command = [*listening, sys.executable, "-m", "autotuner.cli", "sweep", "--model", str(model), "--cluster", "cpu:2"]
    environment = {**os.environ, "AUTOTUNER_DATABASE_URL": url, "AUTOTUNER_WORK_DIR": str(tmp_path / "trials")}
    with subprocess.Popen(
        [*command, "--global-batch", "8", "--seq-len", "64"],
        env=environment,
        stderr=subprocess.DEVNULL,
    ) as sweep:
        trial_id = until("a running trial", lambda: running_trial(store))
        until("its processes", lambda: left_over(trial_id))
        sweep.send_signal(number)
        assert sweep.wait(timeout=60) == 130
    assert left_over(trial_id) == []
    (given_back,), _ = store.runs.list("sweep")
    assert given_back.lease is None
    store.close()


def running_trial(store: Store) -> Any:
    try:
        sweeps, _ = store.runs.list("sweep")
        trials = store.list_trials(sweeps[0].id)[0] if sweeps else []
    except StoreUnavailable:
        return None  # not migrated yet
    return trials[0].id if trials else None
