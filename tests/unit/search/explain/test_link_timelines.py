from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import AttentionKernel, GradientSync, Precision, RankOrder, RankPlacement, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import Link, LinkHealth
from autotuner.core.network import Network, Tier
from autotuner.core.rules.legality import reasons
from autotuner.core.space import SearchSpace
from autotuner.core.workload import Workload
from autotuner.search.explain.communication import Route, crossed_links, nccl_ways, rank_groups, routes
from autotuner.search.explain.explanation import explain
from autotuner.search.explain.link_timelines import link_timelines, messages_over
from autotuner.search.explain.step_parts import limit_of
from autotuner.search.predicted_ranking import best_predicted
from autotuner.search.space.moves import arrange, nearest_legal, with_choice
from tests.builders import big_job, cpu_cluster, h100_cluster, present, tiny_job, tiny_model
from tests.slow_links import NUM_MICRO_BATCHES, slow_hop, stepped

# ---------------------------------------------------------------- crossed links
LATE = LinkHealth(ends=(2, 3), delay_s=0.03, source="measured 2026-11-22")


def job(*health: LinkHealth) -> Job:
    return replace(big_job(), cluster=replace(big_job().cluster, link_health=health))


def test_a_slow_link_is_reported_with_the_groups_that_reach_over_it_if_any() -> None:
    (found,) = crossed_links(Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8), job(LATE))
    assert found.health == LATE
    assert found.axes == ("pipeline",)
    layout = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8)
    (found,) = crossed_links(layout, job(LinkHealth(ends=(0, 5), is_dead=True)))
    assert found.axes == ()
    assert (
        crossed_links(Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8), job(LinkHealth(ends=(0, 1)))) == ()
    )
    layout = Layout.parse("tp8 pp8 1f1b mb1 sp")
    assert [link.axes for link in explain(layout, job(LATE)).links] == [("pipeline",)]
    assert explain(layout, big_job()).links == ()


def test_replicas_shards_and_stages_pass_different_links_by_the_order_of_ranks() -> None:
    layout = Layout(data_parallel_shard_degree=64, shard_level=ShardLevel.PARAMETERS)
    (found,) = crossed_links(layout, job(LATE))
    assert found.axes == ("data",)
    layout = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=4, data_parallel_replicate_degree=2)
    assert [one.axes for one in crossed_links(layout, job(LATE))] == [("data",)]
    turned = replace(layout, rank_order=RankOrder.REPLICAS_OUTERMOST)
    assert [one.axes for one in crossed_links(turned, job(LATE))] == [("pipeline",)]


# ---------------------------------------------------------------- link timelines
PIPELINE = Layout(pipeline_parallel_degree=4)


def job_with(*links: LinkHealth) -> Job:
    job = tiny_job(num_cores=4)
    return replace(
        job,
        cluster=replace(cpu_cluster(4), link_health=links),
        workload=Workload(global_batch_size=NUM_MICRO_BATCHES, seq_len=64),
    )


def late(ends: tuple[int, int] = (2, 3), delay_s: float = 0.06) -> LinkHealth:
    return LinkHealth(ends=ends, delay_s=delay_s)


def test_a_slow_link_is_the_hop_between_its_stages_in_steps_that_are_told_whole() -> None:
    found = link_timelines(PIPELINE, job_with(late(), late((0, 3))))
    assert [hop.ranks for hop in found.hops] == [(2, 3)]
    assert found.hops[0].delay_s == 0.06
    assert len(found.messages) == 2 * NUM_MICRO_BATCHES
    found = link_timelines(replace(PIPELINE, stage_rotation=1), job_with(late()))
    assert [hop.ranks for hop in found.hops] == [(1, 2)]
    found = link_timelines(PIPELINE, job_with(LinkHealth(ends=(0, 1))))
    assert found.slow is None
    assert (found.links, found.messages, found.held_up) == ((), (), None)
    assert found.healthy.timeline.ranks
    replicas = Layout(data_parallel_replicate_degree=4)
    found = link_timelines(replicas, job_with(late()))
    assert (found.hops, found.messages) == ((), ())
    found = link_timelines(PIPELINE, job_with(late()))
    for side in (found.healthy.timeline, present(found.slow).timeline):
        assert side.folds == ()
        assert [sum("F" in action for action in lane.actions) for lane in side.ranks] == [NUM_MICRO_BATCHES] * 4


