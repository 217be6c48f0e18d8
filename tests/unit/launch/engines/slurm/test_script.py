from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.launch.engines.slurm.script import batch_script, sbatch_options
from autotuner.launch.engines.slurm.settings import SlurmSettings
from tests.builders import h100_cluster
from tests.unit.launch.engines.slurm.scripted import order


def settings(shared: str = "/shared", **said: object) -> SlurmSettings:
    return SlurmSettings(shared=shared, **said)  # type: ignore[arg-type]


def options(said: SlurmSettings, *, queue: str = "") -> list[str]:
    return sbatch_options(said, order(queue=queue), Path("/shared/t-17-0-0"))


def srun(said: SlurmSettings) -> list[str]:
    """The words of the step, as bash reads them."""
    last = batch_script(said, order(), Path("/shared/t-17-0-0")).splitlines()[-1]
    return shlex.split(last)


def test_a_job_asks_for_its_nodes_its_cores_and_minutes_rounded_up() -> None:
    asked = options(settings(), queue="short")
    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--time=2", "--partition=short"} <= set(asked)
    assert {"--parsable", "--no-requeue"} <= set(asked)


def test_what_nobody_said_is_left_to_slurm() -> None:
    names = {option.split("=")[0] for option in options(settings())}
    assert names.isdisjoint({"--partition", "--account", "--qos", "--constraint", "--gres"})


def test_the_operators_words_reach_sbatch() -> None:
    asked = options(settings(account="ml", qos="high", constraint="h100&ib"))
    assert {"--account=ml", "--qos=high", "--constraint=h100&ib"} <= set(asked)


def test_gpus_are_asked_for_as_the_operator_calls_them_and_cores_are_left_to_slurm() -> None:
    given = replace(order(), cluster=h100_cluster(num_nodes=2))
    asked = sbatch_options(settings(gres="gpu:h100"), given, Path("/shared/x"))
    assert "--gres=gpu:h100:8" in asked
    assert not any(option.startswith("--cpus-per-task") for option in asked)


def test_cores_beside_gpus_are_asked_for_where_the_operator_says_how_many() -> None:
    given = replace(order(), cluster=h100_cluster(num_nodes=2))
    assert "--cpus-per-task=96" in sbatch_options(settings(cpus_per_accelerator=12), given, Path("/shared/x"))


def test_extra_lines_stand_where_sbatch_reads_them() -> None:
    lines = batch_script(settings(sbatch_lines=("--exclusive", "--mem=0")), order(), Path("/x")).splitlines()
    assert lines[:3] == ["#!/bin/bash", "#SBATCH --exclusive", "#SBATCH --mem=0"]


def test_the_operators_lines_run_before_the_nodes_start() -> None:
    script = batch_script(settings(setup=("module load cuda/12",)), order(), Path("/x"))
    assert script.index("\nmodule load cuda/12\n") < script.index("srun")


def test_srun_starts_one_process_per_node_each_with_a_file_of_its_own() -> None:
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


def test_a_container_sees_the_jobs_folder() -> None:
    words = srun(settings(container_image="nvcr.io#nvidia/pytorch:25.09-py3", container_mounts=("/data:/data:ro",)))
    assert "--container-image=nvcr.io#nvidia/pytorch:25.09-py3" in words
    assert "--container-mounts=/shared/t-17-0-0:/shared/t-17-0-0,/data:/data:ro" in words


def test_without_an_image_nobody_speaks_of_containers() -> None:
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


def test_a_second_job_of_the_same_name_leaves_at_once(tmp_path: Path, programs: Path) -> None:
    script = batch_script(settings(str(tmp_path), python=str(programs / "node")), order(), tmp_path)
    assert run(script, programs, 17)
    assert run(script, programs, 18) == ""
    assert (tmp_path / "claim").read_text().strip() == "17"
    assert not (tmp_path / "restarted").exists()


def test_a_job_that_slurm_starts_again_leaves_at_once_and_says_so(tmp_path: Path, programs: Path) -> None:
    """A controller that loses power forgets the jobs that it started in its last seconds."""
    script = batch_script(settings(str(tmp_path), python=str(programs / "node")), order(), tmp_path)
    assert run(script, programs, 17)
    assert run(script, programs, 17) == ""
    assert (tmp_path / "restarted").exists()
