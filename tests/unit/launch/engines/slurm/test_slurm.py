"""Slurm: its commands, its scripts, and the engine on a scripted one."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import loads
from autotuner.core.errors import InvalidInput
from autotuner.core.trial import EngineJobPhase
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobStatus
from autotuner.launch.engines.slurm import SlurmEngine
from autotuner.launch.engines.slurm_commands import (
    CommandFailed,
    JobRow,
    SlurmCommands,
    phase_of,
    read_sacct,
    read_squeue,
)
from autotuner.launch.engines.slurm_job import SlurmSettings, batch_script, sbatch_options
from tests.builders import h100_cluster
from tests.unit.launch.engines.slurm.scripted import NAME, ScriptedSlurm, engine, order


# ---------------------------------------------------------------- commands
@pytest.fixture
def commands() -> SlurmCommands:
    return SlurmCommands(timeout_s=20.0, slurm_conf="/etc/here/slurm.conf")


def test_a_command_returns_its_output_or_the_text_or_code_of_its_error(commands: SlurmCommands) -> None:
    assert commands("echo", "$HOME; rm -rf /") == "$HOME; rm -rf /\n"
    with pytest.raises(CommandFailed, match="sh: sbatch: error: invalid partition specified: nowhere"):
        commands("sh", "-c", "echo sbatch: error: invalid partition specified: nowhere >&2; exit 1")
    with pytest.raises(CommandFailed, match="it ended with exit code 3"):
        commands("sh", "-c", "exit 3")
    with pytest.raises(EngineUnavailable, match=r"has not answered for 0\.2 s"):
        SlurmCommands(timeout_s=0.2)("sleep", "60")
    with pytest.raises(EngineUnavailable, match="cannot run squeue-of-nowhere"):
        commands("squeue-of-nowhere")


def test_a_command_gets_the_configuration_and_none_of_the_services_secrets(
    commands: SlurmCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", "postgresql://user:secret@host/db")
    monkeypatch.setenv("SBATCH_PARTITION", "elsewhere")
    printed = commands("env")
    assert "secret" not in printed
    assert "SBATCH" not in printed
    assert "SLURM_CONF=/etc/here/slurm.conf" in printed
    monkeypatch.setenv("SLURM_CONF", "/etc/there/slurm.conf")
    assert "SLURM_CONF=/etc/there/slurm.conf" in SlurmCommands(timeout_s=20.0)("env")


@pytest.mark.parametrize(
    "said",
    [
        "squeue: error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: If munged is up, restart with --num-threads=10",
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
    ],
)
def test_a_controller_that_is_away_or_full_may_answer_later(commands: SlurmCommands, said: str) -> None:
    with pytest.raises(EngineUnavailable) as raised:
        commands("sh", "-c", f"echo {said!r} >&2; exit 1")
    assert said in str(raised.value)


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"shared": "relative"}, "shared"),
        ({"shared": "/sha%red"}, "shared"),
        ({"sbatch_lines": ("#SBATCH --exclusive",)}, "sbatch_lines.0"),
        ({"sbatch_lines": ("--mem=0", "--comment=a\nrm -rf /")}, "sbatch_lines.1"),
        ({"srun_arguments": ("bash",)}, "srun_arguments.0"),
        ({"container_mounts": ("/data:/data",)}, "container_mounts"),
        ({"cpus_per_accelerator": -1}, "cpus_per_accelerator"),
        ({"command_timeout_s": 0.0}, "command_timeout_s"),
    ],
)
def test_a_meaningless_value_is_refused_by_name(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        SlurmSettings(**{"shared": "/shared"} | said)
    assert raised.value.field == field


def test_a_line_for_sbatch_that_is_no_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: --exclusive"):
        SlurmSettings(shared="/shared", sbatch_lines=("#SBATCH --exclusive",))


# ---------------------------------------------------------------- states
# as squeue 22.05.8 printed it
FROM_22_05 = """\
2|PENDING|Priority|bar||odd
1|RUNNING|None|n[1-2]|foo
3|FAILED|NonZeroExitCode|n1|t-1-0-0
"""

# sacct --parsable2 has the same fields in the same order; states of 25.05 among them
FROM_SACCT = """\
41|CANCELLED by 1000|None|None assigned|t-1-0-0
41.batch|COMPLETED||n1|batch
42|POWER_UP_NODE|None|n1|t-2-0-0
43|NODE_FAIL|None|gpu[001-016]|t-3-0-0
"""


def test_squeue_is_read_line_by_line_and_of_sacct_jobs_and_not_their_steps() -> None:
    assert list(read_squeue(FROM_22_05)) == [
        JobRow(number=2, name="|odd", state="PENDING", reason="Priority", nodes="bar"),
        JobRow(number=1, name="foo", state="RUNNING", nodes="n[1-2]"),
        JobRow(number=3, name="t-1-0-0", state="FAILED", reason="NonZeroExitCode", nodes="n1"),
    ]
    rows = list(read_sacct(FROM_SACCT))
    assert [(row.number, row.state, row.nodes) for row in rows] == [
        (41, "CANCELLED", ""),
        (42, "POWER_UP_NODE", "n1"),
        (43, "NODE_FAIL", "gpu[001-016]"),
    ]


@pytest.mark.parametrize("words", ["squeue: warning: something", "", "|||", "x|y|z", "²|RUNNING|None|n1|t"])
def test_words_that_are_no_job_are_passed_over(words: str) -> None:
    assert list(read_squeue(f"{words}\n{9 * '9' * 600}|RUNNING|None|n1|t\n")) == []


@pytest.mark.parametrize(
    ("phase", "states"),
    [
        (EngineJobPhase.QUEUED, "PENDING REQUEUED"),
        (EngineJobPhase.RUNNING, "RUNNING COMPLETING SUSPENDED STAGE_OUT EXPEDITING"),  # nobody knows the last yet
        (EngineJobPhase.ENDED, "COMPLETED DEADLINE"),
        (EngineJobPhase.LOST, "REVOKED LAUNCH_FAILED"),
    ],
)
def test_every_state_has_its_meaning(phase: EngineJobPhase, states: str) -> None:
    assert {state: phase_of(state) for state in states.split()} == dict.fromkeys(states.split(), phase)


# ---------------------------------------------------------------- script
def settings(shared: str = "/shared", **said: object) -> SlurmSettings:
    return SlurmSettings(shared=shared, **said)  # type: ignore[arg-type]


def options(said: SlurmSettings, *, queue: str = "") -> list[str]:
    return sbatch_options(said, order(queue=queue), Path("/shared/t-17-0-0"))


def srun(said: SlurmSettings) -> list[str]:
    """The words of the step, as bash reads them."""
    last = batch_script(said, order(), Path("/shared/t-17-0-0")).splitlines()[-1]
    return shlex.split(last)


def test_a_script_asks_for_what_the_job_needs_and_its_operator_said_where_sbatch_reads_it() -> None:
    asked = options(settings(), queue="short")
    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--time=2", "--partition=short"} <= set(asked)
    assert {"--parsable", "--no-requeue"} <= set(asked)
    names = {option.split("=")[0] for option in options(settings())}
    assert names.isdisjoint({"--partition", "--account", "--qos", "--constraint", "--gres"})
    asked = options(settings(account="ml", qos="high", constraint="h100&ib"))
    assert {"--account=ml", "--qos=high", "--constraint=h100&ib"} <= set(asked)
    given = replace(order(), cluster=h100_cluster(num_nodes=2))
    asked = sbatch_options(settings(gres="gpu:h100"), given, Path("/shared/x"))
    assert "--gres=gpu:h100:8" in asked
    assert not any(option.startswith("--cpus-per-task") for option in asked)
    assert "--cpus-per-task=96" in sbatch_options(settings(cpus_per_accelerator=12), given, Path("/shared/x"))
    lines = batch_script(settings(sbatch_lines=("--exclusive", "--mem=0")), order(), Path("/x")).splitlines()
    assert lines[:3] == ["#!/bin/bash", "#SBATCH --exclusive", "#SBATCH --mem=0"]
    script = batch_script(settings(setup=("module load cuda/12",)), order(), Path("/x"))
    assert script.index("\nmodule load cuda/12\n") < script.index("srun")


def test_srun_starts_one_process_per_node_in_a_container_that_sees_the_jobs_folder() -> None:
    words = srun(settings(python="/opt/venv/bin/python", srun_arguments=("--mpi=none",)))
    assert words[:5] == ["exec", "srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert "--output=/shared/t-17-0-0/node-%t.out" in words
    assert words.index("--mpi=none") < words.index("sh")
    assert words[words.index("/opt/venv/bin/python") + 1 :] == [
        "--task",
        "/shared/t-17-0-0/task.json",
        "--master-address",
        "$address",
        "--master-port",
        "$port",
    ]
    words = srun(settings(container_image="nvcr.io#nvidia/pytorch:25.09-py3", container_mounts=("/data:/data:ro",)))
    assert "--container-image=nvcr.io#nvidia/pytorch:25.09-py3" in words
    assert "--container-mounts=/shared/t-17-0-0:/shared/t-17-0-0,/data:/data:ro" in words
    assert not any("container" in word for word in srun(settings()))


# Commands of a node, pretended: scontrol knows n1, srun runs what it is given as the first node's task.
PRETENDED = {
    "scontrol": '[ "$2" = hostnames ] && printf "n1\\nn2\\n" || echo "NodeName=n1 NodeAddr=127.0.0.1 Port=1"',
    "srun": 'while [ "$1" != sh ]; do shift; done; SLURM_PROCID=0 exec "$@"',
    "node": 'printf "%s\\n" "$@"',
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in PRETENDED.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


def run(script: str, programs: Path, number: int) -> str:
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NODELIST": "n[1-2]",
    }
    done = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=True, timeout=20)
    assert done.stderr == ""
    return done.stdout


def test_the_script_gives_each_node_its_rank_and_the_meeting_address(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "it's a folder $(touch evil)"
    folder.mkdir()
    said = settings(str(tmp_path), python=str(programs / "node"))
    told = run(batch_script(said, order(), folder), programs, 17).splitlines()
    assert told[:4] == ["-m", "autotuner.trials.process.node", "--node-rank", "0"]
    assert told[4:8] == ["--task", f"{folder}/task.json", "--master-address", "127.0.0.1"]
    assert told[8] == "--master-port"
    assert not (tmp_path / "evil").exists()


def test_jobs_that_share_a_machine_begin_at_ports_of_their_own(tmp_path: Path, programs: Path) -> None:
    said = settings(str(tmp_path), python=str(programs / "node"))
    ports = set()
    for number in (17, 18, 2517):
        (tmp_path / "claim").unlink(missing_ok=True)
        ports.add(int(run(batch_script(said, order(), tmp_path), programs, number).splitlines()[-1]))
    assert len(ports) == 2  # numbers come round again after thousands of jobs
    assert all(20000 <= port < 32768 for port in ports)  # the kernel hands out ports from there


def test_a_second_job_of_the_same_name_leaves_at_once_and_one_that_slurm_starts_again_says_so(
    tmp_path: Path, programs: Path
) -> None:
    """A controller that loses power forgets the jobs that it started in its last seconds."""
    script = batch_script(settings(str(tmp_path), python=str(programs / "node")), order(), tmp_path)
    assert run(script, programs, 17)
    assert run(script, programs, 18) == ""
    assert (tmp_path / "claim").read_text().strip() == "17"
    assert not (tmp_path / "restarted").exists()
    assert run(script, programs, 17) == ""
    assert (tmp_path / "restarted").exists()


RUNNING, ENDED, LOST = EngineJobPhase.RUNNING, EngineJobPhase.ENDED, EngineJobPhase.LOST


class Submitted:
    """A job of two nodes that was submitted, with its folder."""

    def __init__(self, shared: Path, slurm: ScriptedSlurm, *, num_nodes: int = 2) -> None:
        self.slurm = slurm
        self.folder = shared / NAME
        self.engine = engine(shared, slurm)
        self.handle = self.engine.submit(order(num_nodes=num_nodes))

    def look(self) -> JobStatus:
        return self.engine.look(self.handle)

    def cancel(self) -> bool:
        return self.engine.cancel(self.handle)

    def says(self, *documents: dict[str, object], nodes: tuple[int, ...] = (0,)) -> None:
        """Have nodes print these lines."""
        for node_rank in nodes:
            with (self.folder / f"node-{node_rank}.out").open("a") as file:
                file.writelines(f"#autotuner {json.dumps(document)}\n" for document in documents)

    def end(self, *nodes: int) -> None:
        self.says({"type": "node", "exit_code": 0}, nodes=nodes)


@pytest.fixture
def slurm() -> ScriptedSlurm:
    return ScriptedSlurm()


@pytest.fixture
def made(tmp_path: Path, slurm: ScriptedSlurm) -> SlurmEngine:
    return engine(tmp_path, slurm)


@pytest.fixture
def job(tmp_path: Path, slurm: ScriptedSlurm) -> Submitted:
    return Submitted(tmp_path, slurm)


# ------------------------------------------------------------------ submit
def test_a_job_is_handed_to_sbatch_with_its_task_in_a_file(
    tmp_path: Path, slurm: ScriptedSlurm, made: SlurmEngine
) -> None:
    given = order()
    assert made.refuses(replace(given.cluster, num_nodes=4096)) is None, "every cluster can be tried"
    assert made.submit(given) == f"41:{NAME}"
    assert loads(NodeTask, (tmp_path / NAME / "task.json").read_text()) == given.task
    (command,) = slurm.asked_of("sbatch")
    assert command[-1] == str(tmp_path / NAME / "job.sh")
    assert f"--job-name={NAME}" in command
    assert made.submit(order()) == engine(tmp_path, slurm).submit(order()) == f"41:{NAME}"
    assert len(slurm.asked_of("sbatch")) == 1, "another submit of the same name starts nothing"


def test_a_job_whose_number_nobody_noted_is_found_by_its_name(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    """As where the service was killed between sbatch's answer and its note of it."""

    def die() -> None:
        raise KeyboardInterrupt

    slurm.at_sbatch = die
    with pytest.raises(KeyboardInterrupt):
        engine(tmp_path, slurm).submit(order())
    assert engine(tmp_path, slurm).find(NAME) == f"41:{NAME}"
    assert engine(tmp_path, slurm).submit(order()) == f"41:{NAME}"
    assert len(slurm.asked_of("sbatch")) == 1


