from __future__ import annotations

import os

import pytest

from trials.measurement.cores import CpuTime, num_cores_used, own_core
from trials.runtime.rank import RankInfo


def rank_info(local_rank: int, local_world_size: int) -> RankInfo:
    return RankInfo(rank=local_rank, world_size=8, local_rank=local_rank, local_world_size=local_world_size)


def test_ranks_take_the_allowed_cores_in_turn() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    taken = [own_core(rank_info(rank, 2 * len(allowed))) for rank in range(2 * len(allowed))]
    assert taken == allowed + allowed


def test_ranks_never_use_more_cores_than_there_are() -> None:
    num_allowed = len(os.sched_getaffinity(0))
    assert num_cores_used(rank_info(0, 1)) == 1
    assert num_cores_used(rank_info(0, num_allowed + 3)) == num_allowed


@pytest.mark.parametrize(
    ("ranks_s", "share"),
    [(6.0, 0.2), (10.0, 0.0), (10.5, 0.0), (0.0, 0.5)],  # clocks of different grain may say more than the machine's
)
def test_the_foreign_share_is_what_was_busy_without_the_ranks(ranks_s: float, share: float) -> None:
    interval = CpuTime(machine_busy_s=10.0, machine_total_s=20.0, own_s=ranks_s)
    assert interval.foreign_share(ranks_s) == pytest.approx(share)


def test_an_interval_below_the_clock_s_grain_has_no_foreign_share() -> None:
    assert CpuTime(machine_busy_s=0.0, machine_total_s=0.0, own_s=0.1).foreign_share(0.1) == 0.0


def test_cpu_time_of_this_process_grows_with_its_work() -> None:
    start = CpuTime.now()
    while CpuTime.now().since(start).own_s < 0.05:
        pass
    interval = CpuTime.now().since(start)
    assert interval.machine_total_s >= 0.0
    assert interval.own_s >= 0.05
