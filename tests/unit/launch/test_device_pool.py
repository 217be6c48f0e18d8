from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotuner.core.cluster import LOCAL
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.trial import Stopped
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.devices import CORES, DevicePool
from autotuner.launch.launchers import Launchers
from autotuner.service.build import build
from autotuner.service.settings import Settings
from tests.fake_launcher import FakeLauncher, plain_measurement
from tests.trials.launching import SHORT, Watcher, left_over, spec

GPUS = tuple("01234567")
STOPPED = Stopped(reason="cancelled")


def on_gpus(trial_id: str, num_gpus: int) -> TrialSpec:
    return spec(trial_id, device="cuda", layout=Layout(data_parallel_replicate_degree=num_gpus))


def gpus() -> DevicePool:
    return DevicePool(lambda: GPUS)


def impatient() -> Watcher:
    """Stops the trial as soon as it is asked."""
    return Watcher(stop_after=0)


HOLDS = """
import sys
from pathlib import Path
from autotuner.launch.devices import DevicePool
from tests.trials.launching import Watcher, spec
with DevicePool(lock_folder=lambda: Path(sys.argv[1])).claim(spec("theirs"), Watcher()):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the cores of all pools with that lock folder."""
    command = [sys.executable, "-c", HOLDS, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def somebody_else() -> Iterator[None]:
    """Another service whose trial runs on the machine's cores."""
    with DevicePool.of_this_machine().claim(spec("somebody-else"), Watcher()) as devices:
        assert devices == (CORES,)
        yield


def test_trials_have_gpus_of_their_own_and_others_on_cores_do_not_wait_for_them() -> None:
    pool = gpus()
    with ExitStack() as claims:
        held = [claims.enter_context(pool.claim(on_gpus(f"t{n}", 2), impatient())) for n in range(4)]
    assert sorted(device for devices in held if isinstance(devices, tuple) for device in devices) == list(GPUS)
    pool = gpus()
    with pool.claim(spec("cores"), impatient()) as cores, pool.claim(on_gpus("gpus", 8), impatient()) as devices:
        assert (cores, devices) == ((CORES,), GPUS)
    pool = gpus()
    with pytest.raises(ZeroDivisionError), pool.claim(on_gpus("broken", 8), impatient()):
        raise ZeroDivisionError
    with pool.claim(on_gpus("next", 8), impatient()) as devices:
        assert devices == GPUS


def test_a_trial_waits_for_a_free_gpu_says_so_and_can_be_stopped() -> None:
    pool, watcher = gpus(), impatient()
    with pool.claim(on_gpus("first", 7), impatient()), pool.claim(on_gpus("second", 2), watcher) as devices:
        assert devices == STOPPED
    assert watcher.waits == ["waits until other trials on this machine have ended"]
    with pool.claim(on_gpus("third", 8), impatient()) as devices:
        assert devices == GPUS  # the one that was free while the second waited included


def test_a_trial_that_gets_its_devices_after_a_wait_says_that_it_goes_on() -> None:
    pool, holding, waits = gpus(), threading.Event(), threading.Event()

    class Waiting(Watcher):
        def on_wait(self, reason: str | None) -> None:
            super().on_wait(reason)
            waits.set()

    def hold() -> None:
        with pool.claim(on_gpus("first", 8), Watcher()):
            holding.set()
            waits.wait()

    holder, watcher = threading.Thread(target=hold), Waiting()
    holder.start()
    holding.wait()
    with pool.claim(on_gpus("second", 8), watcher) as devices:
        assert devices == GPUS
    holder.join()
    assert watcher.waits == ["waits until other trials on this machine have ended", None]


def test_a_claim_within_a_claim_of_the_same_trial_has_its_devices() -> None:
    pool = gpus()
    with pool.claim(on_gpus("t", 4), impatient()) as outer:
        with pool.claim(on_gpus("t", 4), impatient()) as inner:
            assert inner == outer
        with pool.claim(on_gpus("other", 8), impatient()) as devices:
            assert devices == STOPPED  # the inner one's end gave nothing back


def test_claims_of_many_threads_never_share_a_gpu_and_all_have_their_turn() -> None:
    pool, taken, mutex = gpus(), set[str](), threading.Lock()

    def run(number: int) -> None:
        with pool.claim(on_gpus(f"t{number}", 3), Watcher()) as devices:
            assert isinstance(devices, tuple)
            with mutex:
                assert not taken & set(devices)
                taken.update(devices)
            with mutex:
                taken.difference_update(devices)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(run, range(24)))


