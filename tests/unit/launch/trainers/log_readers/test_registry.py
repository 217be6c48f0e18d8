from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autotuner.core.codec import from_plain, to_plain
from autotuner.launch.trainers.log_readers.registry import READERS
from autotuner.launch.trainers.reported import ReportedMemory, ReportedStep
from tests.unit.launch.trainers.log_readers.specs import spec

WORDS = st.sampled_from(
    [
        *(" iteration ", "/", " | ", "elapsed time per iteration (ms): ", "lm loss: ", "number of nan iterations: "),
        *(
            "[Rank ",
            "] ",
            "memory (MB) |",
            " max allocated: ",
            "Training epoch 0, iteration ",
            "train_step_timing in s: ",
        ),
        *("step: ", "  loss: ", "  memory: ", "GiB", "  tps: ", "[rank", "]:", "\x1b[31m"),
        *("step=", ", skipped=0", "global_step=", ", CurrSamplesPerSec=", "MaxMemAllocated=", "GB"),
        *("steps: ", " loss: ", " iter time (s): ", " samples/sec: ", "time (ms) | ", "fwd: ", "bwd: "),
        *("{'loss': '", "'", "}", " [", "\r", ","),
    ]
)
NUMBERS = st.one_of(
    st.integers(min_value=-(10**20), max_value=10**20).map(str),
    st.floats().map(str),
    st.sampled_from(["0", "1e400", "-1", "nan", "inf", "9" * 5000, "1,2,,3", "٣", "1_0", "1.2.3"]),
)
LINES = st.one_of(st.text(), st.lists(st.one_of(WORDS, NUMBERS, st.text(max_size=3))).map("".join))


@pytest.mark.parametrize("name", READERS)
@given(lines=st.lists(LINES))
@example(lines=["steps: 10 loss: 1 iter time (s): inf samples/sec: 0"])
@example(lines=["step: 1  loss: nan  memory: 1e400GiB  tps: 0"])
@example(lines=[" iteration 1/1 | elapsed time per iteration (ms): 1e999 | lm loss: inf |"])
@example(lines=["[Rank 0] memory (MB) | max allocated: 1..2"])
@example(lines=["[Rank 0] time (ms) | fwd: nan | bwd: 1 | step: 1"])
def test_whatever_is_printed_no_reader_raises_and_what_it_reads_makes_sense(name: str, lines: list[str]) -> None:
    reader = READERS[name](spec())
    for line in lines:
        match reader.read(line):
            case ReportedStep() as step:
                assert step.num_steps >= 1
                assert step.step_time_s is None or step.step_time_s > 0
                assert step.peak_bytes is None or step.peak_bytes >= 0
                assert from_plain(ReportedStep, to_plain(step)).step == step.step
            case ReportedMemory() as memory:
                assert memory.peak_bytes >= 0
            case None:
                pass


@pytest.mark.parametrize("name", READERS)
def test_a_line_of_a_million_characters_is_passed_over(name: str) -> None:
    reader = READERS[name](spec())
    for piece in (
        "step: 1  loss: 1 ",
        "1/2 [",
        "9",
        "{'loss': '9",
        " iteration 1/2 | ",
        "global_step=1, ",
        "[Rank 0] ",
    ):
        reader.read(piece * (10**6 // len(piece)))
