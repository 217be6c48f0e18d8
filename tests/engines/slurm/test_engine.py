"""What is particular of a Slurm, on a real one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.choices import ExportFormat, ExportLauncher
from autotuner.core.trial import EngineJobPhase
from autotuner.core.trial_spec import NodeTask
from autotuner.exports.formats import export
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobOrder, JobStatus
from autotuner.launch.engines.slurm import SlurmEngine
from autotuner.launch.engines.slurm_job import SlurmSettings
from tests.builders import cpu_cluster, cpu_layout, tiny_job
from tests.engines.slurm.cluster import SlurmCluster
from tests.engines.slurm.conftest import own_settings
from tests.system.service import until

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(slurm: SlurmCluster) -> SlurmEngine:
    slurm.calm()
    return made(slurm)


def made(slurm: SlurmCluster, **settings: Any) -> SlurmEngine:
    return SlurmEngine("slurm", SlurmSettings(**own_settings(slurm) | settings), fresh_s=0.0)


def order(name: str, *command: str, queue: str = "short", num_nodes: int = 2) -> JobOrder:
    """A command on every node, which needs no torch."""
    name = f"t-{os.getpid()}-{name}"
    task = NodeTask(job_name=name, num_nodes=num_nodes, ranks_per_node=1, time_limit_s=60.0, command=command)
    cluster = cpu_cluster(num_nodes=num_nodes, accelerators_per_node=1, queue=queue)
    return JobOrder(name=name, cluster=cluster, task=task, time_limit_s=120.0)


def is_over(engine: SlurmEngine, handle: str) -> Callable[[], JobStatus | None]:
    """Asks for the status of a job that is over."""

    def ask() -> JobStatus | None:
        status = engine.look(handle)
        return status if status.phase.is_over else None

    return ask


def says_why(engine: SlurmEngine, handle: str) -> JobStatus | None:
    """The status of a job of which more is known than that it waits."""
    status = engine.look(handle)
    return None if status.detail in ("", "PENDING") else status


def test_the_engine_says_its_version_and_its_partitions(engine: SlurmEngine) -> None:
    assert "short up, 2 nodes; closed down, 2 nodes; urgent up, 2 nodes" in engine.check()


def test_an_unknown_partition_is_refused_with_the_nearest_one(engine: SlurmEngine) -> None:
    nearest = r"there is no partition shrot; the nearest is short \(there are: closed, short, urgent\)"
    with pytest.raises(EngineRefused, match=nearest):
        engine.check(("closed", "shrot"))


def test_the_engine_asks_sbatch_if_it_accepts_the_account(slurm: SlurmCluster) -> None:
    """This Slurm has no accounting, so it accepts every account, on partitions that are down too."""
    assert made(slurm, account="ml", qos="high").check(("short", "closed"))


def test_the_engine_accepts_the_script_that_starts_a_users_trainer(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = tiny_job(cluster=cpu_cluster(2, num_nodes=2, accelerators_per_node=1))
    layout = cpu_layout(data_parallel_replicate_degree=2)
    for file in export(job, layout, ExportFormat.ARGUMENTS, ExportLauncher.SBATCH).files:
        (tmp_path / file.name).write_text(file.text)
    slurm.run("sbatch", "--test-only", "--partition=short", str(tmp_path / "launch.sbatch"))


def test_each_node_prints_into_a_file_of_its_own_and_meets_the_others(engine: SlurmEngine) -> None:
    wanted = order("meet", "echo", "{node_rank} of {num_nodes} at {master_address}")
    handle = engine.submit(wanted)
    assert until("the job ends", is_over(engine, handle)).phase is EngineJobPhase.ENDED
    for node_rank in (0, 1):
        assert f"{node_rank} of 2 at 127.0.0.1" in engine.read(handle, node_rank, 0).decode()
    engine.forget(handle)
    assert engine.find(wanted.name) is None


def test_an_unknown_partition_is_refused_in_slurms_words(engine: SlurmEngine) -> None:
    with pytest.raises(EngineRefused, match="invalid partition specified: nowhere"):
        engine.submit(order("refused", "true", queue="nowhere"))


def test_a_job_of_more_nodes_than_there_are_waits_with_slurms_reason(engine: SlurmEngine, slurm: SlurmCluster) -> None:
    """Nodes may be added, so Slurm takes it, unless its administrator set ``EnforcePartLimits``.

    sbatch notes one reason, and the scheduler another a moment later.
    """
    handle = engine.submit(order("large", "true", num_nodes=3))
    status = until("a reason", lambda: says_why(engine, handle))
    assert status.phase is EngineJobPhase.QUEUED
    assert {status.detail, slurm.reason(handle.split(":")[0])} <= {"PartitionConfig", "PartitionNodeLimit"}
    assert engine.cancel(handle)
    engine.forget(handle)


def test_a_job_that_waits_says_why_in_slurms_words_and_can_be_cancelled(engine: SlurmEngine) -> None:
    handle = engine.submit(order("waits", "true", queue="closed"))
    status = until("a reason", lambda: says_why(engine, handle))
    assert status == JobStatus(phase=EngineJobPhase.QUEUED, detail="PartitionDown")
    assert engine.cancel(handle)
    assert engine.look(handle) == JobStatus(phase=EngineJobPhase.ENDED, detail="CANCELLED")
    engine.forget(handle)


def test_only_one_of_two_jobs_with_one_name_runs(engine: SlurmEngine, slurm: SlurmCluster) -> None:
    """As where sbatch's answer was lost, and the second came before the first was listed."""
    wanted = order("twice", "sh", "-c", "echo ran; sleep 2")
    first = engine.submit(wanted)
    folder = slurm.shared / wanted.name
    slurm.run("sbatch", f"--job-name={wanted.name}", "--nodes=2", f"--output={folder}/other.log", f"{folder}/job.sh")
    until("both are over", lambda: not slurm.jobs("PENDING") and not slurm.jobs("RUNNING"))
    assert until("the job ends", is_over(engine, first)).phase is EngineJobPhase.ENDED
    assert engine.read(first, 0, 0).decode().count("ran") == 1
    engine.forget(first)


