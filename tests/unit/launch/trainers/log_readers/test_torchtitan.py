from __future__ import annotations

import math

import pytest

from autotuner.core.units import GIB
from autotuner.launch.trainers.log_readers.torchtitan import TorchtitanLog
from autotuner.launch.trainers.reported import ReportedStep
from tests.unit.launch.trainers.log_readers.specs import spec


def printed(step: int, *, prefix: str = "", loss: str = " 7.94336", memory: str = "40.12", tps: str = "1,234") -> str:
    return (
        f"{prefix}[titan] 2026-01-02 03:04:05,678 - root - INFO - step: {step:2}  loss: {loss}  grad_norm:  2.7038"
        f"  memory: {memory}GiB(50.15%)  tps: {tps}  tflops: 98.76  mfu: 31.20%"
    )


def test_the_step_time_follows_from_tokens_per_second_of_one_device() -> None:
    step = TorchtitanLog(spec()).read(printed(1))
    assert step == ReportedStep(
        step=1,
        step_time_s=128 * 4096 / 8 / 1234,
        loss=7.94336,
        peak_bytes=round(40.12 * GIB),
    )


def test_torchruns_prefix_says_the_rank() -> None:
    log = TorchtitanLog(spec())
    ranks = [log.read(printed(1, prefix=prefix)) for prefix in ("[rank0]:", "[default3]:", "")]
    assert [step.rank for step in ranks if step] == [0, 3, None]


def test_every_rank_may_print_a_step_and_each_line_is_a_mean_since_the_step_before() -> None:
    log = TorchtitanLog(spec())
    printed_steps = [1, 1, 10, 10, 20, 10, 20]  # a rank may be a line late
    steps = [log.read(printed(step)) for step in printed_steps]
    assert [(step.step, step.num_steps) for step in steps if step] == [
        (1, 1), (1, 1), (10, 9), (10, 9), (20, 10), (10, 9), (20, 10),
    ]  # fmt: skip


def test_ranks_without_the_last_stage_know_no_loss() -> None:
    step = TorchtitanLog(spec()).read(printed(1, loss="-1.00000"))
    assert step is not None
    assert step.loss is None


def test_a_loss_that_is_no_number_is_none_of_these() -> None:
    step = TorchtitanLog(spec()).read(printed(1, loss="     nan"))
    assert step is not None
    assert step.loss is not None
    assert math.isnan(step.loss)


def test_memory_is_the_highest_of_a_rank_so_far_though_each_line_begins_anew() -> None:
    log = TorchtitanLog(spec())
    peaks = [
        log.read(printed(1, prefix="[rank0]:", memory="40.00")),
        log.read(printed(1, prefix="[rank1]:", memory="10.00")),
        log.read(printed(2, prefix="[rank0]:", memory="30.00")),
    ]
    assert [step.peak_bytes for step in peaks if step] == [40 * GIB, 10 * GIB, 40 * GIB]


def test_colours_change_nothing() -> None:
    line = printed(12)
    for label, colour in (("step:", 31), ("loss:", 32), ("memory:", 36), ("tps:", 34), ("mfu:", 35)):
        line = line.replace(label, f"\x1b[{colour}m{label}")
    assert TorchtitanLog(spec()).read(f"{line}\x1b[39m") == TorchtitanLog(spec()).read(printed(12))


def test_a_line_without_norm_or_utilization_is_read() -> None:
    line = (
        "[titan] 2025-06-16 22:30:50,322 - root - INFO - step: 200  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 5,856"
    )
    step = TorchtitanLog(spec()).read(f"{line}  tflops: 339.16  mfu: N/A")
    assert step is not None
    assert (step.step, step.loss) == (200, 6.1384)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[titan] 2026-01-02 03:04:05,678 - root - INFO - Training starts at step 1",
        "[titan] 2026-01-02 03:04:05,678 - INFO - validate step: 10  loss:  6.1  memory: 9.46GiB(64.99%)  tps: 7",
        "[titan] 2026-01-02 03:04:05,678 - root - WARNING - 2 CUDA OOM errors thrown.",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert TorchtitanLog(spec()).read(line) is None
