"""Which groups of a layout reach over links that are not healthy."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import RankOrder, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.search.explain.crossed_links import crossed_links
from autotuner.search.explain.explanation import explain
from tests.builders import big_job

LATE = LinkHealth(ends=(2, 3), delay_s=0.03, source="measured 2026-11-22")


def job(*health: LinkHealth) -> Job:
    return replace(big_job(), cluster=replace(big_job().cluster, link_health=health))


def test_a_pipeline_whose_stages_are_nodes_passes_a_late_link_and_nothing_else_does() -> None:
    (found,) = crossed_links(Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8), job(LATE))
    assert found.health == LATE
    assert found.axes == ("pipeline",)
    assert found.sentence == "link 2_3 30 ms late: pipeline groups reach over it"


def test_parameters_that_are_shared_by_all_ranks_are_gathered_over_every_link() -> None:
    layout = Layout(data_parallel_shard_degree=64, shard_level=ShardLevel.PARAMETERS)
    (found,) = crossed_links(layout, job(LATE))
    assert found.axes == ("data",)


def test_replicas_and_stages_pass_different_links_by_the_order_of_ranks() -> None:
    layout = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=4, data_parallel_replicate_degree=2)
    assert [one.axes for one in crossed_links(layout, job(LATE))] == [("data",)]
    turned = replace(layout, rank_order=RankOrder.REPLICAS_OUTERMOST)
    assert [one.axes for one in crossed_links(turned, job(LATE))] == [("pipeline",)]


def test_a_link_that_no_group_reaches_over_is_said_to_be_left_alone() -> None:
    layout = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8)
    (found,) = crossed_links(layout, job(LinkHealth(ends=(0, 5), is_dead=True)))
    assert found.axes == ()
    assert found.sentence == "link 0_5 dead: no group of ranks reaches over it"


def test_healthy_links_are_not_told() -> None:
    assert (
        crossed_links(Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8), job(LinkHealth(ends=(0, 1)))) == ()
    )


def test_an_explanation_tells_which_groups_pass_which_slow_link() -> None:
    layout = Layout(
        tensor_parallel_degree=8,
        pipeline_parallel_degree=8,
        sequence_parallel=True,
    )
    assert [link.axes for link in explain(layout, job(LATE)).links] == [("pipeline",)]
    assert explain(layout, big_job()).links == ()
