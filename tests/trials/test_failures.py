"""Every way in which a trial can die, produced for real: it ends classified, leaves nothing, and the next one runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autotuner.core.cluster import LOCAL
from autotuner.core.codec import dumps
from autotuner.core.measurement import Measurement
from autotuner.core.run import RunState
from autotuner.core.sweep import Budget
from autotuner.core.trial import FailureKind, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.launch.contract import TrialWatcher
from autotuner.launch.forks import Forks
from autotuner.launch.launchers import Launchers
from autotuner.launch.local import DiskRoom, LocalLauncher
from autotuner.runs.clock import SystemClock
from autotuner.store.sql import memory_store
from tests.builders import cpu_cluster, sweep_request, tiny_job
from tests.fake_launcher import sweep_worker
from tests.trials.fork_server import read_lines
from tests.trials.launching import ENDLESS, SHORT, Watcher, disturb, left_over, ranks_of, spec, too_large


def died(launcher: LocalLauncher, trial: TrialSpec, watcher: Watcher | None = None) -> TrialFailure:
    """How the trial failed, after which none of its processes and files is left."""
    outcome = launcher.run(trial, watcher or Watcher())
    assert isinstance(outcome, TrialFailure), outcome
    assert left_over(trial.trial_id) == []
    return outcome


def test_a_trial_that_exhausts_its_memory_ran_out_of_memory(tmp_path: Path, forks: Forks) -> None:
    failure = died(LocalLauncher(tmp_path, forks), too_large("oom"))
    assert failure.kind == FailureKind.OOM
    assert failure.rank in (0, 1)
    assert "allocate" in failure.log_tail


@pytest.mark.parametrize("budget_bytes", [1_000_000, 8_000_000])
def test_a_budget_without_room_for_the_stack_of_a_thread_is_too_little_memory(
    tmp_path: Path, forks: Forks, budget_bytes: int
) -> None:
    """What a thread is refused with, EAGAIN, names no memory."""
    trial = spec("thread", replace(SHORT, memory_budget_bytes=budget_bytes))
    assert died(LocalLauncher(tmp_path, forks), trial).kind == FailureKind.OOM


def test_a_rank_that_aborts_ends_the_trial_as_a_crash_that_names_it(launcher: LocalLauncher) -> None:
    watcher = Watcher(at_first_step=disturb("aborted", 1, signal.SIGABRT))
    failure = died(launcher, spec("aborted", ENDLESS), watcher)
    assert (failure.kind, failure.rank) == (FailureKind.CRASH, 1)
    assert "SIGABRT" in failure.message


def test_a_rank_that_somebody_kills_says_nothing_of_the_trial_which_may_be_run_again(launcher: LocalLauncher) -> None:
    watcher = Watcher(at_first_step=disturb("killed", 1, signal.SIGKILL))
    outcome = launcher.run(spec("killed", ENDLESS), watcher)
    assert outcome == Stopped(reason="infrastructure", detail="rank 1 was ended by SIGKILL")
    assert left_over("killed") == []


@pytest.mark.parametrize(
    ("launcher", "limit_s"),
    [("fork", 4.0), pytest.param("torchrun", 12.0, marks=pytest.mark.oracle)],  # it imports torch first
    indirect=["launcher"],
)
def test_a_rank_that_hangs_ends_the_trial_at_its_time_limit(launcher: LocalLauncher, limit_s: float) -> None:
    """A stopped process ignores every signal but the last, as one that hangs in a driver does."""
    watcher = Watcher(at_first_step=disturb("hung", 1, signal.SIGSTOP))
    failure = died(launcher, spec("hung", replace(ENDLESS, timeout_s=limit_s)), watcher)
    assert failure.kind == FailureKind.TIMEOUT, failure
    assert f"{limit_s:.0f} s" in failure.message
    if watcher.steps:  # on a loaded machine ranks may be importing torch still
        assert failure.rank == 1


def test_a_trial_out_of_time_shows_where_its_ranks_were(tmp_path: Path, forks: Forks) -> None:
    launcher = LocalLauncher(tmp_path, forks)
    assert isinstance(launcher.run(spec("first"), Watcher()), Measurement)  # ranks of the next are forked at once
    failure = died(launcher, spec("slow", replace(ENDLESS, timeout_s=2.0)))
    assert failure.kind == FailureKind.TIMEOUT, failure
    assert "most recent call first" in failure.log_tail


def test_a_loss_that_is_no_number_is_a_failure_of_numerics(launcher: LocalLauncher) -> None:
    failure = died(launcher, spec("nan", replace(SHORT, learning_rate=1e30)))
    assert failure.kind == FailureKind.NUMERICS
    assert "NonFiniteLoss" in failure.message


def test_a_network_interface_that_is_not_there_is_a_failure_of_communication(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nonexistent0")
    failure = died(launcher, spec("interface"))
    assert failure.kind == FailureKind.COMMUNICATION
    assert "nonexistent0" in failure.message + failure.log_tail


@pytest.mark.oracle  # two torchruns
def test_a_port_that_is_in_use_is_a_failure_of_communication(tmp_path: Path) -> None:
    """Forked ranks meet in a file and a single torchrun takes any free port; ranks of several hosts are given one."""
    (tmp_path / "spec.json").write_text(dumps(spec("port")))
    paths = ("--spec", str(tmp_path / "spec.json"), "--reports", str(tmp_path / "reports.jsonl"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        command = [sys.executable, "-m", "autotuner.trials", *paths]
        environment = {**os.environ, **place, **address}
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    (failure,) = read_lines(tmp_path / "reports.jsonl")
    assert (done.returncode, failure["kind"]) == (1, "communication")
    assert "EADDRINUSE" in failure["message"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a quarter megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> None:
    """Leave no byte free."""
    with (place / "rubbish").open("wb", buffering=0) as file:
        for size in (1 << 12, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


def test_a_trial_waits_while_the_disk_is_full_and_says_so(small_disk: Path, forks: Forks) -> None:
    class Tidy(Watcher):
        """Empties the disk once it hears that the trial waits for that."""

        def on_wait(self, reason: str | None) -> None:
            super().on_wait(reason)
            (small_disk / "rubbish").unlink(missing_ok=True)

    fill(small_disk)
    watcher = Tidy()
    assert isinstance(LocalLauncher(small_disk, forks).run(spec("full"), watcher), Measurement)
    reason, goes_on = watcher.waits
    assert reason == f"waits for free space on the disk of {small_disk}, which has 0 B left"
    assert goes_on is None


def test_a_trial_that_waits_for_room_on_the_disk_can_be_stopped(small_disk: Path, forks: Forks) -> None:
    fill(small_disk)
    outcome = LocalLauncher(small_disk, forks).run(spec("full"), Watcher(stop_after=0))
    assert outcome == Stopped(reason="cancelled")


def test_a_disk_that_fills_up_during_a_trial_says_nothing_of_the_trial(small_disk: Path, forks: Forks) -> None:
    launcher = LocalLauncher(small_disk, forks)
    outcome = launcher.run(spec("filling", ENDLESS), Watcher(at_first_step=lambda: fill(small_disk)))
    assert isinstance(outcome, Stopped)
    assert outcome.reason == "infrastructure"
    assert outcome.detail.startswith(f"no space left in {small_disk}: ")
    (small_disk / "rubbish").unlink()
    assert isinstance(launcher.run(spec("emptied"), Watcher()), Measurement)


def test_a_disk_that_was_full_counts_though_it_has_room_again_when_the_trial_is_judged(small_disk: Path) -> None:
    disk = DiskRoom(small_disk)
    crash = TrialFailure(kind=FailureKind.CRASH, message="rank 1 was ended by exit code 1")
    assert disk.if_full(crash) is None
    fill(small_disk)
    disk.look()
    (small_disk / "rubbish").unlink()
    detail = f"no space left in {small_disk}: rank 1 was ended by exit code 1"
    assert disk.if_full(crash) == Stopped(reason="infrastructure", detail=detail)
    assert disk.if_full(replace(crash, kind=FailureKind.OOM)) is None


def test_a_program_that_dies_of_another_full_disk_is_no_crash(tmp_path: Path) -> None:
    failure = TrialFailure(kind=FailureKind.CRASH, message="OSError: [Errno 28] No space left on device")
    stopped = DiskRoom(tmp_path).if_full(failure)
    assert stopped is not None
    assert stopped.detail == f"no space left on a disk: {failure.message}"


def test_a_work_directory_that_cannot_be_written_says_why_and_nothing_of_the_trial(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = LocalLauncher(tmp_path / "file").run(spec("nowhere"), Watcher())
    assert isinstance(outcome, Stopped)
    assert outcome.reason == "infrastructure"
    assert "file" in outcome.detail


def test_a_killed_fork_server_ends_its_trial_and_the_next_one_outlives_the_thread_that_starts_it(
    tmp_path: Path, forks: Forks
) -> None:
    launcher = LocalLauncher(tmp_path, forks)
    fork_servers: list[int] = []

    def kill_fork_server() -> None:
        os.kill(ranks_of("nursery")[0].ppid(), signal.SIGKILL)

    outcome = launcher.run(spec("nursery", ENDLESS), Watcher(at_first_step=kill_fork_server))
    assert outcome == Stopped(reason="infrastructure", detail="rank 0 was ended by SIGKILL")
    assert left_over("nursery") == []
    watcher = Watcher(at_first_step=lambda: fork_servers.append(ranks_of("next")[0].ppid()))
    with ThreadPoolExecutor(1) as thread:
        assert isinstance(thread.submit(launcher.run, spec("next"), watcher).result(), Measurement)
    assert [forks.idle_fork_server().pid] == fork_servers


def test_a_profiled_step_that_fails_leaves_the_measurement_and_says_why_there_is_no_breakdown(
    tmp_path: Path, forks: Forks
) -> None:
    """With such a learning rate the first step has a loss, and one of the next, which are profiled, has none."""
    one_step = replace(SHORT, warmup_steps=0, max_warmup_steps=0, measured_steps=1, max_measured_steps=1)
    settings = replace(one_step, profiled_steps=5, learning_rate=1e30)
    outcome = LocalLauncher(tmp_path, forks).run(spec("unprofiled", settings), Watcher())
    assert isinstance(outcome, Measurement), outcome
    assert (outcome.num_steps, outcome.breakdown) == (1, None)
    assert outcome.breakdown_failure is not None
    assert outcome.breakdown_failure.startswith("numerics: NonFiniteLoss")


class Assassin(Watcher):
    """Kills a rank of the one trial in a directory, once that has its measurement."""

    def __init__(self, work_dir: Path, trial_id: str) -> None:
        super().__init__()
        self._work_dir = work_dir
        self._trial_id = trial_id

    def stop_requested(self) -> Stopped | None:
        if any('"type":"measurement"' in path.read_text() for path in self._work_dir.glob("*/reports.jsonl")):
            ranks_of(self._trial_id)[1].kill()
            self._work_dir = Path("/nonexistent")
        return None


def test_a_rank_that_is_killed_in_a_profiled_step_costs_no_more_than_the_breakdown(
    tmp_path: Path, forks: Forks
) -> None:
    settings = replace(SHORT, profiled_steps=1000)  # more than are waited for
    outcome = LocalLauncher(tmp_path, forks).run(spec("halfway", settings), Assassin(tmp_path, "halfway"))
    assert isinstance(outcome, Measurement), outcome
    assert (outcome.num_steps, outcome.breakdown) == (2, None)
    assert outcome.breakdown_failure is not None
    assert "rank 1 was ended by SIGKILL" in outcome.breakdown_failure
    assert left_over("halfway") == []


@dataclass(frozen=True, slots=True)
class Mishap:
    """What happens to one trial of a sweep."""

    settings: Callable[[TrialSettings], TrialSettings] = lambda settings: settings
    signal: signal.Signals | None = None


class ClumsyLauncher(LocalLauncher):
    """Has the first trials of a sweep meet with mishaps, one each."""

    def __init__(self, work_dir: Path, starter: Forks, mishaps: list[Mishap]) -> None:
        super().__init__(work_dir, starter)
        self._mishaps = iter(mishaps)

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Outcome:
        mishap = next(self._mishaps, Mishap())
        spec = replace(spec, settings=mishap.settings(spec.settings))
        if mishap.signal is None:
            return super().run(spec, watcher)
        return super().run(spec, Watcher(at_first_step=disturb(spec.trial_id, 1, mishap.signal)))


@pytest.mark.oracle  # a sweep of many trials
def test_a_sweep_goes_on_after_trials_that_died_of_everything(tmp_path: Path, forks: Forks) -> None:
    mishaps = {
        FailureKind.OOM: Mishap(
            lambda settings: replace(settings, memory_budget_bytes=12_000_000)
        ),  # a thread's stack is 8
        FailureKind.CRASH: Mishap(lambda settings: ENDLESS, signal.SIGABRT),
        FailureKind.NUMERICS: Mishap(lambda settings: replace(settings, learning_rate=1e30)),
        FailureKind.TIMEOUT: Mishap(lambda settings: replace(ENDLESS, timeout_s=3.0), signal.SIGSTOP),
    }
    store = memory_store()
    budget = Budget(num_trials=len(mishaps) + 2, prune_below=0.0, min_gain=0.0)
    core = replace(cpu_cluster(2).accelerator, peak_is_measured=True)  # so that no trial measures it
    job = tiny_job(2, cluster=cpu_cluster(2, accelerator=core))
    request = sweep_request(job=job, budget=budget, trial=replace(SHORT, max_repeats=0))
    sweep, _ = store.create_sweep(request, now=0.0)
    launcher = Launchers({LOCAL: ClumsyLauncher(tmp_path, forks, list(mishaps.values()))})
    sweep_worker(store, launcher, SystemClock(), owner="one", lease_s=60.0).run_once()
    trials, _ = store.list_trials(sweep.id)
    assert [trial.failure.kind for trial in trials if trial.failure] == list(mishaps)
    assert [trial.measurement is not None for trial in trials] == [False] * len(mishaps) + [True] * 2
    assert store.get_sweep(sweep.id).state == RunState.COMPLETE
    assert [left_over(trial.id) for trial in trials] == [[]] * len(trials)
    assert list(tmp_path.iterdir()) == []
