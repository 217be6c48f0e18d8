"""Whatever ends a job of a real Slurm, other than its own program, is an interruption with Slurm's reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.choices import ExportFormat
from autotuner.core.measurement import Measurement
from autotuner.core.trial import EngineJob, EngineJobPhase, Outcome, Stopped
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.engines.slurm import SlurmEngine
from autotuner.launch.engines.slurm_commands import SlurmCommands
from autotuner.launch.engines.slurm_job import SlurmSettings
from autotuner.launch.trainers.registration import RegisteredTrainer
from tests.contracts.held import HeldEngine
from tests.engines.slurm.cluster import SlurmCluster
from tests.engines.slurm.conftest import own_settings, table
from tests.system.service import until
from tests.trainers.registered import by_trainer
from tests.trials.launching import ENDLESS, Watcher, left_over, spec

pytestmark = pytest.mark.engine

PACED = Path(__file__).with_name("paced.py")

COMMAND = ("{python}", "-S", str(PACED), "{node_rank}", "{num_nodes}", "{master_address}", "{master_port}", "{steps}")

TRAINER = RegisteredTrainer(
    trainer=Trainer(name="paced", format=ExportFormat.ARGUMENTS, fixed={"precision": "fp32"}),
    command=COMMAND,
    working_directory=PACED.parent,
)
"""Runs on two nodes and needs no torch; each of its steps takes the better part of a second."""

FINITE = replace(ENDLESS, measured_steps=8, max_measured_steps=8)
"""Goes on for seconds after its first step, and ends by itself."""

PATIENT = replace(ENDLESS, timeout_s=300.0)
"""Lets torch and torchrun take their time to start on a busy machine."""

OTHER_USER = "nobody"

Act = Callable[[str], object]
"""Gets the number of the job that has just told its first step."""


@pytest.fixture
def held(slurm: SlurmCluster) -> HeldEngine:
    slurm.calm()
    return HeldEngine(lambda folder: table(slurm), lose_node=lambda *_: None, trainers={"paced": TRAINER})


def trial_of(held: HeldEngine, name: str, **changes: object) -> TrialSpec:
    """A trial of the trainer on both nodes."""
    trial = by_trainer(spec(name, ENDLESS), TRAINER)
    return replace(trial, cluster=held.cluster, **changes)  # type: ignore[arg-type]


def run(slurm: SlurmCluster, launcher: EngineLauncher, trial: TrialSpec, act: Act) -> tuple[Outcome, EngineJob]:
    """Return the outcome and the last that the trial's watcher heard of its job; nothing of the job is left.

    After a test that killed the controller, Slurm may give a job the number of an older one, cancel it before it
    begins and drain its nodes (``Duplicate jobid``). The trial is tried again then.
    """
    for _ in range(5):
        watcher = Acting(act)
        outcome = launcher.run(trial, watcher)
        assert left_over(trial.trial_id) == []
        if watcher.steps:
            break
        slurm.calm()
    launcher.close()
    return outcome, watcher.jobs[-1]


class Acting(Watcher):
    """Does something to the job at its first step."""

    def __init__(self, act: Act) -> None:
        super().__init__(at_first_step=lambda: act(self.jobs[-1].handle.split(":")[0]))


def assert_interrupted(outcome: Outcome, job: EngineJob, reason: str) -> None:
    """The trial will be tried again, and says why in Slurm's words."""
    assert isinstance(outcome, Stopped), outcome
    assert outcome.reason == "infrastructure"
    assert reason in outcome.detail
    assert job.phase is EngineJobPhase.LOST
    assert reason in job.detail


URGENT = ("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")

INTERRUPTED: dict[str, tuple[list[tuple[str, ...]], str]] = {
    "cancelled": ([("scancel", "{number}")], "CANCELLED: not by the autotuner"),
    "preempted": ([URGENT], "PREEMPTED"),
    "requeued": (
        # the autotuner asks for no requeueing
        [("scontrol", "update", "jobid={number}", "requeue=1"), ("scontrol", "requeue", "{number}")],
        "was requeued, but not by the autotuner",
    ),
    "suspended": ([("scontrol", "suspend", "{number}")], "SUSPENDED"),
    "downed": ([("scontrol", "update", "nodename=n2", "state=down", "reason=broken")], "NODE_FAIL"),
}
"""What an operator does to a job, and Slurm's reason."""


@pytest.mark.parametrize("what", INTERRUPTED)
def test_a_job_that_slurm_or_its_operator_ends_is_interrupted_and_does_not_start_again(
    what: str, held: HeldEngine, slurm: SlurmCluster, tmp_path: Path
) -> None:
    commands, reason = INTERRUPTED[what]

    def act(number: str) -> None:
        for command in commands:
            slurm.run(*(word.format(number=number) for word in command))

    outcome, job = run(slurm, held.launcher(tmp_path), trial_of(held, what), act)
    slurm.run("scontrol", "update", "nodename=n2", "state=resume", check=False)  # it may have come back by itself
    assert_interrupted(outcome, job, reason)
    # what preempted it is left, running or held: Slurm may have given it the number of an older job, too
    others = 1 if what == "preempted" else 0
    until("Slurm has no job of the trial", lambda: len(slurm.jobs("PENDING,RUNNING,COMPLETING")) == others)


