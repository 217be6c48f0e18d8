"""Timelines, slow links and groups of ranks say the same seconds in a terminal, on a page and in Markdown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.report.lanes import Lanes, Window
from autotuner.report.rank_groups import ranks_section
from autotuner.report.report import Report, Section
from autotuner.report.timelines import link_timelines_section, timeline_section
from autotuner.search.explain.communication import rank_groups
from autotuner.search.explain.links import link_timelines
from autotuner.search.explain.timeline import predicted_timeline
from tests.builders import cpu_cluster, cpu_layout, present, step_timeline, tiny_job
from tests.unit.report.surfaces import surfaces

PIPELINE = cpu_layout(pipeline_parallel_degree=2)


def shown(section: Section) -> tuple[str, str, str]:
    return surfaces(Report(headline="one section", sections=(section,)))


def lanes_of(section: Section) -> Lanes:
    return next(block for block in section.blocks if isinstance(block, Lanes))


def test_a_recorded_step_stands_above_the_predicted_one_unless_one_is_asked_for_alone() -> None:
    expected = predicted_timeline(PIPELINE, tiny_job())
    both = present(timeline_section(expected, step_timeline()))
    assert lanes_of(both).is_measured
    assert lanes_of(both).thin is expected.timeline
    alone = present(timeline_section(expected, step_timeline(), shown="predicted"))
    assert not lanes_of(alone).is_measured
    assert timeline_section(None, None) is None
    for text in shown(both):
        assert "Thick blocks were measured" in text
        assert "rank 0, pipeline rank 0, measured" in text
        assert "rank 0, pipeline rank 0, predicted" in text


def test_slow_links_show_what_they_add_and_healthy_ones_show_nothing() -> None:
    job = tiny_job(cluster=cpu_cluster(4))
    layout: Layout = cpu_layout(pipeline_parallel_degree=4)
    assert link_timelines_section(link_timelines(layout, job)) is None
    late = LinkHealth(ends=(2, 3), delay_s=0.06)
    slow = replace(job, cluster=replace(job.cluster, link_health=(late,)))
    for text in shown(present(link_timelines_section(link_timelines(layout, slow)))):
        assert "link 2_3 60 ms late" in text
        assert "what they add" in text
        assert "+" in text


def test_groups_of_a_rank_show_what_each_sends_and_every_rank_leads_to_its_own() -> None:
    layout = cpu_layout(tensor_parallel_degree=2)
    section = ranks_section(rank_groups(layout, tiny_job(), 1), lambda rank: f"?rank={rank}#ranks")
    for text in shown(section):
        assert "The groups of rank 1" in text
        assert "tensor" in text
        assert "Predicted: bytes that pass a rank's link in a step" in text


def test_a_window_is_two_shares_of_the_step() -> None:
    assert str(Window.parse("0.25-0.5").closer) == "0.3125-0.4375"
    assert Window.parse(None).is_whole
    for wrong in ("0.5-0.25", "a-b", "0-2"):
        with pytest.raises(InvalidInput, match="two shares of the axis"):
            Window.parse(wrong)