def test_pools_with_one_folder_share_their_devices_and_release_them(tmp_path: Path) -> None:
    mine, theirs = (DevicePool(lambda: GPUS, lock_folder=lambda: tmp_path) for _ in range(2))
    with mine.claim(on_gpus("mine", 6), impatient()) as held:
        with theirs.claim(on_gpus("theirs", 2), impatient()) as devices:
            assert devices == ("6", "7")
        with theirs.claim(on_gpus("more", 3), impatient()) as devices:
            assert devices == STOPPED
    assert held == tuple("012345")
    with theirs.claim(on_gpus("after", 8), impatient()) as devices:
        assert devices == GPUS


@pytest.mark.usefixtures("somebody_else")
def test_while_another_trial_runs_a_service_starts_none_and_can_still_be_stopped(tmp_path: Path) -> None:
    application = build(Settings(database_url=f"sqlite:///{tmp_path}/store", work_dir=tmp_path))
    assert application.launcher.run(spec("waiting"), impatient()) == STOPPED
    assert left_over("waiting") == []
    application.close()


def test_all_runs_of_a_trial_keep_its_devices_so_that_waiting_for_them_takes_no_time_from_any() -> None:
    pool = DevicePool()

    def behave(trial: TrialSpec) -> Measurement:
        with pool.claim(spec("another"), impatient()) as devices:
            assert devices == STOPPED
        return plain_measurement(trial)

    launcher = FakeLauncher(behave)
    Launchers({LOCAL: launcher}, pool).run(spec("twice", replace(SHORT, num_runs=2)), Watcher())
    assert len(launcher.specs) == 2


def test_a_folder_that_cannot_be_locked_in_says_why_and_nothing_of_the_trial(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pool = DevicePool(lock_folder=lambda: tmp_path / "file")
    outcome = Launchers({LOCAL: FakeLauncher()}, pool).run(spec("unlocked"), Watcher())
    assert isinstance(outcome, Stopped)
    assert (outcome.reason, "file" in outcome.detail) == ("infrastructure", True)


def test_a_waiting_trial_names_the_frozen_process_that_holds_the_devices(
    tmp_path: Path,
) -> None:
    pool, watcher = DevicePool(lock_folder=lambda: tmp_path), impatient()
    with held_by_another(tmp_path) as other:
        with pool.claim(spec("waiting"), impatient()) as devices:
            assert devices == STOPPED
        other.send_signal(signal.SIGSTOP)
        while psutil.Process(other.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        with pool.claim(spec("mine"), watcher) as devices:
            assert devices == STOPPED
    assert [f"process {other.pid} uses the devices and is stopped" in str(reason) for reason in watcher.waits] == [True]
    with pool.claim(spec("next"), impatient()) as devices:
        assert devices == (CORES,)


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (open_to_all, "other users may write"),
        (lambda folder: folder.symlink_to(folder.parent), "belongs to another user"),
    ],
    ids=["other users may write to it", "it leads elsewhere"],
)
def test_a_lock_folder_that_is_not_only_ours_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], said: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make(tmp_path / f"autotuner-{os.getuid()}")
    outcome = Launchers({LOCAL: FakeLauncher()}, DevicePool.of_this_machine()).run(spec("t"), Watcher())
    assert isinstance(outcome, Stopped)
    assert said in outcome.detail
