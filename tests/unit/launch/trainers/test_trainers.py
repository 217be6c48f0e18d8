from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.measuring import Peak
from autotuner.core.trial_spec import TrialSettings
from autotuner.launch.ranks import Death
from autotuner.launch.trainers.processes import Output
from autotuner.launch.trainers.registration import (
    PLACEHOLDERS,
    Registration,
    check_command,
    num_steps,
    on_this_machine,
    read_trainers,
    rendered,
)
from autotuner.launch.trainers.told import CoreWatch, CpuTime, Symptoms, TrainerReports
from tests.builders import cpu_layout
from tests.trials.launching import SHORT, spec

# ---------------------------------------------------------------- A trainer's command, filled in for one trial
SPEC = Path("/trial/spec.json")


def vector(*command: str, arguments: tuple[str, ...] = (), file: Path | None = None) -> list[str]:
    check_command(command)
    trial = spec("command", layout=cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=2))
    return rendered(command, trial, on_this_machine(2), arguments=arguments, file=file, spec_file=SPEC)


def test_every_placeholder_is_filled_in() -> None:
    for name in PLACEHOLDERS:
        check_command(["train", f"{{{name}}}"])
        assert vector("train", f"{{{name}}}", arguments=("x",), file=Path("f")) != ["train", f"{{{name}}}"]


def test_numbers_are_those_of_the_trial() -> None:
    words = "{world_size} {micro_batch_size} {num_micro_batches} {global_batch_size} {seq_len} {seed}"
    assert vector("train", *words.split()) == ["train", "2", "2", "2", "8", "64", "0"]


def test_arguments_become_as_many_as_there_are() -> None:
    arguments = ("--a", "b c; rm -rf /", "{steps}", "$(x)")
    assert vector("train", "{arguments}", "end", arguments=arguments) == ["train", *arguments, "end"]
    assert vector("train", "{arguments}", "end") == ["train", "end"]


def test_files_are_paths_and_a_layout_without_one_leaves_it_empty() -> None:
    assert vector("{python}", "--file={file}", "{spec}") == [sys.executable, "--file=", str(SPEC)]
    assert vector("train", "--file={file}", file=Path("/trial/ds.json")) == ["train", "--file=/trial/ds.json"]


def test_a_brace_that_is_meant_is_written_twice() -> None:
    assert vector("train", '{{"steps": {seed}}}') == ["train", '{"steps": 0}']


def test_a_trainer_is_asked_for_the_most_steps_that_a_trial_may_take_and_one_to_spare() -> None:
    settings = TrialSettings(warmup_steps=2, max_warmup_steps=20, measured_steps=50, max_measured_steps=40)
    assert num_steps(settings) == 20 + 50 + 1


# ---------------------------------------------------------------- cores
def watch(*looks: CpuTime) -> CoreWatch:
    answers: Iterator[CpuTime] = iter(looks)

    def look(processes: Iterable[psutil.Process]) -> CpuTime:
        assert list(processes) == []
        return next(answers)

    made = CoreWatch(lambda: (), look, apart_s=0.0)
    for _ in looks:
        made.look()
    return made


def cpu(busy_s: float, total_s: float, own_s: float) -> CpuTime:
    return CpuTime(busy_s=busy_s, total_s=total_s, own_s=own_s)


def test_others_used_what_was_busy_and_not_the_trials() -> None:
    assert watch(cpu(10.0, 100.0, 5.0), cpu(18.0, 120.0, 9.0)).foreign_share == pytest.approx(4.0 / 20.0)


def test_nobody_used_anything_where_one_look_was_all() -> None:
    assert watch(cpu(10.0, 100.0, 5.0)).foreign_share == 0.0
    assert watch().foreign_share == 0.0


def test_processes_that_are_gone_take_no_time_back() -> None:
    assert watch(cpu(10.0, 100.0, 5.0), cpu(20.0, 120.0, 1.0)).foreign_share == 0.5


def test_real_counters_can_be_read() -> None:
    real = CoreWatch(lambda: [psutil.Process()])
    real.look()
    assert 0.0 <= real.foreign_share <= 1.0


# ---------------------------------------------------------------- The registrations that docs/trainers.md shows
PAGE = Path(__file__).parents[4] / "docs/trainers.md"