def test_a_job_whose_number_was_never_noted_is_found_by_its_name(engine: SlurmEngine, slurm: SlurmCluster) -> None:
    wanted = order("unnoted", "sleep", "600", queue="closed")
    handle = engine.submit(wanted)
    (slurm.shared / wanted.name / "submitted").unlink()
    assert made(slurm).find(wanted.name) == handle
    assert engine.cancel(handle)
    engine.forget(handle)


def test_nodes_without_the_interpreter_are_lost_and_say_what_is_missing(slurm: SlurmCluster) -> None:
    slurm.calm()
    engine = made(slurm, python="/nowhere/python")
    handle = engine.submit(order("bare", "true"))
    status = until("the job ends", is_over(engine, handle))
    assert status.phase is EngineJobPhase.LOST
    assert "/nowhere/python: not found" in status.detail
    engine.forget(handle)


def test_a_job_goes_on_while_the_controller_is_away_and_its_nodes_are_believed(
    engine: SlurmEngine, slurm: SlurmCluster, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    handle = engine.submit(order("alone", "sh", "-c", 'until [ -e "$0" ]; do sleep 0.1; done', str(go_on)))
    until("it runs on both", lambda: all(engine.read(handle, node_rank, 0) for node_rank in (0, 1)))
    slurm.kill_controller()
    with pytest.raises(EngineUnavailable):
        engine.look(handle)
    with pytest.raises(EngineUnavailable):
        engine.submit(order("later", "true"))
    go_on.touch()

    def has_ended() -> bool:
        try:
            return engine.look(handle).phase is EngineJobPhase.ENDED
        except EngineUnavailable:
            return False

    until("the nodes say that they ended", has_ended)
    slurm.revive()
    engine.forget(handle)
