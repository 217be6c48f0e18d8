from __future__ import annotations

import re
from dataclasses import replace

from api.dashboard.charts.rank_grid import MOST_NODES, rank_grid, shown_nodes
from api.dashboard.views.rank_groups import rank_groups_view
from autotuner.search.explain.rank_groups import RankGroups, rank_groups
from tests.builders import big_job
from tests.unit.search.explain.test_rank_groups import LAYOUT

OURS = rank_groups(LAYOUT, big_job(), 21)


def of_many_nodes() -> RankGroups:
    job = big_job()
    large = replace(job, cluster=replace(job.cluster, num_nodes=128))
    layout = replace(LAYOUT, data_parallel_shard_degree=32)
    return rank_groups(layout, large, 300)


def address(rank: int) -> str:
    return f"?rank={rank}"


def test_every_rank_is_a_link_that_lights_its_own_groups() -> None:
    picture = rank_grid(OURS, address)
    assert len(re.findall(r'<a href="\?rank=\d+"', picture)) == 64
    assert 'aria-label="rank 63"' in picture


def test_ranks_are_lit_by_the_innermost_group_that_they_share() -> None:
    picture = rank_grid(OURS, address)
    lit = {look: len(re.findall(f'class="rank {look}"', picture)) for look in ("me", "tp", "cp", "pp", "dp")}
    assert lit == {"me": 1, "tp": 3, "cp": 1, "pp": 3, "dp": 2}


def test_pipeline_ranks_of_whole_nodes_are_columns() -> None:
    assert ">pipeline rank 3<" in rank_grid(OURS, address)
    assert ">pipeline rank" not in rank_grid(
        rank_groups(replace(LAYOUT, pipeline_parallel_degree=1, data_parallel_shard_degree=8), big_job(), 0), address
    )


def test_of_many_nodes_those_that_hold_ranks_of_its_groups_are_shown_its_own_among_them() -> None:
    groups = of_many_nodes()
    nodes = shown_nodes(groups)
    assert len(nodes) == MOST_NODES
    assert groups.node in nodes
    view = rank_groups_view(groups, address)
    assert view.missing == f"{MOST_NODES} of 128 nodes: those that hold ranks of its groups."
    assert len(view.picture) < 40_000


def test_the_table_says_ranks_link_bytes_and_waiting() -> None:
    view = rank_groups_view(OURS, address)
    first = view.rows[0]
    assert (first.name, first.letters, first.look, first.ranks) == ("tensor", "tp", "tp", "20 21 22 23")
    assert first.crosses.endswith("inside node 2")
    assert first.sent.endswith("TB")
    assert first.waits.endswith(" s")
    assert view.where == "node 2, pipeline rank 1"


def test_a_group_of_many_ranks_is_told_by_its_ends() -> None:
    data = rank_groups_view(of_many_nodes(), address).rows[-1]
    assert data.ranks.endswith("(64)")
    assert "…" in data.ranks
