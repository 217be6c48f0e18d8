from __future__ import annotations

from trials.runtime.rank import RankInfo


def test_torchrun_says_where_a_process_stands() -> None:
    environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert RankInfo.from_environment(environment) == RankInfo(rank=5, world_size=8, local_rank=1, local_world_size=4)


def test_a_process_that_no_torchrun_has_started_can_be_told_the_same() -> None:
    rank_info = RankInfo(rank=5, world_size=8, local_rank=1, local_world_size=4)
    assert RankInfo.from_environment(rank_info.environment()) == rank_info


def test_without_torchrun_a_process_is_alone() -> None:
    assert RankInfo.from_environment({"HOME": "/"}) == RankInfo(rank=0, world_size=1, local_rank=0, local_world_size=1)
