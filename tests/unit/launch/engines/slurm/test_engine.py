from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.codec import loads
from autotuner.core.trial import EngineJobPhase
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobStatus
from autotuner.launch.engines.slurm.commands import CommandFailed
from tests.unit.launch.engines.slurm.scripted import NAME, ScriptedSlurm, engine, order


@pytest.fixture
def slurm() -> ScriptedSlurm:
    return ScriptedSlurm()


def say(shared: Path, node_rank: int, *documents: dict[str, object]) -> None:
    """Have a node print these lines."""
    with (shared / NAME / f"node-{node_rank}.out").open("a") as file:
        for document in documents:
            file.write(f"#autotuner {json.dumps(document)}\n")


def end(shared: Path, node_rank: int) -> None:
    say(shared, node_rank, {"type": "node", "node": node_rank, "exit_code": 0})


# ------------------------------------------------------------------ submit
def test_a_job_is_handed_to_sbatch_with_its_task_in_a_file(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    given = order()
    assert engine(tmp_path, slurm).submit(given) == f"41:{NAME}"
    assert loads(NodeTask, (tmp_path / NAME / "task.json").read_text()) == given.task
    (command,) = slurm.asked_of("sbatch")
    assert command[-1] == str(tmp_path / NAME / "job.sh")
    assert f"--job-name={NAME}" in command


def test_a_second_submit_of_the_same_name_starts_nothing(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    assert made.submit(order()) == made.submit(order()) == engine(tmp_path, slurm).submit(order())
    assert len(slurm.asked_of("sbatch")) == 1


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
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    slurm.failing["sbatch"] = EngineUnavailable("sbatch has not answered for 30 s")
    with pytest.raises(EngineUnavailable):
        engine(tmp_path, slurm).submit(order())
    slurm.failing.clear()
    assert engine(tmp_path, slurm).find(NAME) is None
    assert engine(tmp_path, slurm).submit(order()) == f"41:{NAME}"


def test_of_two_jobs_of_a_name_the_one_that_started_is_followed(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    slurm.list_as(41, "COMPLETED")
    slurm.list_as(99, "RUNNING", nodes="n[1-2]")
    (tmp_path / NAME / "claim").write_text("99\n")
    assert made.look(handle) == JobStatus(phase=EngineJobPhase.RUNNING, detail="RUNNING on n[1-2]")
    assert made.find(NAME) == f"99:{NAME}"


def test_what_sbatch_refuses_is_refused_in_its_words_and_leaves_nothing(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    slurm.failing["sbatch"] = CommandFailed("sbatch: error: invalid partition specified: lrage")
    with pytest.raises(EngineRefused, match="invalid partition specified: lrage"):
        engine(tmp_path, slurm).submit(order(queue="lrage"))
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_a_job_in_a_federation_has_the_clusters_name_behind_it(
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    slurm.federation = ";east"
    assert engine(tmp_path, slurm).submit(order()) == f"41:{NAME}"


def test_a_name_that_nobody_submitted_is_not_found_and_slurm_is_not_asked(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    assert engine(tmp_path, slurm).find("t-18-0-0") is None
    assert slurm.asked == []


def test_a_shared_folder_that_cannot_be_written_is_an_engine_that_cannot_be_had(
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineUnavailable, match="shared folder"):
        engine(tmp_path / "file", slurm).submit(order())


# ------------------------------------------------------------------ look
@pytest.mark.parametrize(
    ("state", "reason", "phase", "detail"),
    [
        ("PENDING", "Resources", EngineJobPhase.QUEUED, "Resources"),
        (
            "PENDING",
            "ReqNodeNotAvail, UnavailableNodes:n2",
            EngineJobPhase.QUEUED,
            "ReqNodeNotAvail, UnavailableNodes:n2",
        ),
        ("CONFIGURING", "None", EngineJobPhase.QUEUED, "CONFIGURING"),
        ("COMPLETING", "None", EngineJobPhase.RUNNING, "COMPLETING"),
        ("TIMEOUT", "TimeLimit", EngineJobPhase.LOST, "TIMEOUT: TimeLimit"),
        ("OUT_OF_MEMORY", "OutOfMemory", EngineJobPhase.ENDED, "OUT_OF_MEMORY: OutOfMemory"),
        ("NODE_FAIL", "NodeDown", EngineJobPhase.LOST, "NODE_FAIL: NodeDown"),
        ("PREEMPTED", "None", EngineJobPhase.LOST, "PREEMPTED"),
        ("BOOT_FAIL", "None", EngineJobPhase.LOST, "BOOT_FAIL"),
    ],
)
def test_a_job_stands_as_squeue_says_in_its_words(
    tmp_path: Path, slurm: ScriptedSlurm, state: str, reason: str, phase: EngineJobPhase, detail: str
) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    say(tmp_path, 0, {"type": "node_started"})
    slurm.list_as(41, state, reason)
    is_out_of_memory = state == "OUT_OF_MEMORY"
    assert made.look(handle) == JobStatus(phase=phase, detail=detail, is_out_of_memory=is_out_of_memory)


def test_nodes_that_all_said_how_they_ended_are_believed_while_the_controller_is_away(
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    end(tmp_path, 0)
    slurm.goes_away()
    with pytest.raises(EngineUnavailable):
        made.look(handle)
    end(tmp_path, 1)
    assert made.look(handle).phase is EngineJobPhase.ENDED


def test_a_line_of_a_node_that_is_still_being_written_is_no_end(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order(num_nodes=1))
    slurm.list_as(41, "RUNNING")
    (tmp_path / NAME / "node-0.out").write_text('#autotuner {"type":"node","exit_code":0}')
    assert made.look(handle).phase is EngineJobPhase.RUNNING


def test_what_a_trial_prints_is_no_word_of_its_node(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order(num_nodes=1))
    slurm.list_as(41, "RUNNING")
    (tmp_path / NAME / "node-0.out").write_text('#autotuner ["node"]\n#autotuner {torn\nnode\n')
    assert made.look(handle).phase is EngineJobPhase.RUNNING


def test_a_job_that_slurm_has_forgotten_is_lost_unless_its_nodes_said_that_they_ended(
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    slurm.listed = []
    assert made.look(handle) == JobStatus(phase=EngineJobPhase.LOST, detail="Slurm has forgotten job 41")
    end(tmp_path, 0)
    end(tmp_path, 1)
    assert made.look(handle).phase is EngineJobPhase.ENDED


def test_a_job_that_slurm_started_again_is_lost(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    end(tmp_path, 0)
    slurm.list_as(41, "COMPLETED")
    (tmp_path / NAME / "restarted").touch()
    assert made.look(handle) == JobStatus(
        phase=EngineJobPhase.LOST, detail="Slurm forgot that job 41 ran, and started it again"
    )


def test_accounting_remembers_what_the_controller_has_forgotten(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    say(tmp_path, 0, {"type": "node_started"})
    slurm.listed = []
    slurm.accounted = f"41|CANCELLED by 1000|None|None assigned|{NAME}\n"
    assert made.look(handle) == JobStatus(phase=EngineJobPhase.LOST, detail="CANCELLED: not by the autotuner")


def test_a_number_that_now_belongs_to_somebody_elses_job_is_not_ours(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    """A controller that lost its state begins to count again."""
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    slurm.listed = []
    slurm.list_as(41, "RUNNING", name="somebody-elses")
    slurm.accounted = "41|COMPLETED|None|n1|somebody-elses\n"
    assert made.look(handle).phase is EngineJobPhase.LOST


def test_a_job_that_failed_before_any_node_said_a_word_is_lost_with_what_bash_said(
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    (tmp_path / NAME / "batch.log").write_text("bash: line 3: module: command not found\n")
    slurm.list_as(41, "FAILED", "NonZeroExitCode")
    assert made.look(handle) == JobStatus(
        phase=EngineJobPhase.LOST, detail="FAILED: NonZeroExitCode: bash: line 3: module: command not found"
    )


def test_a_job_whose_nodes_could_not_say_how_they_ended_is_lost_with_what_they_wrote_to_standard_error(
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    """As on a full disk. Each node says how its program ended, whatever became of that."""
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    say(tmp_path, 0, {"type": "node_started"})
    (tmp_path / NAME / "node-0.err").write_text("OSError: [Errno 28] No space left on device\n")
    slurm.list_as(41, "FAILED", "NonZeroExitCode")
    assert made.look(handle) == JobStatus(
        phase=EngineJobPhase.LOST, detail="FAILED: NonZeroExitCode: OSError: [Errno 28] No space left on device"
    )


def test_a_job_that_we_cancelled_has_ended_and_one_that_somebody_else_did_is_lost(
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    say(tmp_path, 0, {"type": "node_started"})
    slurm.list_as(41, "CANCELLED")
    assert made.look(handle).phase is EngineJobPhase.LOST
    assert made.cancel(handle)
    slurm.list_as(41, "CANCELLED")
    assert made.look(handle) == JobStatus(phase=EngineJobPhase.ENDED, detail="CANCELLED")


@pytest.mark.parametrize(
    ("state", "reason", "phase", "detail"),
    [
        ("COMPLETING", "None", EngineJobPhase.RUNNING, "COMPLETING"),
        ("CANCELLED", "None", EngineJobPhase.LOST, "CANCELLED: not by the autotuner"),
        ("PREEMPTED", "None", EngineJobPhase.LOST, "PREEMPTED"),
        ("NODE_FAIL", "NodeDown", EngineJobPhase.LOST, "NODE_FAIL: NodeDown"),
        ("FAILED", "NonZeroExitCode", EngineJobPhase.ENDED, "FAILED: NonZeroExitCode"),
        (
            "PENDING",
            "BeginTime",
            EngineJobPhase.LOST,
            "job 41 was requeued, and not by the autotuner: BeginTime",
        ),
    ],
)
def test_slurm_says_why_nodes_were_told_to_end(
    tmp_path: Path, slurm: ScriptedSlurm, state: str, reason: str, phase: EngineJobPhase, detail: str
) -> None:
    """Nodes have the time to report that they end, so their report alone says nothing of the trial."""
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    for node_rank in (0, 1):
        say(tmp_path, node_rank, {"type": "node", "exit_code": -15, "told_to_end": True})
    slurm.list_as(41, state, reason)
    assert made.look(handle) == JobStatus(phase=phase, detail=detail)


def test_nodes_that_we_told_to_end_are_believed_and_slurm_is_not_asked(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    assert made.cancel(handle)
    for node_rank in (0, 1):
        say(tmp_path, node_rank, {"type": "node", "exit_code": -15, "told_to_end": True})
    slurm.goes_away()
    assert made.look(handle) == JobStatus(phase=EngineJobPhase.ENDED)


def test_a_suspended_job_is_lost_since_its_time_limit_and_its_step_times_go_on(
    tmp_path: Path, slurm: ScriptedSlurm
) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    say(tmp_path, 0, {"type": "node_started"})
    slurm.list_as(41, "SUSPENDED", nodes="n[1-2]")
    assert made.look(handle) == JobStatus(phase=EngineJobPhase.LOST, detail="SUSPENDED on n[1-2]")


def test_a_job_of_which_one_node_ended_and_another_is_down_is_lost(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    slurm.list_as(41, "RUNNING", nodes="n[1-2]")
    end(tmp_path, 0)
    slurm.nodes = ["n1 allocated", "n2 allocated"]
    assert made.look(handle).phase is EngineJobPhase.RUNNING
    slurm.nodes = ["n1 allocated", "n2 down*"]
    assert made.look(handle) == JobStatus(phase=EngineJobPhase.LOST, detail="n2 down*")


def test_many_who_ask_at_once_are_answered_by_one_squeue(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm, fresh_s=60.0)
    handles = [made.submit(order(f"t-{number}-0-0")) for number in range(5)]
    slurm.listed = [f"{handle.split(':')[0]}|PENDING|Priority||{handle.split(':')[1]}" for handle in handles]
    assert {made.look(handle).detail for handle in handles} == {"Priority"}
    assert len(slurm.asked_of("squeue")) == 1


def test_a_controller_that_is_away_is_not_asked_again_at_once(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    """To find out takes seconds, in which no step of any trial would be read."""
    made = engine(tmp_path, slurm, fresh_s=60.0)
    handle = made.submit(order())
    slurm.goes_away()
    for _ in range(3):
        with pytest.raises(EngineUnavailable, match="Unable to contact"):
            made.look(handle)
    assert len(slurm.asked_of("squeue")) == 1


# ------------------------------------------------------------------ read, cancel, forget, check
def test_what_a_node_printed_is_read_from_a_byte_on(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    assert made.read(handle, 1, 0) == b""
    (tmp_path / NAME / "node-1.out").write_bytes(b"one\ntwo\n")
    assert made.read(handle, 1, 4) == b"two\n"
    assert made.read(handle, 0, 0) == b""


def test_cancel_ends_every_job_of_the_name_and_no_other_users(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    assert made.cancel(made.submit(order()))
    ((program, whose, which),) = slurm.asked_of("scancel")
    assert program == "scancel"
    assert whose.startswith("--user=")
    assert which == f"--name={NAME}"


def test_cancel_ends_a_requeued_job_whose_nodes_have_ended(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    end(tmp_path, 0)
    end(tmp_path, 1)
    slurm.list_as(41, "PENDING", "BeginTime")
    assert made.cancel(handle)
    assert slurm.listed == []


def test_cancel_needs_no_controller_where_all_nodes_have_ended(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    slurm.goes_away()
    with pytest.raises(EngineUnavailable):
        made.cancel(handle)
    end(tmp_path, 0)
    end(tmp_path, 1)
    assert made.cancel(handle)


def test_cancel_says_so_where_the_job_will_not_end(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm, cancel_s=0.01)
    handle = made.submit(order())
    slurm.failing["scancel"] = CommandFailed("scancel: error: Kill job error on job id 41: Invalid job id specified")
    slurm.list_as(41, "COMPLETING")
    assert not made.cancel(handle)


def test_a_job_that_was_forgotten_is_unknown_and_may_be_forgotten_again(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    made = engine(tmp_path, slurm)
    handle = made.submit(order())
    made.forget(handle)
    made.forget(handle)
    assert made.find(NAME) is None
    assert made.read(handle, 0, 0) == b""
    assert list(tmp_path.iterdir()) == []


def test_check_says_the_version_and_how_the_partitions_stand(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    slurm.nodes = ["short up, 2 nodes", "closed down, 2 nodes"]
    assert engine(tmp_path, slurm).check() == "slurm 24.11.1; short up, 2 nodes; closed down, 2 nodes"


def test_check_fails_without_a_controller_and_without_the_shared_folder(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    with pytest.raises(EngineUnavailable, match="nowhere is not there"):
        engine(tmp_path / "nowhere", slurm).check()
    slurm.goes_away()
    with pytest.raises(EngineUnavailable, match="Unable to contact"):
        engine(tmp_path, slurm).check()


def test_check_names_a_partition_that_does_not_exist_and_the_nearest(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    slurm.nodes = ["short up, 2 nodes", "long up, 2 nodes"]
    assert engine(tmp_path, slurm).check(("long", "short"))
    with pytest.raises(EngineRefused, match="no partition lrong; the nearest is long"):
        engine(tmp_path, slurm).check(("short", "lrong"))


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


def test_every_cluster_can_be_tried(tmp_path: Path, slurm: ScriptedSlurm) -> None:
    assert engine(tmp_path, slurm).refuses(replace(order().cluster, num_nodes=4096)) is None
