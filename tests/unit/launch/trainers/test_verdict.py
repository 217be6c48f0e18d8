"""What the end of a trainer's run means, from torchrun's words for example."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from autotuner.core.measuring import Peak
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.launch.processes import ATTEMPT_ID
from autotuner.launch.trainers.processes import TrainerProcesses
from autotuner.launch.trainers.told import TrainerReports
from autotuner.launch.trainers.verdict import trainer_verdict
from tests.trials.launching import SHORT, spec

AGENT = """E0102 03:04:05 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code})
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 7)
"""


def judged(tmp_path: Path, log: str, code: int, *, oom_killed: bool = False, budget: int | None = None) -> TrialFailure:
    """The verdict on a command that printed the log and left with the code."""
    trial = spec("judged", replace(SHORT, memory_budget_bytes=budget))
    reports = TrainerReports(trial, Peak(flop_per_s=1.0, source="data sheet"), tmp_path, None, {})
    printed = tmp_path / "log"
    printed.write_text(log)
    program = f"import sys; sys.stdout.write(open(sys.argv[1]).read()); sys.exit({code})"
    processes = TrainerProcesses(
        [sys.executable, "-S", "-c", program, str(printed)],
        directory=tmp_path,
        environment={ATTEMPT_ID: f"judged-{uuid4().hex}"},  # others run beside it
        limit_bytes=None,
        heard=reports.heard,
    )
    while not processes.ended():
        time.sleep(0.01)
    processes.end(grace_s=1.0)
    outcome = trainer_verdict(trial, reports, processes, timed_out=False, oom_killed=oom_killed)
    assert isinstance(outcome, TrialFailure)
    return outcome


def test_an_exit_code_comes_with_the_last_that_was_said_and_without_torchruns_traceback(tmp_path: Path) -> None:
    failure = judged(tmp_path, "train.py: error: unrecognized arguments: --x\n" + AGENT.format(code=2), 1)
    assert failure.kind == FailureKind.CRASH
    assert failure.rank == 1
    assert "rank 1 ended with exit code 2, before its first step" in failure.message
    assert failure.message.endswith("train.py: error: unrecognized arguments: --x")
    assert failure.log_tail == "train.py: error: unrecognized arguments: --x"


def test_a_rank_that_torchrun_saw_killed_is_a_crash_and_out_of_memory_where_the_kernel_killed(tmp_path: Path) -> None:
    lost_peer = "[rank0]: RuntimeError: Connection closed by peer\n" + AGENT.format(code=-9)
    crash, oom = (judged(tmp_path, lost_peer, 1, oom_killed=killed) for killed in (False, True))
    assert (crash.kind, crash.rank) == (FailureKind.CRASH, 1)
    assert "SIGKILL" in crash.message
    assert (oom.kind, oom.rank) == (FailureKind.OOM, 1)


def test_a_lost_peer_alone_is_communication(tmp_path: Path) -> None:
    failure = judged(tmp_path, "[rank0]: RuntimeError: Connection closed by peer\n" + AGENT.format(code=1), 1)
    assert (failure.kind, failure.rank) == (FailureKind.COMMUNICATION, 0)


def test_a_lost_peer_beside_another_error_is_that_error(tmp_path: Path) -> None:
    log = "[rank0]: RuntimeError: Connection closed by peer\n[rank1]: ValueError: no\n" + AGENT.format(code=1)
    failure = judged(tmp_path, log, 1)
    assert (failure.kind, failure.rank, failure.message) == (FailureKind.CRASH, 1, "ValueError: no")


def test_threads_that_cannot_start_are_out_of_memory_where_it_is_limited(tmp_path: Path) -> None:
    log = "RuntimeError: can't start new thread\n"
    assert judged(tmp_path, log, 1, budget=10**9).kind == FailureKind.OOM
    assert judged(tmp_path, log, 1).kind == FailureKind.CRASH


def test_a_shells_code_of_a_signal_is_that_signal(tmp_path: Path) -> None:
    assert "SIGSEGV" in judged(tmp_path, "", 139).message


def test_leaving_well_without_a_step_says_how_many_are_needed(tmp_path: Path) -> None:
    failure = judged(tmp_path, "nothing to do\n", 0)
    assert "after 0 steps" in failure.message
    assert failure.log_tail == "nothing to do"


def test_a_folder_that_is_not_there_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        TrainerProcesses(
            ["true"],
            directory=tmp_path / "nowhere",
            environment={ATTEMPT_ID: f"x-{uuid4().hex}"},
            limit_bytes=None,
            heard=lambda line, at_s: None,
        )
