"""Lines of logs that tell of what a trainer died."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.launch.ranks import Death
from autotuner.launch.trainers.symptoms import Symptoms


def heard(*lines: str) -> Symptoms:
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
    complaint = heard("something else", line).out_of_memory
    assert complaint is not None
    assert complaint.rank == 1


def test_where_memory_is_limited_a_thread_that_cannot_start_is_out_of_memory_too() -> None:
    symptoms = heard("RuntimeError: can't start new thread")
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
    symptoms = heard(line)
    assert symptoms.communication is not None
    assert symptoms.error is None


def test_the_first_error_that_is_none_of_communication_is_the_cause() -> None:
    symptoms = heard(
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
    assert heard(*SUMMARY.splitlines()).root == Death(rank=3, exit_code=-9)


@pytest.mark.parametrize(
    "line", ["2 CUDA errors were retried", "loss: 3.2 Error rate: 0.1", "DeprecationWarning: old", "KeyboardInterrupt"]
)
def test_other_lines_name_no_cause(line: str) -> None:
    symptoms = heard(line)
    assert (symptoms.error, symptoms.out_of_memory, symptoms.communication, symptoms.root) == (None,) * 4


@given(st.text())
def test_any_line_is_heard(line: str) -> None:
    heard(line)
