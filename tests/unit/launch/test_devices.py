"""The devices of this machine, who has them, and which launcher a trial goes to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from subprocess import run

import psutil
import pytest

from autotuner.catalog.hardware import load_accelerator
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.measurement import Measurement
from autotuner.launch.contract import ATTEMPT_ID
from autotuner.launch.launchers import Launchers
from autotuner.launch.local import LocalLauncher
from autotuner.launch.node_processes import end_all
from autotuner.launch.repeated import pooled
from autotuner.launch.this_machine import (
    ask_torch,
    detect_cluster,
    forget_cluster,
    software_of_this_machine,
    visible_gpus,
)
from tests.builders import breakdown, cpu_cluster, h100_cluster, measurement
from tests.fake_launcher import FakeLauncher
from tests.patience import PATIENCE_S
from tests.trials.launching import Watcher, failed, spec


@pytest.fixture(autouse=True)
def detected_anew() -> Iterator[None]:
    forget_cluster()
    yield
    forget_cluster()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver's command that lists what is written to the returned file, for machines without a GPU."""
    names, program = tmp_path / "names", tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat '{names}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return names


@pytest.fixture
def no_driver(driver: Path) -> None:
    """A driver that finds no device, as after its removal."""
    driver.write_text("")


@pytest.mark.usefixtures("no_driver")
def test_a_machine_without_gpus_is_its_cores_with_a_rate_that_is_measured_once_for_all_who_ask() -> None:
    with ThreadPoolExecutor(6) as threads:
        clusters = list(threads.map(lambda _: detect_cluster(), range(6)))
    cluster = clusters[0]
    assert clusters == [cluster] * 6
    assert (cluster.name, cluster.accelerator.kind) == ("local", "cpu")
    assert cluster.world_size == len(os.sched_getaffinity(0))
    assert cluster.accelerator.peak_is_measured
    assert cluster.accelerator.fp32_flop_per_s > 1e9  # the slowest core of this century multiplies faster
    assert "measured" in cluster.accelerator.peak_source


def test_a_machine_with_gpus_is_a_node_of_them_as_the_catalog_knows_them(driver: Path) -> None:
    driver.write_text("NVIDIA H200\n" * 8)
    cluster = detect_cluster()
    assert (cluster.num_nodes, cluster.accelerators_per_node) == (1, 8)
    assert cluster.accelerator == load_accelerator("h200")


def test_a_gpu_that_the_catalog_does_not_know_is_named_with_the_nearest_it_knows(driver: Path) -> None:
    driver.write_text("NVIDIA H300\n")
    with pytest.raises(InvalidInput, match="H300") as refusal:
        detect_cluster()
    assert refusal.value.nearest in ("NVIDIA H200", "NVIDIA H100 PCIe")


def test_the_local_launcher_refuses_more_gpus_than_the_machine_has(driver: Path, tmp_path: Path) -> None:
    driver.write_text("NVIDIA H100 80GB HBM3\n" * 8)
    launcher = LocalLauncher(tmp_path)
    assert launcher.refuses(h100_cluster(num_nodes=1)) is None
    refusal = launcher.refuses(h100_cluster(num_nodes=2))
    assert refusal is not None
    assert "16 GPUs" in refusal
    assert "has 8" in refusal


@pytest.mark.usefixtures("no_driver")
def test_the_local_launcher_lets_ranks_share_cores(tmp_path: Path) -> None:
    assert LocalLauncher(tmp_path).refuses(cpu_cluster(64)) is None


@pytest.mark.parametrize(("num_gpus", "num_nodes", "room"), [(16, 1, 2), (16, 2, 1), (8, 2, 1)])
def test_the_local_launcher_has_room_for_as_many_trials_as_find_gpus_of_their_own(
    driver: Path, tmp_path: Path, num_gpus: int, num_nodes: int, room: int
) -> None:
    driver.write_text("NVIDIA H100 80GB HBM3\n" * num_gpus)
    assert LocalLauncher(tmp_path).capacity(h100_cluster(num_nodes=num_nodes)) == room
    assert LocalLauncher(tmp_path).capacity(cpu_cluster(4)) == 1


@pytest.mark.parametrize(
    ("variable", "visible"),
    [(None, "0123"), ("2,3", "23"), ("1,-1,2", "1"), ("", ""), ("GPU-8ae3,0", ["GPU-8ae3", "0"])],
)
def test_gpus_that_the_environment_hides_are_not_used(
    driver: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, visible: Sequence[str]
) -> None:
    driver.write_text("NVIDIA H100 80GB HBM3\n" * 4)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == tuple(visible)
    if visible:
        assert detect_cluster().accelerators_per_node == len(visible)


# ---------------------------------------------------------------- torch jobs
def module(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
    """The name of a module that a new process finds."""
    (folder / "answering.py").write_text("\n".join(("import sys", *lines)))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "answering"


def test_the_last_line_is_the_answer_and_progress_stands_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module(tmp_path, monkeypatch, "print('noise')", "print(sys.stdin.read().upper())")
    assert ask_torch(name, "question", timeout_s=PATIENCE_S) == "QUESTION"
    told: list[str] = []
    lines = ("print('1 of 2\\n2 of 2', file=sys.stderr)", "print('done')")
    name = module(tmp_path, monkeypatch, *lines)
    assert ask_torch(name, "", timeout_s=PATIENCE_S, progress=told.append) == "done"
    assert told == ["1 of 2", "2 of 2"]


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ("sys.exit(print('too large', file=sys.stderr) or 2)", InvalidInput, "too large"),  # the caller's mistake
        ("raise ModuleNotFoundError(\"No module named 'torch'\")", InvalidInput, "is not installed here"),
        ("raise ValueError('odd shapes')", AutotunerError, "odd shapes"),
        ("__import__('time').sleep(60)", AutotunerError, "no answer within 1 s"),
    ],
)
def test_a_process_that_refuses_breaks_or_never_answers_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, error: type[Exception], said: str
) -> None:
    timeout_s = 1.0 if "sleep" in line else PATIENCE_S
    with pytest.raises(error, match=said):
        ask_torch(module(tmp_path, monkeypatch, line), "", timeout_s=timeout_s)


