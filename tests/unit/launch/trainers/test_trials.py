"""Trials of a small trainer of the standard library: measured, and dying in every way that it knows."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotuner.core.choices import ExportFormat
from autotuner.core.measurement import Measurement
from autotuner.core.measuring import Peak, model_flop
from autotuner.core.trial import FailureKind, Outcome, Stopped
from autotuner.core.trial_spec import Trainer, TrialSettings
from autotuner.host.machine_facts import host_hash
from autotuner.launch.contract import Place
from autotuner.launch.local import LocalLauncher
from autotuner.launch.trainers.registration import RegisteredTrainer
from autotuner.launch.work import TrainerWork
from tests.builders import cpu_cluster, tiny_model
from tests.trainers.registered import by_trainer, registered
from tests.trials.launching import ENDLESS, SHORT, Watcher, failed, left_over, measured, spec

HANGING = replace(SHORT, timeout_s=3.0)


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    return tmp_path / "work"


def run(
    work_dir: Path,
    registration: RegisteredTrainer,
    settings: TrialSettings = SHORT,
    watcher: Watcher | None = None,
    name: str = "trainer",
) -> Outcome:
    """How a trial of two ranks ended; afterwards no process and no file of it is left."""
    launcher = LocalLauncher(work_dir, trainers={registration.trainer.name: registration})
    outcome = launcher.run(by_trainer(spec(name, settings), registration), watcher or Watcher())
    launcher.close()
    assert left_over(name) == []
    assert not work_dir.exists() or list(work_dir.iterdir()) == []
    return outcome


# ---------------------------------------------------------------- measured
def test_a_trainers_measurement_is_computed_as_for_the_built_in_trial(work_dir: Path) -> None:
    watcher = Watcher()
    result = measured(run(work_dir, registered(), replace(SHORT, measured_steps=6, max_measured_steps=6), watcher))
    times_s = sorted(step.step_time_s for step in watcher.steps if not step.is_warmup)
    assert len(times_s) == result.num_steps == 6
    assert result.step_time_s == pytest.approx((times_s[2] + times_s[3]) / 2)
    assert result.step_time_interval_s == pytest.approx((times_s[-1] - times_s[0]) / 2)
    trial = spec("like")
    assert result.mfu == pytest.approx(model_flop(trial) / (result.step_time_s * 2e11))
    assert result.tokens_per_s == pytest.approx(trial.workload.tokens_per_step / result.step_time_s)
    assert result.hfu == result.mfu
    assert result.losses == pytest.approx([5.0 - 0.001 * step for step in range(7)])
    assert len(result.peak_bytes) == 2
    assert (result.phases, result.breakdown) == (None, None)
    assert result.environment["trainer"] == "loop"


def test_a_trainer_tells_its_versions_and_the_launcher_the_rest(work_dir: Path) -> None:
    result = measured(run(work_dir, registered(NCCL_ALGO="Tree", MY_TOKEN="told to nobody", NO_LOSS="1")))
    facts = result.environment
    assert result.losses == ()  # which nobody told
    assert facts["torch"] == "2.13"
    assert (facts["host"], facts["kernel"]) == (host_hash(), platform.release())
    assert facts["NCCL_ALGO"] == "Tree"
    assert facts["foreign_cpu_share"].startswith("0.")
    assert "told to nobody" not in facts.values()


def test_a_trainer_that_has_steps_left_is_ended_when_enough_were_measured(work_dir: Path) -> None:
    settings = replace(SHORT, max_measured_steps=1000, measuring_budget_s=0.01)
    assert measured(run(work_dir, registered(), settings)).num_steps < 1000


def test_a_log_without_times_is_timed_by_its_lines(work_dir: Path) -> None:
    watcher = Watcher()
    result = measured(run(work_dir, registered(reports="printed", LOG="1"), watcher=watcher))
    assert [step.step for step in watcher.steps] == [0, 1, 2]
    assert result.losses == pytest.approx([4.999, 4.998, 4.997])  # nothing tells what the first step took
    assert len(result.peak_bytes) == 1


# ---------------------------------------------------------------- failed
@pytest.mark.parametrize(
    ("misbehaviour", "kind", "rank", "words"),
    [
        ("oom", FailureKind.OOM, 1, "CUDA out of memory"),
        ("starve", FailureKind.OOM, None, "MemoryError"),
        ("crash", FailureKind.CRASH, 1, 'ValueError: "no"'),
        ("quiet", FailureKind.CRASH, None, "exit code 4, after step 1"),
        ("killed", FailureKind.CRASH, None, "SIGKILL"),
        ("lonely", FailureKind.COMMUNICATION, 1, "NCCL error"),
        ("diverge", FailureKind.NUMERICS, None, "the loss of step 2 is nan"),
    ],
)
def test_a_death_is_described_by_its_kind_its_rank_and_its_words(
    work_dir: Path, misbehaviour: str, kind: FailureKind, rank: int | None, words: str
) -> None:
    failure = failed(run(work_dir, registered(MISBEHAVE=misbehaviour), ENDLESS))
    assert failure.kind == kind, failure
    assert rank is None or failure.rank == rank
    assert words in failure.message
    assert "a line that says nothing" in failure.log_tail


def test_a_limit_of_memory_is_a_real_one(work_dir: Path) -> None:
    registration = registered()
    large = tiny_model(num_layers=8, hidden_size=512, ffn_size=2048)
    trial = by_trainer(spec("large", replace(SHORT, memory_budget_bytes=64 * 2**20)), registration, model=large)
    launcher = LocalLauncher(work_dir, trainers={"loop": registration})
    assert failed(launcher.run(trial, Watcher())).kind == FailureKind.OOM
    enough = replace(trial, settings=replace(SHORT, memory_budget_bytes=2**30))
    assert isinstance(launcher.run(enough, Watcher()), Measurement)


def test_a_hang_is_ended_at_the_limit_and_names_the_last_step(work_dir: Path) -> None:
    failure = failed(run(work_dir, registered(MISBEHAVE="hang"), HANGING))
    assert failure.kind == FailureKind.TIMEOUT
    assert "the last step was 1" in failure.message


def test_a_trainer_that_ends_after_too_few_steps_says_how_many_are_needed(work_dir: Path) -> None:
    failure = failed(run(work_dir, registered(MISBEHAVE="stop"), replace(SHORT, measured_steps=5)))
    assert failure.kind == FailureKind.CRASH
    assert "after 2 steps" in failure.message
    assert "at least 6 are needed" in failure.message


def test_a_trainer_that_ends_by_itself_after_enough_steps_is_measured(work_dir: Path) -> None:
    settings = TrialSettings(
        warmup_steps=1, max_warmup_steps=1, measured_steps=2, max_measured_steps=3, target_interval=0.0, timeout_s=30.0
    )
    registration = replace(registered(), command=tuple(c.replace("{steps}", "4") for c in registered().command))
    assert measured(run(work_dir, registration, settings)).num_steps == 3


def test_tokens_or_ranks_of_another_job_are_no_trial_of_this_one(work_dir: Path) -> None:
    failure = failed(run(work_dir, registered(TOKENS="256"), ENDLESS))
    assert failure.kind == FailureKind.CRASH
    assert "256 tokens" in failure.message
    assert "512" in failure.message
    assert isinstance(run(work_dir, registered(TOKENS="500")), Measurement)
    failure = failed(run(work_dir, registered(ALONE="1"), ENDLESS))
    assert "rank 0 reported step" in failure.message


def test_a_program_is_named_where_it_is_not_there_and_may_be_the_interpreter_of_the_service(work_dir: Path) -> None:
    registration = replace(registered(), command=("/no/such/program",))
    failure = failed(run(work_dir, registration))
    assert failure.kind == FailureKind.CRASH
    assert "/no/such/program" in failure.log_tail
    registration = replace(registered(), command=("{python}", "-c", "import sys; print(sys.executable); sys.exit(5)"))
    assert sys.executable in failed(run(work_dir, registration)).log_tail
    assert os.access(sys.executable, os.X_OK)


def test_a_folder_or_registration_that_is_not_there_interrupts_the_trial_and_is_named(work_dir: Path) -> None:
    outcome = run(work_dir, replace(registered(), working_directory=Path("/no/such/folder")))
    assert isinstance(outcome, Stopped)
    assert "/no/such/folder" in outcome.detail
    trial = by_trainer(spec("unknown"), registered("elsewhere"))
    outcome = LocalLauncher(work_dir, trainers={"loop": registered()}).run(trial, Watcher())
    assert isinstance(outcome, Stopped)
    assert "elsewhere is not registered" in outcome.detail
    assert "loop" in outcome.detail


def test_a_launcher_refuses_a_trainer_that_it_does_not_know_or_knows_otherwise(work_dir: Path) -> None:
    launcher = LocalLauncher(work_dir, trainers={"loop": registered()})
    assert launcher.refuses(cpu_cluster(), registered().trainer) is None
    assert launcher.refuses(cpu_cluster(), None) is None
    unknown = Trainer(name="other", format=ExportFormat.ARGUMENTS)
    assert "not registered" in str(launcher.refuses(cpu_cluster(), unknown))
    otherwise = replace(registered().trainer, options=("micro_batch_size",))
    assert "registered differently" in str(launcher.refuses(cpu_cluster(), otherwise))


# ---------------------------------------------------------------- ended for certain
def test_a_process_without_session_group_or_variables_of_its_trainer_is_ended_with_it(work_dir: Path) -> None:
    def left() -> Iterator[psutil.Process]:
        for process in psutil.process_iter(["cmdline"]):
            if (process.info["cmdline"] or [])[-1:] == ["left"]:
                yield process

    before = {process.pid for process in left()}
    watcher = Watcher(stop_after=20)
    run(work_dir, registered(MISBEHAVE="leave"), ENDLESS, watcher)
    assert [process for process in left() if process.pid not in before] == []


def test_a_node_that_somebody_else_ends_says_nothing_of_the_trial(work_dir: Path) -> None:
    def end_node() -> None:
        (node,) = [one for one in left_over("trainer") if one.cmdline()[1:3] == ["-m", "autotuner.trials.process.node"]]
        node.terminate()

    outcome = run(work_dir, registered(), ENDLESS, Watcher(at_first_step=end_node))
    assert outcome == Stopped(reason="infrastructure", detail=("the node received SIGTERM, and not from the autotuner"))


# ---------------------------------------------------------------- what it is given
def test_a_trainer_gets_no_variable_of_the_service_that_its_operator_did_not_name(
    work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET", "NAMED", "GLOO_SOCKET_IFNAME", "AUTOTUNER_DATABASE_URL"):
        monkeypatch.setenv(name, "of the service")
    tells = "import os; [print(name, value[:20], sep='=') for name, value in os.environ.items()]; os._exit(1)"
    registration = replace(registered(OWN="3"), environment=("NAMED", "NOT_THERE"), command=("{python}", "-Sc", tells))
    variables = dict(line.split("=", 1) for line in failed(run(work_dir, registration)).log_tail.splitlines())
    assert {name: variables[name] for name in ("NAMED", "OWN", "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES")} == {
        "NAMED": "of the service",
        "OWN": "3",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",
    }
    assert set(variables) <= {
        *("NAMED", "OWN", "PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "LC_CTYPE"),
        *("OMP_NUM_THREADS", "PYTHONUNBUFFERED", "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES"),
        *("AUTOTUNER_ATTEMPT_ID", "AUTOTUNER_REPORT_DIR", "AUTOTUNER_SPEC"),
    }


def test_a_budget_on_gpus_is_a_share_of_their_memory() -> None:
    registration = registered(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    settings = replace(SHORT, memory_budget_bytes=20 * 10**9)
    trial = by_trainer(spec("gpu", settings), registration, device="cuda", memory_bytes=80 * 10**9)
    work = TrainerWork(registration, trial, Peak(flop_per_s=1e12, source="said"))
    variables = work.task("attempt", Place(num_nodes=1, ranks_per_node=2, devices=("2", "3"))).variables
    assert variables["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert variables["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True,per_process_memory_fraction:0.2500"


def test_names_that_a_caller_gave_reach_no_file_as_they_are(work_dir: Path) -> None:
    """Whatever reads the words of a layout, a shell for example, a name in them starts nothing."""
    marker = work_dir.parent / "started"
    evil = f"x\n$(touch {marker}); `touch {marker}`"
    registration = replace(
        registered(), command=("/bin/sh", "-c", 'cat "$0"; cat "$0" >&2; exit 0', "{file}", "{arguments}")
    )
    trial = by_trainer(spec("evil"), registration, model=tiny_model(name=evil))
    trial = replace(trial, cluster=cpu_cluster(name=evil))
    failed(LocalLauncher(work_dir, trainers={"loop": registration}).run(trial, Watcher()))
    assert not marker.exists()
