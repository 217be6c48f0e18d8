from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import EngineUnavailable
from autotuner.launch.engines.slurm.commands import (
    CommandFailed,
    JobRow,
    SlurmCommands,
    phase_of,
    read_sacct,
    read_squeue,
)
from autotuner.launch.engines.slurm.job import SlurmSettings, batch_script, sbatch_options
from tests.builders import h100_cluster
from tests.unit.launch.engines.slurm.scripted import order


# ---------------------------------------------------------------- commands
@pytest.fixture
def commands() -> SlurmCommands:
    return SlurmCommands(timeout_s=20.0, slurm_conf="/etc/here/slurm.conf")


def test_what_a_command_printed_or_the_words_or_code_of_its_error_come_back(commands: SlurmCommands) -> None:
    assert commands("echo", "$HOME; rm -rf /") == "$HOME; rm -rf /\n"
    with pytest.raises(CommandFailed, match="sh: sbatch: error: invalid partition specified: nowhere"):
        commands("sh", "-c", "echo sbatch: error: invalid partition specified: nowhere >&2; exit 1")
    with pytest.raises(CommandFailed, match="it left with code 3"):
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
def test_what_cannot_be_meant_is_refused_by_name(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        SlurmSettings(**{"shared": "/shared"} | said)
    assert raised.value.field == field


def test_every_setting_is_on_the_page_of_slurm_and_what_cannot_be_meant_names_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: --exclusive"):
        SlurmSettings(shared="/shared", sbatch_lines=("#SBATCH --exclusive",))
    page = (Path(__file__).parents[5] / "docs/engines-slurm.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {one.name for one in fields(SlurmSettings)} <= set(re.findall(r"`(\w+)`", " ".join(rows)))


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


def test_the_script_tells_each_node_who_it_is_and_where_to_meet(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "it's a folder $(touch evil)"
    folder.mkdir()
    said = settings(str(tmp_path), python=str(programs / "node"))
    told = run(batch_script(said, order(), folder), programs, 17).splitlines()
    assert told[:4] == ["-m", "trials.process.node", "--node-rank", "0"]
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
