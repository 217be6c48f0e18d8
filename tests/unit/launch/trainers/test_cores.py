"""What others used of a machine while a trainer was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psutil
import pytest

from autotuner.launch.trainers.cores import CoreWatch, CpuTime


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