def test_a_message_is_late_where_its_receiver_has_nothing_else_to_do() -> None:
    messages = messages_over((slow_hop(0.06),), stepped(0.06), blocks_sends=False)
    first = messages[0]
    assert (first.action, first.from_rank, first.to_rank, first.is_late) == ("2F0", 2, 3, True)
    assert first.sent_s == pytest.approx(0.06)
    assert first.received_s == pytest.approx(0.12)
    assert {(one.from_rank, one.to_rank) for one in messages} == {(2, 3), (3, 2)}
    assert all(one.received_s >= one.sent_s + 0.06 - 1e-9 for one in messages)
    assert not all(one.is_late for one in messages)
    messages = messages_over((slow_hop(0.0),), stepped(0.0), blocks_sends=False)
    assert not any(one.is_late for one in messages[4:])
    blocked = messages_over((slow_hop(0.06),), stepped(0.06, blocks_sends=True), blocks_sends=True)
    assert sum(one.is_late for one in blocked) < 6


# ---------------------------------------------------------------- exchange by cluster
SPACE = SearchSpace(
    gradient_sync=(GradientSync.FULL, GradientSync.DEMO, GradientSync.RANDOM),
    precision=(Precision.FP32,),
    attention_kernel=(AttentionKernel.MATH,),
)
"""DiLoCo, which exchanges once in 16 steps, is faster than a full exchange on any network: its loss decides."""


def two_nodes(bits_per_s: float) -> Cluster:
    """Two nodes of two cores, whose ports these share."""
    port = Link(name="ethernet", bandwidth_bytes_per_s=bits_per_s / 8 / 2, latency_s=5e-5)
    return replace(cpu_cluster(2), num_nodes=2, inter_node_link=port)


def recommended(bits_per_s: float) -> GradientSync:
    """What the best predicted layout of the paper's small decoder exchanges, with 0.8 million weights."""
    model = replace(tiny_model(), num_layers=4, hidden_size=128, ffn_size=512, num_heads=4, num_kv_heads=4, head_dim=32)
    job = Job(model=model, cluster=two_nodes(bits_per_s), workload=Workload(seq_len=64, global_batch_size=32))
    return best_predicted(job, SPACE, limit=1).rows[0].layout.gradient_sync


@pytest.mark.parametrize(("bits_per_s", "lossy"), [(10e9, False), (10e6, True)], ids=["10 Gbit/s", "10 Mbit/s"])
def test_a_fast_network_is_told_to_sum_all_gradients_and_a_slow_one_to_send_fewer(
    bits_per_s: float, lossy: bool
) -> None:
    assert (recommended(bits_per_s) != GradientSync.FULL) == lossy


# ---------------------------------------------------------------- routes
THIN = Network(name="thin", tiers=(Tier(name="leaf", nodes_per_switch=2, oversubscription=4.0),))
LAYOUT = Layout.parse("zero4 tp8 pp2 1f1b mb1 sp")


def routes_job(network: Network | None = THIN) -> Job:
    return replace(big_job(), cluster=h100_cluster(num_nodes=8, network=network))


def by_axis(layout: Layout, of: Job) -> dict[str, Route]:
    return {route.axis: route for route in routes(layout, of)}


def test_the_busiest_link_limits_each_axis_and_the_others_are_busy_for_a_share() -> None:
    found, cluster = by_axis(LAYOUT, routes_job()), routes_job().cluster
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
    uses = {use.link: use.busy_share for use in by_axis(LAYOUT, routes_job())["shard"].links}
    assert uses["leaf uplinks"] == 1
    assert uses[routes_job().cluster.inter_node_link.name] == pytest.approx(0.5)
    assert routes(LAYOUT, routes_job(None)) == ()


def test_groups_and_explanations_name_limiting_links_wherever_ranks_are_placed() -> None:
    assert limit_of("pipeline_communication_s", LAYOUT, routes_job()).limiting_link == "leaf uplinks"
    inside = limit_of("tensor_communication_s", LAYOUT, routes_job())
    assert inside.link == inside.limiting_link
    links = {group.axis: group.link for group in rank_groups(LAYOUT, routes_job(), 0).groups}
    assert (links["data"], links["pipeline"]) == ("leaf uplinks", "leaf uplinks")
    dealt = Layout(pipeline_parallel_degree=8, data_parallel_replicate_degree=8, rank_placement=RankPlacement.CYCLIC)
    groups = rank_groups(dealt, routes_job(None), 11)
    assert groups.node == groups.node_of(11) == 3
    assert groups.ranks_on(3) == (3, 11, 19, 27, 35, 43, 51, 59)
    assert {group.axis: group.num_nodes for group in groups.groups} == {"pipeline": 1, "data": 8}
    assert by_axis(dealt, routes_job(None))["pipeline"].limiting_link == routes_job().cluster.intra_node_link.name


