from __future__ import annotations

from autotuner.core.choices import RankPlacement
from autotuner.core.placement import Nodes
from tests.builders import cpu_cluster
from trials.runtime.rank import RankInfo


def test_torchrun_says_where_a_process_stands() -> None:
    environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert RankInfo.from_environment(environment) == RankInfo(rank=5, world_size=8, local_rank=1, local_world_size=4)


def test_a_process_that_no_torchrun_has_started_can_be_told_the_same() -> None:
    rank_info = RankInfo(rank=5, world_size=8, local_rank=1, local_world_size=4)
    assert RankInfo.from_environment(rank_info.environment()) == rank_info


def test_without_torchrun_a_process_is_alone() -> None:
    assert RankInfo.from_environment({"HOME": "/"}) == RankInfo(rank=0, world_size=1, local_rank=0, local_world_size=1)


def test_ranks_are_dealt_to_the_nodes_that_torchrun_filled_one_after_the_other() -> None:
    processes = [RankInfo(rank=rank, world_size=6, local_rank=rank % 3, local_world_size=3) for rank in range(6)]
    dealt = [process.dealt(RankPlacement.CYCLIC) for process in processes]
    assert [one.rank for one in dealt] == [0, 2, 4, 1, 3, 5]
    assert [one.local_rank for one in dealt] == [0, 1, 2, 0, 1, 2]
    assert all(one.nodes(RankPlacement.CYCLIC).node_of(one.rank) == index // 3 for index, one in enumerate(dealt))
    assert [one.dealt(RankPlacement.BLOCK) for one in processes] == processes


def test_a_host_that_plays_several_nodes_has_so_many() -> None:
    process = RankInfo(rank=3, world_size=4, local_rank=3, local_world_size=4, ranks_per_node=2)
    assert process.nodes(RankPlacement.BLOCK) == Nodes(num_nodes=2, ranks_per_node=2)
    assert process.dealt(RankPlacement.CYCLIC).rank == 3


def test_a_host_that_has_all_ranks_of_a_cluster_plays_its_nodes() -> None:
    alone = RankInfo(rank=1, world_size=4, local_rank=1, local_world_size=4)
    assert alone.playing(cpu_cluster(2, num_nodes=2)).ranks_per_node == 2
    assert alone.playing(cpu_cluster(4)).nodes(RankPlacement.BLOCK).num_nodes == 1
    assert alone.playing(cpu_cluster(8)) == alone.playing(None) == alone
    one_of_two = RankInfo(rank=3, world_size=4, local_rank=1, local_world_size=2)
    assert one_of_two.playing(cpu_cluster(1, num_nodes=4)) == one_of_two
