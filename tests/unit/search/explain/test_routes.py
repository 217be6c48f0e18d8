"""Which link limits the groups of each axis on a described network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import RankPlacement, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.network import Network, Tier
from autotuner.search.explain.bottlenecks import limit_of
from autotuner.search.explain.rank_groups import rank_groups
from autotuner.search.explain.routes import Route, routes
from tests.builders import big_job, h100_cluster

THIN = Network(name="thin", tiers=(Tier(name="leaf", nodes_per_switch=2, oversubscription=4.0),))
LAYOUT = Layout(
    tensor_parallel_degree=8,
    pipeline_parallel_degree=2,
    data_parallel_shard_degree=4,
    shard_level=ShardLevel.OPTIMIZER,
    sequence_parallel=True,
)


def job(network: Network | None = THIN) -> Job:
    return replace(big_job(), cluster=h100_cluster(num_nodes=8, network=network))


def by_axis(layout: Layout, of: Job) -> dict[str, Route]:
    return {route.axis: route for route in routes(layout, of)}


def test_without_a_network_groups_say_themselves_what_joins_them() -> None:
    assert routes(LAYOUT, job(None)) == ()


def test_the_link_that_is_busy_longest_limits_each_axis() -> None:
    found, cluster = by_axis(LAYOUT, job()), job().cluster
    # shards lie on four nodes in a row, two below each leaf: half of their bytes go up, at a quarter of the rate
    # stages lie four nodes apart: whatever they send goes up
    assert {axis: route.limiting_link for axis, route in found.items()} == {
        "tensor": cluster.intra_node_link.name,
        "pipeline": "leaf uplinks",
        "shard": "leaf uplinks",
    }
    port = cluster.inter_node_link.efficiency * cluster.inter_node_link.bandwidth_bytes_per_s
    assert found["pipeline"].bytes_per_s == pytest.approx(port / 4)
    assert found["shard"].bytes_per_s == pytest.approx(port / 2)


def test_links_that_do_not_limit_are_busy_for_a_share_of_the_time() -> None:
    uses = {use.link: use.busy_share for use in by_axis(LAYOUT, job())["shard"].links}
    assert uses["leaf uplinks"] == 1
    assert uses[job().cluster.inter_node_link.name] == pytest.approx(0.5)


def test_explanations_and_groups_of_ranks_name_the_limiting_link() -> None:
    assert "limited by leaf uplinks" in limit_of("pipeline_communication_s", LAYOUT, job())
    assert "limited by" not in limit_of("tensor_communication_s", LAYOUT, job())
    links = {group.axis: group.link for group in rank_groups(LAYOUT, job(), 0).groups}
    assert (links["data"], links["pipeline"]) == ("leaf uplinks", "leaf uplinks")


def test_ranks_that_are_dealt_in_turn_lie_on_the_nodes_that_they_are_dealt_to() -> None:
    dealt = Layout(pipeline_parallel_degree=8, data_parallel_replicate_degree=8, rank_placement=RankPlacement.CYCLIC)
    groups = rank_groups(dealt, job(None), 11)
    assert groups.node == groups.node_of(11) == 3
    assert groups.ranks_on(3) == (3, 11, 19, 27, 35, 43, 51, 59)
    assert {group.axis: group.num_nodes for group in groups.groups} == {"pipeline": 1, "data": 8}
    assert by_axis(dealt, job(None))["pipeline"].limiting_link == job().cluster.intra_node_link.name