def test_a_trial_of_our_own_decoder_is_interrupted_as_one_of_a_trainer_is(
    held: HeldEngine, slurm: SlurmCluster, tmp_path: Path
) -> None:
    trial = spec("decoder", PATIENT, cluster=held.cluster)
    outcome, job = run(slurm, held.launcher(tmp_path), trial, lambda number: slurm.run("scancel", number))
    assert_interrupted(outcome, job, "CANCELLED: not by the autotuner")


def test_a_job_of_one_user_that_another_user_cancels_is_interrupted(
    held: HeldEngine, slurm: SlurmCluster, tmp_path: Path
) -> None:
    """The jobs belong to an ordinary user; root, who is Slurm's administrator here, cancels one."""
    slurm.folder.chmod(0o755)
    settings = SlurmSettings(**own_settings(slurm) | python_for_all())
    engine = SlurmEngine("held", settings, as_other_user(slurm), fresh_s=0.0)
    launcher = EngineLauncher(held.registration(tmp_path), held.trainers, engine)
    owners: list[str] = []

    def cancel(number: str) -> None:
        owners.append(slurm.run("squeue", "--noheader", f"--jobs={number}", "--format=%u").stdout.strip())
        slurm.run("scancel", number)

    with files_for_all():
        outcome, job = run(slurm, launcher, trial_of(held, "another"), cancel)
    assert owners == [OTHER_USER]
    assert_interrupted(outcome, job, "CANCELLED: not by the autotuner")


def test_a_job_whose_node_is_drained_runs_to_its_end_and_the_next_one_waits_and_says_why(
    held: HeldEngine, slurm: SlurmCluster, tmp_path: Path
) -> None:
    outcome, _ = run(
        slurm,
        held.launcher(tmp_path),
        trial_of(held, "drained", settings=FINITE),
        lambda number: slurm.run("scontrol", "update", "nodename=n2", "state=drain", "reason=maintenance"),
    )
    assert isinstance(outcome, Measurement)
    waiting = Waiting(slurm)
    launcher = held.launcher(tmp_path)
    assert isinstance(launcher.run(trial_of(held, "next", settings=FINITE), waiting), Measurement)
    launcher.close()
    assert waiting.reasons
    # or Slurm gave it the number of an older job (see ``run``), and holds it
    known = ("n2", "DRAINED", "held", "BeginTime")
    assert all(any(word.upper() in reason.upper() for word in known) for reason in waiting.reasons), waiting.reasons


class Waiting(Watcher):
    """Has the drained node take jobs again as soon as the job says why it waits."""

    def __init__(self, slurm: SlurmCluster) -> None:
        super().__init__()
        self._slurm = slurm
        self.reasons: list[str] = []

    def on_job(self, job: EngineJob) -> None:
        super().on_job(job)
        if job.phase is EngineJobPhase.QUEUED and job.detail not in ("", "None", "Priority", "Resources"):
            self.reasons.append(job.detail)
            self._slurm.resume()


def as_other_user(slurm: SlurmCluster) -> Callable[..., str]:
    """Runs Slurm's programs as an ordinary user, whom the jobs then belong to."""
    commands = SlurmCommands(timeout_s=30.0, slurm_conf=str(slurm.conf))
    become = (f"--reuid={OTHER_USER}", "--regid=nogroup", "--clear-groups")

    def command(program: str, *arguments: str) -> str:
        renamed = [argument.replace("--user=root", f"--user={OTHER_USER}") for argument in arguments]
        return commands("setpriv", *become, program, *renamed)

    return command


def python_for_all() -> dict[str, object]:
    """An interpreter, and this package's paths, that an ordinary user can read."""
    paths = os.pathsep.join((str(Path(__file__).parents[3]), sysconfig.get_paths()["purelib"]))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in filter(None, (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin"))):
        become = ("setpriv", f"--reuid={OTHER_USER}", "--regid=nogroup", "--clear-groups")
        command = (*become, "env", f"PYTHONPATH={paths}", python, "-B", "-c", "import autotuner.trials.process.node")
        if subprocess.run(command, capture_output=True, check=False, cwd="/").returncode == 0:
            return {"python": python, "setup": [f"export PYTHONPATH={paths} PYTHONDONTWRITEBYTECODE=1"]}
    raise RuntimeError(f"this test needs {version} and this checkout where the user {OTHER_USER} can read them")


@contextmanager
def files_for_all() -> Iterator[None]:
    """Folders that are made meanwhile let every user write."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)
