"""The launchers of this machine, and those that pretend, keep the contract."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from autotuner.core.cluster import LOCAL
from autotuner.core.measurement import Measurement
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.launchers import Launchers
from tests.builders import cpu_cluster
from tests.contracts.launcher_contract import *  # noqa: F403  # its tests run here
from tests.contracts.launcher_contract import Subject, held_to_contract
from tests.contracts.launchers import LAUNCHERS
from tests.fake_launcher import FakeLauncher, plain_measurement
from tests.patience import PATIENCE_S
from tests.trials.launching import SHORT, Watcher, spec

# a torchrun takes ten seconds of a core to start, and a trainer's log is read as its reports are but for the reader:
# `make oracle` has the time, and forked ranks and a trainer that reports keep the contract here
_SLOW = ("torchrun", "trainer-by-its-log")
SUBJECTS = [pytest.param(name, marks=pytest.mark.oracle) if name in _SLOW else name for name in LAUNCHERS]


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A launcher for all tests of this module, which leaves no process when it is closed."""
    with held_to_contract(LAUNCHERS[request.param], tmp_path_factory.mktemp(request.param)) as subject:
        yield subject


def test_an_error_of_a_watcher_at_a_note_passes_unchanged() -> None:
    class Illiterate(Watcher):
        def on_note(self, note: str) -> None:
            raise OSError(note)

    with pytest.raises(OSError, match="run 2 of 2"):
        Launchers({LOCAL: FakeLauncher()}).run(spec("note", replace(SHORT, num_runs=2)), Illiterate())


@pytest.mark.parametrize("capacity", [1, 4, 16])
def test_the_fake_runs_as_many_trials_at_once_as_configured(capacity: int) -> None:
    together = threading.Barrier(capacity, timeout=PATIENCE_S)

    def behave(trial: TrialSpec) -> Measurement:
        together.wait()  # nobody passes who runs alone
        return plain_measurement(trial)

    launcher = FakeLauncher(behave, capacity=capacity)
    room = launcher.capacity(cpu_cluster())
    with ThreadPoolExecutor(room) as threads:
        outcomes = list(threads.map(lambda n: launcher.run(spec(f"one-of-{n}"), Watcher()), range(room)))
    assert len(outcomes) == capacity
