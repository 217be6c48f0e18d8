"""Trainers: their commands, what they print and report, and the verdict on them."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.measurement import StepReport
from autotuner.core.measuring import Peak
from autotuner.core.node_line import CpuTime, Death, NodeEnd, NodeLine, Printed, TrainerLine
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.core.trial_spec import TrialSettings
from autotuner.launch.contract import AttemptEnd
from autotuner.launch.trainer_reports import ForeignShare, Symptoms, TrainerReports, trainer_verdict
from autotuner.launch.trainers.progress import LogReader, Progress, Reported, ReportedMemory, ReportedStep
from autotuner.launch.trainers.registration import (
    PLACEHOLDERS,
    RegisteredTrainer,
    check_command,
    num_steps,
    read_trainers,
    rendered,
)
from tests.builders import cpu_layout
from tests.trials.launching import ENDLESS, SHORT, failed, spec

# ---------------------------------------------------------------- A trainer's command, filled in for one trial
SPEC = Path("/trial/spec.json")


def vector(*command: str, arguments: tuple[str, ...] = (), file: Path | None = None) -> list[str]:
    check_command(command)
    trial = spec("command", layout=cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=2))
    return rendered(command, trial, arguments=arguments, file=file, spec_file=SPEC)


def test_placeholders_are_filled_in_also_by_numbers_and_become_as_many_words_as_there_are() -> None:
    for name in PLACEHOLDERS:
        check_command(["train", f"{{{name}}}"])
        is_of_nodes = name.startswith(("master_", "node_", "num_nodes", "ranks_", "python"))
        filled = vector("train", f"{{{name}}}", arguments=("x",), file=Path("f"))
        assert (filled == ["train", f"{{{name}}}"]) == is_of_nodes, "which only the node can fill in"
    words = "{world_size} {micro_batch_size} {num_micro_batches} {global_batch_size} {seq_len} {seed}"
    assert vector("train", *words.split()) == ["train", "2", "2", "2", "8", "64", "0"]
    assert vector("train", '{{"steps": {seed}}}') == ["train", '{"steps": 0}']
    arguments = ("--a", "b c; rm -rf /", "{steps}", "$(x)")
    assert vector("train", "{arguments}", "end", arguments=arguments) == ["train", *arguments, "end"]
    assert vector("train", "{arguments}", "end") == ["train", "end"]
    assert vector("{python}", "--file={file}", "{spec}") == ["{python}", "--file=", str(SPEC)]
    assert vector("train", "--file={file}", file=Path("/trial/ds.json")) == ["train", "--file=/trial/ds.json"]


def test_a_trainer_is_asked_for_the_most_steps_that_a_trial_may_take_and_one_to_spare() -> None:
    settings = TrialSettings(warmup_steps=2, max_warmup_steps=20, measured_steps=50, max_measured_steps=40)
    assert num_steps(settings) == 20 + 50 + 1


# ---------------------------------------------------------------- cores
def share(*looks: tuple[float, float, float]) -> float:
    foreign = ForeignShare()
    for busy_s, total_s, own_s in looks:
        foreign.look(CpuTime(node=0, busy_s=busy_s, total_s=total_s, own_s=own_s))
    return foreign.share


def test_others_used_what_was_busy_and_not_the_trials_on_the_busiest_node() -> None:
    assert share((10.0, 100.0, 5.0), (14.0, 110.0, 7.0), (18.0, 120.0, 9.0)) == pytest.approx(4.0 / 20.0)
    assert [share((10.0, 100.0, 5.0)), share()] == [0.0, 0.0]
    assert share((10.0, 100.0, 5.0), (20.0, 120.0, 1.0)) == 0.5  # processes that are gone take no time back
    foreign = ForeignShare()
    for total_s in (100.0, 120.0):
        for node, own_s in ((0, total_s), (1, total_s / 2)):
            foreign.look(CpuTime(node=node, busy_s=total_s, total_s=total_s, own_s=own_s))
    assert foreign.share == 0.5


# ---------------------------------------------------------------- The registrations that a how-to page shows
PAGE = Path(__file__).parents[4] / "docs/how-to/run-a-sweep-with-your-own-trainer.md"


def documented(folder: Path) -> dict[str, RegisteredTrainer]:
    path = folder / "trainers.toml"
    path.write_text("\n".join(re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    return read_trainers(path)


def test_every_registration_that_is_shown_can_be_registered(tmp_path: Path) -> None:
    assert {"finetune", "titan", "titan-3"} <= documented(tmp_path).keys()


def test_torchtitan_s_module_is_imported_from_the_folder_that_it_was_written_into(tmp_path: Path) -> None:
    trial = spec("documented", layout=cpu_layout(data_parallel_replicate_degree=2))
    file = tmp_path / "a trial" / "torchtitan_layout.py"
    command = documented(tmp_path)["titan-3"].command
    vector = rendered(command, trial, arguments=(), file=file, spec_file=file)
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(vector, env=environment, capture_output=True, text=True, timeout=10, check=True)
    assert ran.stdout.startswith(f"{file.parent} --standalone --nproc-per-node=2 -m torchtitan.train")


# ---------------------------------------------------------------- told
TRIAL = spec("told", SHORT)
PEAK = Peak(flop_per_s=2e11, source="data sheet")
END = NodeEnd(node=0, exit_code=0)


def told_line(node: int, /, **document: object) -> TrainerLine:
    return TrainerLine(line=json.dumps(document), node=node, at=0.0)


def steps(**first: object) -> list[TrainerLine]:
    lines: list[dict[str, object]] = [
        {"step": step, "rank": rank, "step_time_s": 0.1}
        for step in range(10)
        for rank in range(TRIAL.layout.world_size)
    ]
    return [told_line(0, **line) for line in (lines[0] | first, *lines[1:])]


def taken(*lines: NodeLine, reader: LogReader | None = None) -> TrainerReports:
    reports = TrainerReports(TRIAL, PEAK, reader, {"trainer": "loop", "device": "h100-sxm"})
    reports.take([*lines, END])
    return reports


def test_ranks_tell_versions_and_nodes_the_rest_the_first_node_first() -> None:
    second = told_line(1, environment={"host": "b", "driver": "570.1"})
    first = told_line(0, environment={"host": "a", "driver": "580.82"})
    found = taken(second, first, *steps(environment={"torch": "2.13"})).measurement
    assert found is not None
    facts = found.environment
    assert (facts["trainer"], facts["torch"], facts["device"]) == ("loop", "2.13", "h100-sxm")
    assert (facts["host"], facts["driver"], facts["nodes"]) == ("a", "580.82", "a,b")


def test_a_value_that_is_not_an_object_of_strings_is_skipped() -> None:
    torn = TrainerLine(line="{", at=0.0)
    found = taken(
        torn,
        told_line(0, environment="somewhere"),
        told_line(0, environment={"host": 3}),
        told_line(0, step="x"),
        *steps(),
    )
    assert found.measurement is not None
    assert "host" not in found.measurement.environment


def test_a_reader_that_breaks_costs_its_line_and_not_the_trial() -> None:
    class Broken:
        def read(self, line: str) -> Reported | None:
            if "tokens" in line:
                raise ValueError(line)
            return ReportedStep(step=int(line), step_time_s=0.5)

    found = taken(*(Printed(text=text, at=0.0) for text in ("0", "tokens", "1", "2")), reader=Broken())
    assert len(found.progress.steps) == 3


# ---------------------------------------------------------------- Lines of logs that tell of what a trainer died
def symptoms_heard(*lines: str) -> Symptoms:
    symptoms = Symptoms()
    for line in lines:
        symptoms.heard(line)
    return symptoms


@pytest.mark.parametrize(
    "line",
    [
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total",
        "[rank1]: RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)",
        "[rank1]: MemoryError",
        "[rank0]: step 3[rank1]: MemoryError",
    ],
)
def test_memory_that_has_run_out_is_known_by_its_words_and_its_rank(line: str) -> None:
    complaint = symptoms_heard("something else", line).out_of_memory
    assert complaint is not None
    assert complaint.rank == 1


@pytest.mark.parametrize(
    "line",
    [
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled system error",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:2137",
        "ConnectionResetError",
    ],
)
def test_a_lost_peer_is_communication_and_no_cause_of_its_own(line: str) -> None:
    symptoms = symptoms_heard(line)
    assert symptoms.communication is not None
    assert symptoms.error is None


def test_the_first_error_that_is_none_of_communication_is_the_cause_where_torchrun_names_no_rank() -> None:
    symptoms = symptoms_heard(
        "[rank0]: torch.distributed.DistBackendError: NCCL error",
        "Traceback (most recent call last):",
        '[rank1]: KeyError: "lm_head"',
        "ValueError: later",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    )
    assert symptoms.error is not None
    assert (symptoms.error.rank, symptoms.error.text) == (1, 'KeyError: "lm_head"')
    assert symptoms_heard(*SUMMARY.splitlines()).root == Death(rank=3, exit_code=-9)
    symptoms = symptoms_heard("RuntimeError: can't start new thread")
    assert symptoms.out_of_memory is None
    assert symptoms.out_of_limited_memory is not None


SUMMARY = """
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-02_03:04:05
  host      : here
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 100)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_03:04:05
  host      : here
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 101)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 101
============================================================
"""


@pytest.mark.parametrize(
    "line", ["2 CUDA errors were retried", "loss: 3.2 Error rate: 0.1", "DeprecationWarning: old", "KeyboardInterrupt"]
)
def test_other_lines_name_no_cause(line: str) -> None:
    symptoms = symptoms_heard(line)
    assert (symptoms.error, symptoms.out_of_memory, symptoms.communication, symptoms.root) == (None,) * 4


# ---------------------------------------------------------------- Reports of ranks, joined to steps
def progress(**settings: Any) -> Progress:
    return Progress(spec("progress", replace(ENDLESS, **settings)), PEAK)


def step(number: int, rank: int | None = 0, **said: Any) -> ReportedStep:
    return ReportedStep(step=number, rank=rank, **{"step_time_s": 1.0, **said})


def told(heard: Progress, *reports: ReportedStep, at_s: float = 0.0) -> list[StepReport]:
    for report in reports:
        heard.heard(report, at_s)
    return heard.whole_steps()


def test_a_step_is_whole_when_every_rank_told_of_it_or_at_the_end() -> None:
    heard = progress()
    assert told(heard, step(0, 0, step_time_s=1.0)) == []
    (report,) = told(heard, step(0, 1, step_time_s=3.0))
    assert (report.step, report.step_time_s) == (0, 3.0)
    heard = progress()
    told(heard, step(0), step(1, 1))
    assert [report.step for report in heard.whole_steps(is_over=True)] == [0, 1]
    heard = progress()
    reports = told(heard, step(1, 0), step(1, 1), step(2, 0), step(2, 1))
    assert [report.step for report in reports] == [0, 1]


def test_a_step_of_one_reporting_rank_is_whole_at_the_look_after_a_later_one_and_then_late_ones_are_left_out() -> None:
    heard = progress()
    assert told(heard, step(0)) == []
    assert told(heard, step(1)) == []  # a rank that was read before may have told of step 0 since
    assert [report.step for report in told(heard)] == [0]
    heard = progress()
    told(heard, step(0), step(1))
    assert [report.step for report in told(heard)] == [0]
    assert told(heard, step(0, 1)) == []


def test_the_loss_is_the_mean_of_the_ranks_that_know_one() -> None:
    (report,) = told(progress(), step(0, 0, loss=None), step(0, 1, loss=5.0))
    assert report.loss == 5.0
    (report,) = told(progress(), step(0, 0, loss=4.0), step(0, 1, loss=5.0))
    assert report.loss == 4.5
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


def test_a_step_takes_from_the_one_before_without_a_time_and_lines_that_no_rank_signed_are_joined() -> None:
    heard = progress()
    line = step(1, None, step_time_s=None)
    heard.heard(line, 10.0)
    heard.heard(replace(line, step=2), 10.5)
    heard.heard(replace(line, step=4, num_steps=2), 12.5)
    reports = heard.whole_steps(is_over=True)
    assert [report.step_time_s for report in reports] == [0.5, 1.0]  # nothing tells what the first took
    assert heard.num_heard == 4
    heard = progress()
    lines = (step(3, None, loss=2.0, step_time_s=None), step(3, None, step_time_s=0.5, tokens=512, peak_bytes=7))
    for line in lines:
        heard.heard(line, 1.0)
    (report,) = heard.whole_steps(is_over=True)
    assert (report.loss, report.step_time_s) == (2.0, 0.5)
    assert heard.failure is None
    assert heard.peak_bytes == {0: 7}


def test_memory_is_the_most_that_each_rank_told_and_tokens_make_the_rate_and_mfu() -> None:
    heard = progress()
    told(heard, step(0, 1, peak_bytes=5), step(1, 1, peak_bytes=4))
    heard.heard(ReportedMemory(rank=0, peak_bytes=9), 0.0)
    heard.heard(ReportedMemory(rank=7, peak_bytes=9), 0.0)  # of no rank of this trial
    assert heard.peak_bytes == {1: 5, 0: 9}
    (usual,) = told(progress(), step(0, 0), step(0, 1))
    (fewer,) = told(progress(), step(0, 0, tokens=480), step(0, 1, tokens=480))
    assert usual.tokens_per_s == 512
    assert fewer.tokens_per_s == 480
    assert fewer.mfu == pytest.approx(usual.mfu * 480 / 512)


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ((step(0, 0, tokens=256), step(0, 1, tokens=256)), "256 tokens"),
        ((step(0, 0), step(0, 0)), "twice"),
        ((step(0, 0), step(0, 2)), "rank 2 reported step 0, but the trial has only 2 ranks"),
    ],
    ids=["tokens of one rank alone", "a step that is told twice", "a rank that the trial does not have"],
)
def test_reports_that_contradict_the_trial_end_it(reports: tuple[ReportedStep, ...], said: str) -> None:
    heard = progress()
    told(heard, *reports)
    assert heard.failure is not None
    assert said in heard.failure.message


@pytest.mark.parametrize(
    "said", [{"step_time_s": 0.0}, {"step_time_s": -1.0}, {"step_time_s": math.nan}, {"num_steps": 0}, {"tokens": 0}]
)
def test_numbers_that_cannot_be_are_no_step(said: dict[str, Any]) -> None:
    heard = progress()
    heard.heard(step(0, 0, **said), 0.0)
    assert heard.whole_steps(is_over=True) == []


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


def judged(log: str, code: int, *, oom_killed: bool = False, budget: int | None = None) -> TrialFailure:
    """The verdict on a command that printed the log and left with the code."""
    trial = spec("judged", replace(SHORT, memory_budget_bytes=budget))
    reports = TrainerReports(trial, PEAK, None, {})
    reports.take([*(Printed(text=line, at=0.0) for line in log.splitlines()), NodeEnd(node=0, exit_code=code)])
    return failed(trainer_verdict(trial, reports, AttemptEnd(exit_code=code, log=log, oom_killed=oom_killed)))


def test_an_exit_code_comes_with_the_last_that_was_said_and_without_torchruns_traceback() -> None:
    failure = judged("train.py: error: unrecognized arguments: --x\n" + AGENT.format(code=2), 1)
    assert failure.kind == FailureKind.CRASH
    assert failure.rank == 1
    assert "rank 1 ended with exit code 2, before its first step" in failure.message
    assert failure.message.endswith("train.py: error: unrecognized arguments: --x")
    assert failure.log_tail == "train.py: error: unrecognized arguments: --x"


LOST_PEER, NO_THREAD = "[rank0]: RuntimeError: Connection closed by peer\n", "RuntimeError: can't start new thread\n"


@pytest.mark.parametrize(
    ("log", "code", "more", "kind", "rank", "words"),
    [
        (LOST_PEER + AGENT.format(code=-9), 1, {}, FailureKind.CRASH, 1, "SIGKILL"),
        (LOST_PEER + AGENT.format(code=-9), 1, {"oom_killed": True}, FailureKind.OOM, 1, ""),
        (LOST_PEER + AGENT.format(code=1), 1, {}, FailureKind.COMMUNICATION, 0, ""),
        (f"{LOST_PEER}[rank1]: ValueError: no\n{AGENT.format(code=1)}", 1, {}, FailureKind.CRASH, 1, "ValueError: no"),
        (NO_THREAD, 1, {"budget": 10**9}, FailureKind.OOM, None, ""),
        (NO_THREAD, 1, {}, FailureKind.CRASH, None, ""),
        ("", 139, {}, FailureKind.CRASH, None, "SIGSEGV"),  # as a shell tells it
        ("nothing to do\n", 0, {}, FailureKind.CRASH, None, "after 0 steps"),
    ],
    ids=[
        *("a rank that torchrun saw killed", "that the kernel killed", "a lost peer alone", "beside another error"),
        *("a thread that cannot start with little memory", "with any", "a signal", "too few steps"),
    ],
)
def test_a_death_is_judged_by_its_cause_where_one_was_told_and_by_its_end_otherwise(
    log: str, code: int, more: dict[str, Any], kind: FailureKind, rank: int | None, words: str
) -> None:
    failure = judged(log, code, **more)
    assert (failure.kind, failure.rank) == (kind, rank)
    assert words in failure.message