def documented(folder: Path) -> dict[str, Registration]:
    path = folder / "trainers.toml"
    path.write_text("\n".join(re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    return read_trainers(path)


def test_every_registration_that_is_shown_can_be_registered(tmp_path: Path) -> None:
    assert {"finetune", "titan", "titan-3"} <= documented(tmp_path).keys()


def test_torchtitan_s_module_is_imported_from_the_folder_that_it_was_written_into(tmp_path: Path) -> None:
    trial = spec("documented", layout=cpu_layout(data_parallel_replicate_degree=2))
    file = tmp_path / "a trial" / "torchtitan_layout.py"
    command = documented(tmp_path)["titan-3"].command
    vector = rendered(command, trial, on_this_machine(2), arguments=(), file=file, spec_file=file)
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(vector, env=environment, capture_output=True, text=True, timeout=10, check=True)
    assert ran.stdout.startswith(f"{file.parent} --standalone --nproc-per-node=2 -m torchtitan.train")


# ---------------------------------------------------------------- What a trainer prints, line by line
def heard(write: Callable[[int], object], hear: Callable[[str, float], None] | None = None) -> tuple[list[str], str]:
    """The lines that were heard, and the text that was kept."""
    lines: list[str] = []
    reading, writing = os.pipe()
    output = Output(os.fdopen(reading, "rb", buffering=0), hear or (lambda line, at_s: lines.append(line)))
    write(writing)
    os.close(writing)
    output.finish(5.0)
    return lines, output.text


def test_lines_are_heard_whole_however_they_come() -> None:
    def write(pipe: int) -> None:
        os.write(pipe, b"one\ntw")
        time.sleep(0.02)
        os.write(pipe, b"o\nthree")

    assert heard(write) == (["one", "two", "three"], "one\ntwo\nthree")


def test_a_progress_bar_ends_its_lines_by_returns() -> None:
    assert heard(lambda pipe: os.write(pipe, b" 5%| 1/20\r      \r{'loss': '6.25'}\n"))[0] == [
        " 5%| 1/20",
        "{'loss': '6.25'}",
    ]


def test_what_is_no_text_is_replaced() -> None:
    assert heard(lambda pipe: os.write(pipe, b"\xff\n"))[0] == ["\ufffd"]


def test_only_the_last_lines_are_kept_and_no_line_is_endless() -> None:
    def write(pipe: int) -> None:
        for number in range(1000):
            os.write(pipe, b"%d\n" % number)
        for _ in range(50):
            os.write(pipe, b"x" * 10_000)

    lines, text = heard(write)
    assert lines[:2] == ["0", "1"]
    assert len(text) < 20_000
    assert max(map(len, text.splitlines())) == 2000


def test_a_reader_that_breaks_does_not_keep_a_trainer_waiting() -> None:
    def broken(line: str, at_s: float) -> None:
        raise ValueError(line, at_s)

    _, text = heard(lambda pipe: [os.write(pipe, b"x" * 60_000 + b"\n") for _ in range(10)], broken)
    assert len(text.splitlines()) == 10


# ---------------------------------------------------------------- told
TRIAL = spec("told", SHORT)


def reports(folder: Path) -> TrainerReports:
    peak = Peak(flop_per_s=1e12, source="said")
    return TrainerReports(TRIAL, peak, folder, None, {"trainer": "loop", "device": "h100-sxm"})


def append(folder: Path, name: str, *documents: dict[str, object]) -> None:
    with (folder / name).open("a") as file:
        file.writelines(json.dumps(document) + "\n" for document in documents)


def steps(rank: int, **first: object) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = [{"step": step, "rank": rank, "step_time_s": 0.1} for step in range(10)]
    return [lines[0] | first, *lines[1:]]


def environment(told: TrainerReports) -> dict[str, str]:
    told.new_steps(is_over=True)
    assert told.measurement is not None
    return told.measurement.environment


def test_ranks_tell_versions_and_nodes_the_rest(tmp_path: Path) -> None:
    append(tmp_path, "node-0.jsonl", {"environment": {"host": "a", "driver": "580.82"}})
    append(tmp_path, "node-1.jsonl", {"environment": {"host": "b", "driver": "570.1"}})
    for rank in range(TRIAL.layout.world_size):
        append(tmp_path, f"rank-{rank}.jsonl", *steps(rank, environment={"torch": "2.13"}))
    facts = environment(reports(tmp_path))
    assert (facts["trainer"], facts["torch"], facts["device"]) == ("loop", "2.13", "h100-sxm")
    assert (facts["host"], facts["driver"], facts["nodes"]) == ("a", "580.82", "a,b")


def test_what_is_no_object_of_strings_is_passed_over(tmp_path: Path) -> None:
    append(tmp_path, "node-0.jsonl", {"environment": "somewhere"}, {"environment": {"host": 3}})
    for rank in range(TRIAL.layout.world_size):
        append(tmp_path, f"rank-{rank}.jsonl", *steps(rank))
    assert "host" not in environment(reports(tmp_path))


def test_what_the_launcher_learns_later_is_said_too(tmp_path: Path) -> None:
    for rank in range(TRIAL.layout.world_size):
        append(tmp_path, f"rank-{rank}.jsonl", *steps(rank))
    told = reports(tmp_path)
    told.runs_on({"NCCL_ALGO": "Tree"})
    assert environment(told)["NCCL_ALGO"] == "Tree"


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


def test_where_memory_is_limited_a_thread_that_cannot_start_is_out_of_memory_too() -> None:
    symptoms = symptoms_heard("RuntimeError: can't start new thread")
    assert symptoms.out_of_memory is None
    assert symptoms.out_of_limited_memory is not None


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


def test_the_first_error_that_is_none_of_communication_is_the_cause() -> None:
    symptoms = symptoms_heard(
        "[rank0]: torch.distributed.DistBackendError: NCCL error",
        "Traceback (most recent call last):",
        '[rank1]: KeyError: "lm_head"',
        "ValueError: later",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    )
    assert symptoms.error is not None
    assert (symptoms.error.rank, symptoms.error.text) == (1, 'KeyError: "lm_head"')


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


def test_torchruns_summary_names_the_rank_that_died_first() -> None:
    assert symptoms_heard(*SUMMARY.splitlines()).root == Death(rank=3, exit_code=-9)


@pytest.mark.parametrize(
    "line", ["2 CUDA errors were retried", "loss: 3.2 Error rate: 0.1", "DeprecationWarning: old", "KeyboardInterrupt"]
)
def test_other_lines_name_no_cause(line: str) -> None:
    symptoms = symptoms_heard(line)
    assert (symptoms.error, symptoms.out_of_memory, symptoms.communication, symptoms.root) == (None,) * 4


@given(st.text())
def test_any_line_is_heard(line: str) -> None:
    symptoms_heard(line)
