from __future__ import annotations

from collections.abc import Iterable

import pytest

from autotuner.core.units import GIB
from autotuner.launch.trainers.log_readers.deepspeed import DeepspeedLog
from autotuner.launch.trainers.reported import ReportedStep
from tests.unit.launch.trainers.log_readers.specs import spec

HEAD = "[2026-01-02 03:04:05,678] [INFO]"


def progress(step: int) -> str:
    return f"{HEAD} [logging.py:123:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]"


def throughput(step: int, samples_per_s: float = 320.0) -> str:
    return (
        f"{HEAD} [timer.py:264:stop] epoch=0/micro_step={4 * step}/global_step={step}, RunningAvgSamplesPerSec=331.49,"
        f" CurrSamplesPerSec={samples_per_s}, MemAllocated=0.41GB, MaxMemAllocated=0.47GB"
    )


def timers(fwd: float = 13.5, *, names: tuple[str, str] = ("fwd", "bwd")) -> str:
    first, second = names
    return (
        f"[Rank 0] time (ms) | {first}: {fwd} | {second}: 18.25 | {second}_inner: 10.67 | {second}_allreduce: 7.73"
        " | step: 6.25"
    )


def micro_timers() -> str:
    return "[Rank 0] time (ms) | fwd_microstep: 13.70 | bwd_microstep: 18.47 | step_microstep: 6.91"


def steps(lines: Iterable[str]) -> list[ReportedStep]:
    log = DeepspeedLog(spec())
    return [step for line in lines if (step := log.read(line))]


def test_throughput_of_all_ranks_gives_the_time_of_that_step() -> None:
    assert steps([progress(10), throughput(10)]) == [
        ReportedStep(step=10, rank=0, step_time_s=128 / 320.0, peak_bytes=round(0.47 * GIB))
    ]


def test_steps_before_throughput_is_known_come_without_a_time_and_each_step_comes_once() -> None:
    found = steps([progress(1), progress(2), progress(3), throughput(3), progress(4), throughput(4)])
    assert [(step.step, step.step_time_s is None) for step in found] == [(1, True), (2, True), (3, False), (4, False)]


def test_progress_alone_gives_steps_whose_time_lies_between_the_lines() -> None:
    found = steps([progress(0), progress(10), progress(20), progress(30)])
    assert found == [ReportedStep(step=10, rank=0, num_steps=10), ReportedStep(step=20, rank=0, num_steps=10)]


@pytest.mark.parametrize("names", [("fwd", "bwd"), ("forward", "backward")])
def test_timers_alone_are_counted_and_summed(names: tuple[str, str]) -> None:
    found = steps(
        [progress(0), micro_timers(), micro_timers(), timers(names=names), micro_timers(), timers(14.5, names=names)]
    )
    assert [(step.step, step.step_time_s) for step in found] == [
        (1, 0.038),
        (2, 0.039),
    ]


def test_timers_beside_throughput_tell_of_the_other_steps_alone() -> None:
    lines = [timers(), progress(2), throughput(2), micro_timers(), timers(), timers(), timers()]
    assert [(step.step, step.peak_bytes is not None) for step in steps(lines)] == [
        (1, False),
        (2, True),
        (3, False),
        (4, False),
    ]


def test_timers_after_an_announced_step_are_of_that_step() -> None:
    assert [step.step for step in steps([progress(5), timers(), progress(6), timers()])] == [5, 6]


def test_a_pipelines_line_is_a_mean_with_a_loss() -> None:
    lines = [
        progress(10),
        "steps: 10 loss: 2.1274 iter time (s): 0.023 samples/sec: 5565.217",
        progress(20),
        "steps: 20 loss: 2.0123 iter time (s): 12.345 samples/sec: 10.369",
    ]
    assert steps(lines) == [
        ReportedStep(step=10, rank=0, step_time_s=128 / 5565.217, num_steps=10, loss=2.1274),
        ReportedStep(step=20, rank=0, step_time_s=12.345, num_steps=10, loss=2.0123),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[2026-01-02 03:04:05,678] [INFO] [config.py:1003:print]   steps_per_print .............. 10",
        "[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.486, MaxMemAllocated=9.02GB",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "rank=0 time (ms) | compute_norm: 2.99 | overflow_check: 8.91 | basic_step: 19.65",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert steps([line]) == []