# ---------------------------------------------------------------- arranging
JOB = big_job()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("tp8 pp4 1f1b mb1 flash bf16", "dp2 tp8 pp4 1f1b mb1 flash bf16"),
        ("tp8 fsdp2 mb1 flash bf16", "fsdp8 tp8 mb1 flash bf16"),
        ("tp8 dp2 fsdp2 mb1 flash bf16", "dp4 fsdp2 tp8 mb1 flash bf16"),
        ("tp4 dp2 fsdp32 mb1 flash bf16", "fsdp16 tp4 mb1 flash bf16"),  # groups of 32 do not divide 16 ranks
        ("tp8 pp8 fsdp4 1f1b mb1 flash bf16", "tp8 pp8 1f1b mb1 flash bf16"),
        ("tp8 pp4 cp2 fsdp4 1f1b mb1 flash bf16", "fsdp1 tp8 cp2 pp4 1f1b mb1 flash bf16"),
    ],
)
def test_data_parallel_ranks_are_those_that_the_other_degrees_leave(given: str, expected: str) -> None:
    assert str(arrange(Layout.parse(given), JOB)) == str(Layout.parse(expected))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("tp1 sp dp64 mb1 flash bf16", "dp64 mb1 flash bf16"),
        ("pp1 v2 interleaved_1f1b dp64 mb1 flash bf16", "dp64 mb1 flash bf16"),
        ("pp4 interleaved_1f1b dp16 mb1 flash bf16", "dp16 pp4 v2 interleaved_1f1b mb1 flash bf16"),
        ("pp4 v5 zbv dp16 mb1 flash bf16", "dp16 pp4 v2 zbv mb1 flash bf16"),
        ("pp4 v5 1f1b dp16 mb1 flash bf16", "dp16 pp4 1f1b mb1 flash bf16"),
        ("dp64 mb1 reshard every2 rowwise flash bf16", "dp64 mb1 flash bf16"),
    ],
)
def test_options_without_effect_are_removed(given: str, expected: str) -> None:
    assert str(arrange(Layout.parse(f"{given}".replace(" rowwise", "")), JOB)) == str(Layout.parse(expected))


def test_an_arranged_layout_stays_grouped_as_it_is_or_breaks_the_rule_of_ranks() -> None:
    layout = arrange(Layout.parse("dp2 fsdp4 tp8 mb1 flash bf16"), JOB)
    assert arrange(layout, JOB) == layout
    layout = arrange(Layout.parse("fsdp8 tp8 mb1 flash bf16"), JOB)
    grouped = arrange(with_choice(layout, "data_parallel_shard_degree", 2), JOB)
    assert (grouped.data_parallel_replicate_degree, grouped.data_parallel_shard_degree) == (4, 2)
    assert grouped.shard_level is ShardLevel.PARAMETERS
    layout = arrange(Layout.parse("tp8 pp3 1f1b mb1 flash bf16"), JOB)
    assert "world-size" in [reason.rule for reason in reasons(layout, JOB)]


@pytest.mark.parametrize("given", ["tp16 pp4 1f1b mb1 flash bf16", "tp8 pp3 1f1b mb5 flash bf16", "mb1 flash_3 fp32"])
def test_a_layout_near_one_that_cannot_run_can(given: str) -> None:
    layout = arrange(Layout.parse(given), JOB)
    assert reasons(layout, JOB)
    near = present(nearest_legal(layout, JOB))
    assert reasons(near, JOB) == ()


def test_the_nearest_legal_layout_changes_only_what_is_wrong() -> None:
    layout = arrange(Layout.parse("dp8 tp8 mb1 flash bf16"), JOB)
    assert nearest_legal(layout, JOB) == layout
    near = nearest_legal(arrange(Layout.parse("tp16 pp2 1f1b mb2 recompute-full flash bf16"), JOB), JOB)
    assert str(near) == "dp4 tp8 pp2 1f1b mb2 recompute-full flash bf16"


# ---------------------------------------------------------------- nccl ways
A100_JOB = replace(big_job(8), cluster=load_cluster("a100:64"))


def test_each_axis_of_several_ranks_is_described_by_size() -> None:
    layout = Layout.parse("dp2 fsdp4 tp8 mb1")
    found = {ways.axis: ways for ways in nccl_ways(layout, A100_JOB)}
    assert [(name, ways.num_ranks, ways.num_nodes) for name, ways in found.items()] == [
        ("tensor", 8, 1),
        ("shard", 4, 4),
        ("replicate", 2, 2),
    ]
    first, second, *_ = found["tensor"].bands
    assert (first.algorithm, first.protocol, second.from_bytes) == ("ring", "LL", 2**22)
    assert found["shard"].collective == "all_gather"


def test_on_cores_there_is_no_nccl() -> None:
    assert nccl_ways(Layout(data_parallel_replicate_degree=2), tiny_job()) == ()