def test_a_job_that_was_about_to_be_submitted_and_was_not_is_submitted_again(
    slurm: ScriptedSlurm, made: SlurmEngine
) -> None:
    slurm.failing["sbatch"] = EngineUnavailable(
        "sbatch has not answered for 30 s; check that the controller of Slurm runs"
    )
    with pytest.raises(EngineUnavailable):
        made.submit(order())
    slurm.failing.clear()
    assert made.find(NAME) is None
    slurm.federation = ";east"  # a job's number has the name of its cluster behind it
    assert made.submit(order()) == f"41:{NAME}"


def test_the_started_job_of_two_with_one_name_is_followed(job: Submitted) -> None:
    job.slurm.list_as(41, "COMPLETED")
    job.slurm.list_as(99, "RUNNING", nodes="n[1-2]")
    (job.folder / "claim").write_text("99\n")
    assert job.look() == JobStatus(phase=RUNNING, detail="RUNNING on n[1-2]")
    assert job.engine.find(NAME) == f"99:{NAME}"


def test_a_job_that_sbatch_refuses_is_refused_with_its_message_and_leaves_nothing(
    tmp_path: Path, slurm: ScriptedSlurm, made: SlurmEngine
) -> None:
    slurm.failing["sbatch"] = CommandFailed("sbatch: error: invalid partition specified: lrage")
    with pytest.raises(EngineRefused, match="invalid partition specified: lrage"):
        made.submit(order(queue="lrage"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineUnavailable, match="shared folder"):
        engine(tmp_path / "file", slurm).submit(order())


# ------------------------------------------------------------------ look
STARTED, TOLD = {"type": "node_started"}, {"type": "node", "exit_code": -15, "told_to_end": True}
NO_MODULE, FULL = "bash: line 3: module: command not found", "OSError: [Errno 28] No space left on device"
AGAIN = "job 41 was requeued, but not by the autotuner: BeginTime"


@pytest.mark.parametrize(
    ("told", "state", "reason", "written", "phase", "detail"),
    [
        (STARTED, "PENDING", "Resources", {}, EngineJobPhase.QUEUED, "Resources"),
        (STARTED, "CONFIGURING", "None", {}, EngineJobPhase.QUEUED, "CONFIGURING"),
        (STARTED, "COMPLETING", "None", {}, RUNNING, "COMPLETING"),
        (STARTED, "SUSPENDED", "None", {}, LOST, "SUSPENDED"),  # its time limit and its step times go on
        (STARTED, "TIMEOUT", "TimeLimit", {}, LOST, "TIMEOUT: TimeLimit"),
        (STARTED, "OUT_OF_MEMORY", "OutOfMemory", {}, ENDED, "OUT_OF_MEMORY: OutOfMemory"),
        (STARTED, "NODE_FAIL", "NodeDown", {}, LOST, "NODE_FAIL: NodeDown"),
        (STARTED, "PREEMPTED", "None", {}, LOST, "PREEMPTED"),
        (STARTED, "BOOT_FAIL", "None", {}, LOST, "BOOT_FAIL"),
        # nodes have the time to report that they end, so their report alone says nothing of the trial
        (TOLD, "COMPLETING", "None", {}, RUNNING, "COMPLETING"),
        (TOLD, "CANCELLED", "None", {}, LOST, "CANCELLED: not by the autotuner"),
        (TOLD, "PREEMPTED", "None", {}, LOST, "PREEMPTED"),
        (TOLD, "NODE_FAIL", "NodeDown", {}, LOST, "NODE_FAIL: NodeDown"),
        (TOLD, "FAILED", "NonZeroExitCode", {}, ENDED, "FAILED: NonZeroExitCode"),
        (TOLD, "PENDING", "BeginTime", {}, LOST, AGAIN),
        # before any node said a word, and where none said how its program ended
        (None, "FAILED", "None", {"batch.log": NO_MODULE}, LOST, f"FAILED: {NO_MODULE}"),
        (STARTED, "FAILED", "None", {"node-0.err": FULL}, LOST, f"FAILED: {FULL}"),
        (
            STARTED,
            "COMPLETED",
            "None",
            {"restarted": ""},
            LOST,
            "Slurm lost its record of job 41 and started it a second time",
        ),
    ],
)
def test_a_job_stands_as_its_nodes_and_slurm_say_in_slurms_words(
    job: Submitted,
    told: dict[str, object] | None,
    state: str,
    reason: str,
    written: dict[str, str],
    phase: EngineJobPhase,
    detail: str,
) -> None:
    if told is not None:
        job.says(told, nodes=(0, 1))
    for file, text in written.items():
        (job.folder / file).write_text(f"{text}\n")
    job.slurm.list_as(41, state, reason)
    assert job.look() == JobStatus(phase=phase, detail=detail, is_out_of_memory=state == "OUT_OF_MEMORY")


def test_nodes_that_all_said_how_they_ended_are_believed_while_the_controller_is_away(job: Submitted) -> None:
    job.end(0)
    job.slurm.goes_away()
    with pytest.raises(EngineUnavailable):
        job.look()
    with pytest.raises(EngineUnavailable):
        job.cancel()
    job.end(1)
    assert job.look().phase is ENDED
    assert job.cancel()


def test_nodes_that_we_told_to_end_are_believed_and_slurm_is_not_asked(job: Submitted) -> None:
    assert job.cancel()
    job.says({"type": "node", "exit_code": -15, "told_to_end": True}, nodes=(0, 1))
    job.slurm.goes_away()
    assert job.look() == JobStatus(phase=ENDED)


@pytest.mark.parametrize(
    "printed", ['#autotuner {"type":"node","exit_code":0}', '#autotuner ["node"]\n#autotuner {torn\nnode\n']
)
def test_a_line_that_is_still_being_written_or_no_word_of_the_node_is_no_end(
    tmp_path: Path, slurm: ScriptedSlurm, printed: str
) -> None:
    job = Submitted(tmp_path, slurm, num_nodes=1)
    slurm.list_as(41, "RUNNING")
    (job.folder / "node-0.out").write_text(printed)
    assert job.look().phase is RUNNING


def test_a_job_that_slurm_has_forgotten_is_lost_unless_its_nodes_or_accounting_know_how_it_ended(
    job: Submitted,
) -> None:
    job.slurm.listed = []
    assert job.look() == JobStatus(phase=LOST, detail="Slurm does not know job 41 any more")
    # a controller that lost its state begins to count again
    job.slurm.list_as(41, "RUNNING", name="somebody-elses")
    job.slurm.accounted = "41|COMPLETED|None|n1|somebody-elses\n"
    assert job.look().phase is LOST
    job.slurm.listed = []
    job.says({"type": "node_started"})
    job.slurm.accounted = f"41|CANCELLED by 1000|None|None assigned|{NAME}\n"
    assert job.look() == JobStatus(phase=LOST, detail="CANCELLED: not by the autotuner")
    job.end(0, 1)
    assert job.look().phase is ENDED


def test_a_job_that_we_cancelled_has_ended_and_one_that_somebody_else_did_is_lost(job: Submitted) -> None:
    job.says({"type": "node_started"})
    job.slurm.list_as(41, "CANCELLED")
    assert job.look().phase is LOST
    assert job.cancel()
    job.slurm.list_as(41, "CANCELLED")
    assert job.look() == JobStatus(phase=ENDED, detail="CANCELLED")


def test_a_job_of_which_one_node_ended_and_another_is_down_is_lost(job: Submitted) -> None:
    job.slurm.list_as(41, "RUNNING", nodes="n[1-2]")
    job.end(0)
    job.slurm.nodes = ["n1 allocated", "n2 allocated"]
    assert job.look().phase is RUNNING
    job.slurm.nodes = ["n1 allocated", "n2 down*"]
    assert job.look() == JobStatus(phase=LOST, detail="n2 down*")


@pytest.mark.parametrize("is_away", [False, True])
def test_many_who_ask_at_once_are_answered_by_one_squeue_though_the_controller_is_away(
    tmp_path: Path, slurm: ScriptedSlurm, is_away: bool
) -> None:
    """To find out takes seconds, in which no step of any trial would be read."""
    made = engine(tmp_path, slurm, fresh_s=60.0)
    handles = [made.submit(order(f"t-{number}-0-0")) for number in range(5)]
    slurm.listed = [f"{handle.split(':')[0]}|PENDING|Priority||{handle.split(':')[1]}" for handle in handles]
    if is_away:
        slurm.goes_away()
    for handle in handles:
        with pytest.raises(EngineUnavailable, match="Unable to contact") if is_away else nullcontext():
            assert made.look(handle).detail == "Priority"
    assert len(slurm.asked_of("squeue")) == 1


# ------------------------------------------------------------------ read, cancel, forget, check
def test_output_of_a_node_is_read_from_a_given_byte_on(job: Submitted) -> None:
    assert job.engine.read(job.handle, 1, 0) == b""
    (job.folder / "node-1.out").write_bytes(b"one\ntwo\n")
    assert [job.engine.read(job.handle, node_rank, 4) for node_rank in (1, 0)] == [b"two\n", b""]


def test_cancel_ends_every_job_of_the_name_and_no_other_users(job: Submitted) -> None:
    assert job.cancel()
    ((program, whose, which),) = job.slurm.asked_of("scancel")
    assert program == "scancel"
    assert whose.startswith("--user=")
    assert which == f"--name={NAME}"
    job.end(0, 1)
    job.slurm.list_as(41, "PENDING", "BeginTime")  # requeued, though its nodes have ended
    assert job.cancel()
    assert job.slurm.listed == []


def test_cancel_says_so_where_the_job_will_not_end(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm, cancel_s=0.01)
    handle = made.submit(order())
    slurm.failing["scancel"] = CommandFailed("scancel: error: Kill job error on job id 41: Invalid job id specified")
    slurm.list_as(41, "COMPLETING")
    assert not made.cancel(handle)


def test_a_job_that_was_forgotten_is_unknown_and_may_be_forgotten_again(job: Submitted) -> None:
    for _ in range(2):
        job.engine.forget(job.handle)
    num_asked = len(job.slurm.asked)
    assert job.engine.find(NAME) is None
    assert job.engine.read(job.handle, 0, 0) == b""
    assert list(job.folder.parent.iterdir()) == []
    assert len(job.slurm.asked) == num_asked, "of a name that nobody submitted Slurm is not asked"


def test_check_says_the_version_and_how_the_partitions_stand_and_names_the_nearest(
    slurm: ScriptedSlurm, made: SlurmEngine
) -> None:
    slurm.nodes = ["short up, 2 nodes", "closed down, 2 nodes"]
    assert made.check(("closed", "short")) == "slurm 24.11.1; short up, 2 nodes; closed down, 2 nodes"
    with pytest.raises(EngineRefused, match="no partition shrot; the nearest is short"):
        made.check(("short", "shrot"))


def test_check_fails_without_a_controller_and_without_the_shared_folder(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    with pytest.raises(EngineUnavailable, match="nowhere does not exist"):
        engine(tmp_path / "nowhere", slurm).check()
    slurm.goes_away()
    with pytest.raises(EngineUnavailable, match="Unable to contact"):
        engine(tmp_path, slurm).check()


@pytest.mark.parametrize(
    ("said", "is_refused"),
    [
        ("allocation failure: Invalid account or account/partition combination specified", True),
        ("allocation failure: Invalid qos specification", True),
        ("allocation failure: Required partition not available (inactive or drain)", False),
    ],
)
def test_check_has_sbatch_judge_account_and_qos(
    tmp_path: Path, slurm: ScriptedSlurm, said: str, is_refused: bool
) -> None:
    slurm.nodes = ["short up, 2 nodes"]
    slurm.failing["sbatch"] = CommandFailed(f"sbatch: error: {said}")
    assert engine(tmp_path, slurm).check(("short",)), "nothing is asked where neither is set"
    with_account = engine(tmp_path, slurm, account="m1", qos="high")
    if not is_refused:
        assert with_account.check(("short",))
        return
    with pytest.raises(EngineRefused, match=f"--account=m1 --qos=high: .*{said}.*may use: ml normal,high"):
        with_account.check(("short",))
    options = ("--test-only", "--account=m1", "--qos=high", "--partition=short", "--wrap=true")
    assert slurm.asked_of("sbatch")[-1] == ("sbatch", *options)
