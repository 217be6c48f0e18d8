from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from autotuner.core.measurement import StepReport
from autotuner.core.measuring import Peak
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.launch.ranks import ATTEMPT_ID
from autotuner.launch.trainers.processes import TrainerProcesses
from autotuner.launch.trainers.progress import Progress, ReportedMemory, ReportedStep
from autotuner.launch.trainers.told import TrainerReports
from autotuner.launch.trainers.verdict import trainer_verdict
from tests.trials.launching import ENDLESS, SHORT, spec

# ---------------------------------------------------------------- Reports of ranks, joined to steps
PEAK = Peak(flop_per_s=2e11, source="data sheet")


def progress(**settings: Any) -> Progress:
    return Progress(spec("progress", replace(ENDLESS, **settings)), PEAK)


def step(number: int, rank: int | None = 0, **said: Any) -> ReportedStep:
    return ReportedStep(step=number, rank=rank, **{"step_time_s": 1.0, **said})


def told(heard: Progress, *reports: ReportedStep, at_s: float = 0.0) -> list[StepReport]:
    for report in reports:
        heard.heard(report, at_s)
    return heard.whole_steps()


def test_a_step_is_whole_when_every_rank_told_of_it_and_takes_as_long_as_the_slowest() -> None:
    heard = progress()
    assert told(heard, step(0, 0, step_time_s=1.0)) == []
    (report,) = told(heard, step(0, 1, step_time_s=3.0))
    assert (report.step, report.step_time_s) == (0, 3.0)


def test_a_step_of_one_reporting_rank_is_whole_at_the_look_after_a_later_one() -> None:
    heard = progress()
    assert told(heard, step(0)) == []
    assert told(heard, step(1)) == []  # a rank that was read before may have told of step 0 since
    assert [report.step for report in told(heard)] == [0]


def test_at_the_end_every_step_is_as_whole_as_it_will_be() -> None:
    heard = progress()
    told(heard, step(0), step(1, 1))
    assert [report.step for report in heard.whole_steps(is_over=True)] == [0, 1]


def test_steps_count_from_0_whatever_the_trainer_begins_with() -> None:
    heard = progress()
    reports = told(heard, step(1, 0), step(1, 1), step(2, 0), step(2, 1))
    assert [report.step for report in reports] == [0, 1]


def test_the_loss_is_the_mean_of_the_ranks_that_know_one() -> None:
    (report,) = told(progress(), step(0, 0, loss=None), step(0, 1, loss=5.0))
    assert report.loss == 5.0
    (report,) = told(progress(), step(0, 0, loss=4.0), step(0, 1, loss=5.0))
    assert report.loss == 4.5


def test_a_loss_that_nobody_knows_is_no_number_and_no_failure() -> None:
    heard = progress()
    (report,) = told(heard, step(0, 0), step(0, 1))
    assert math.isnan(report.loss)
    assert heard.failure is None
    assert not heard.tells_losses


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_it(loss: float) -> None:
    heard = progress()
    assert told(heard, step(0, 0), step(0, 1, loss=loss)) == []
    assert heard.failure is not None
    assert (heard.failure.kind, heard.failure.rank) == (FailureKind.NUMERICS, 1)


def test_without_a_time_a_step_takes_from_the_one_before_to_itself() -> None:
    heard = progress()
    line = step(1, None, step_time_s=None)
    heard.heard(line, 10.0)
    heard.heard(replace(line, step=2), 10.5)
    heard.heard(replace(line, step=4, num_steps=2), 12.5)
    reports = heard.whole_steps(is_over=True)
    assert [report.step_time_s for report in reports] == [0.5, 1.0]  # nothing tells what the first took
    assert heard.num_heard == 4


def test_two_lines_of_a_step_that_no_rank_signed_are_joined() -> None:
    heard = progress()
    lines = (step(3, None, loss=2.0, step_time_s=None), step(3, None, step_time_s=0.5, tokens=512, peak_bytes=7))
    for line in lines:
        heard.heard(line, 1.0)
    (report,) = heard.whole_steps(is_over=True)
    assert (report.loss, report.step_time_s) == (2.0, 0.5)
    assert heard.failure is None
    assert heard.peak_bytes == {0: 7}


def test_memory_is_the_most_that_each_rank_told() -> None:
    heard = progress()
    told(heard, step(0, 1, peak_bytes=5), step(1, 1, peak_bytes=4))
    heard.heard(ReportedMemory(rank=0, peak_bytes=9), 0.0)
    heard.heard(ReportedMemory(rank=7, peak_bytes=9), 0.0)  # of no rank of this trial
    assert heard.peak_bytes == {1: 5, 0: 9}


def test_tokens_make_the_rate_and_mfu_that_were_reached() -> None:
    (usual,) = told(progress(), step(0, 0), step(0, 1))
    (fewer,) = told(progress(), step(0, 0, tokens=480), step(0, 1, tokens=480))
    assert usual.tokens_per_s == 512
    assert fewer.tokens_per_s == 480
    assert fewer.mfu == pytest.approx(usual.mfu * 480 / 512)


def test_tokens_of_one_rank_alone_end_it() -> None:
    heard = progress()
    told(heard, step(0, 0, tokens=256), step(0, 1, tokens=256))
    assert heard.failure is not None
    assert "256 tokens" in heard.failure.message


def test_a_rank_that_tells_of_a_step_twice_ends_it() -> None:
    heard = progress()
    told(heard, step(0, 0), step(0, 0))
    assert heard.failure is not None
    assert "twice" in heard.failure.message


def test_a_rank_that_the_trial_does_not_have_ends_it() -> None:
    heard = progress()
    told(heard, step(0, 0), step(0, 2))
    assert heard.failure is not None
    assert "rank 2 told of step 0, and the trial has 2" in heard.failure.message


@pytest.mark.parametrize(
    "said", [{"step_time_s": 0.0}, {"step_time_s": -1.0}, {"step_time_s": math.nan}, {"num_steps": 0}, {"tokens": 0}]
)
def test_numbers_that_cannot_be_are_no_step(said: dict[str, Any]) -> None:
    heard = progress()
    heard.heard(step(0, 0, **said), 0.0)
    assert heard.whole_steps(is_over=True) == []


def test_a_step_that_comes_after_it_was_taken_for_whole_is_left_out() -> None:
    heard = progress()
    told(heard, step(0), step(1))
    assert [report.step for report in told(heard)] == [0]
    assert told(heard, step(0, 1)) == []


def test_enough_is_what_our_own_trial_would_call_enough() -> None:
    heard = Progress(spec("progress", SHORT), PEAK)
    for number in range(5):
        told(heard, step(number, 0), step(number, 1))
    assert [report.is_warmup for report in heard.steps] == [True, False, False]
    assert heard.is_done
    assert heard.is_enough


# ---------------------------------------------------------------- verdict
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