# ---------------------------------------------------------------- pooling
def test_one_run_or_equal_ones_stay_as_they_are_and_rates_follow_the_step_time() -> None:
    assert pooled([measurement()]) == measurement()
    run = measurement()
    slower = replace(run, step_time_s=3 * run.step_time_s)
    both = pooled([run, slower])
    for rate in ("mfu", "hfu", "tokens_per_s", "model_flop_per_s"):
        assert getattr(both, rate) == pytest.approx(getattr(run, rate) / 2), rate
    runs = [replace(measurement(), step_time_s=time_s) for time_s in (1.0, 1.1)]
    assert pooled(runs).step_time_s == pytest.approx(1.05)
    assert pooled(runs).noise_floor == pytest.approx(0.1 / 1.05)


@pytest.mark.parametrize(("times_s", "middle"), [((1.2, 1.0, 1.1), 2), ((1.1, 1.0), 1)])
def test_a_step_went_where_it_went_in_the_run_in_the_middle(times_s: tuple[float, ...], middle: int) -> None:
    runs = [measurement(step_time_s=time_s, breakdown=breakdown(forward_s=time_s)) for time_s in times_s]
    assert pooled(runs).breakdown == runs[middle].breakdown


def test_a_rank_needs_the_most_that_it_ever_held_and_the_worst_disturbance_counts() -> None:
    one = replace(measurement(), peak_bytes=(3, 5), foreign_cpu_share=0.02, num_disturbed=1)
    other = replace(measurement(), peak_bytes=(4, 4), foreign_cpu_share=0.07, num_disturbed=2)
    both = pooled([one, other])
    assert (both.peak_bytes, both.foreign_cpu_share, both.num_disturbed) == ((4, 5), 0.07, 3)


def test_the_interval_is_never_below_what_lies_between_the_runs_and_none_without_theirs() -> None:
    one = replace(measurement(), step_time_s=1.0, step_time_interval_s=0.003)
    near, far = (replace(one, step_time_s=time_s, step_time_interval_s=0.004) for time_s in (1.0, 1.2))
    assert pooled([one, near]).step_time_interval_s == pytest.approx(0.0025)  # (3² + 4²)½ / 2
    assert pooled([one, far]).step_time_interval_s == pytest.approx(0.1)
    run = replace(measurement(), step_time_interval_s=None)
    assert pooled([run, run]).step_time_interval_s is None


# ---------------------------------------------------------------- processes
@pytest.fixture
def process() -> Iterator[psutil.Process]:
    """A process of the trial ``sleeping``."""
    with subprocess.Popen(["sleep", "60"], env={**os.environ, ATTEMPT_ID: "sleeping"}) as sleeping:
        yield psutil.Process(sleeping.pid)
        sleeping.kill()


def test_processes_that_do_not_leave_are_given_up_and_named(process: psutil.Process) -> None:
    # As one does that a driver keeps: here it only looks as if it were there still.
    assert end_all("sleeping", grace_s=0.0, living=lambda attempt_id: [process]) == (process.pid,)
    assert end_all("sleeping", grace_s=5.0) == ()
    assert process.status() == psutil.STATUS_ZOMBIE


# ---------------------------------------------------------------- software
def test_versions_are_reported_as_trials_record_them_and_nothing_is_imported_for_it() -> None:
    facts = software_of_this_machine()
    assert facts["torch"] == version("torch")
    assert set(facts) >= {"host", "python", "kernel"}
    code = (
        "import sys; from autotuner.launch.this_machine import software_of_this_machine; software_of_this_machine();"
        "sys.exit('torch' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- Trials go to the engine that their cluster names
ELSEWHERE = replace(cpu_cluster(), engine="elsewhere")


def test_a_trial_runs_where_its_cluster_says_and_on_no_engine_that_nobody_registered() -> None:
    here, elsewhere = FakeLauncher(), FakeLauncher(capacity=4)
    launcher = Launchers({"local": here, "elsewhere": elsewhere})
    assert isinstance(launcher.run(spec("routed", cluster=ELSEWHERE), Watcher()), Measurement)
    assert (len(here.specs), len(elsewhere.specs)) == (0, 1)
    launcher.run(spec("routed"), Watcher())
    assert (len(here.specs), len(elsewhere.specs)) == (1, 1)
    nowhere = replace(cpu_cluster(), engine="nowhere")
    assert [launcher.capacity(cluster) for cluster in (ELSEWHERE, cpu_cluster(), nowhere)] == [4, 1, 1]
    assert launcher.refuses(nowhere) == (
        "the engine nowhere is not registered on the machine that runs trials; registered engines: local, elsewhere"
    )
    outcome = failed(launcher.run(spec("routed", cluster=nowhere), Watcher()))
    assert "the engine nowhere is not registered" in outcome.message
