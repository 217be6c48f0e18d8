from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import P2PTransport
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.workload import Workload
from autotuner.search.explain.link_timelines import link_timelines, messages_over
from tests.builders import cpu_cluster, tiny_job
from tests.slow_links import NUM_MICRO_BATCHES, slow_hop, slow_links, stepped

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


def test_where_every_link_is_healthy_there_is_nothing_to_lay_beside_the_step() -> None:
    found = link_timelines(PIPELINE, job_with(LinkHealth(ends=(0, 1))))
    assert found.slow is None
    assert (found.links, found.messages, found.cost) == ((), (), "")
    assert found.healthy.timeline.ranks


def test_a_slow_link_is_the_hop_between_the_stages_on_both_of_its_ends() -> None:
    found = link_timelines(PIPELINE, job_with(late(), late((0, 3))))
    assert [hop.ranks for hop in found.hops] == [(2, 3)]
    assert found.hops[0].delay_s == 0.06
    assert found.hops[0].says == "link 2_3 60 ms late"
    assert len(found.messages) == 2 * NUM_MICRO_BATCHES


def test_a_rotated_pipeline_has_its_hop_elsewhere() -> None:
    found = link_timelines(replace(PIPELINE, stage_rotation=1), job_with(late()))
    assert [hop.ranks for hop in found.hops] == [(1, 2)]


def test_a_step_of_few_passes_is_told_whole_in_both() -> None:
    found = link_timelines(PIPELINE, job_with(late()))
    assert found.slow is not None
    for side in (found.healthy.timeline, found.slow.timeline):
        assert side.folds == ()
        assert [sum("F" in action for action in lane.actions) for lane in side.ranks] == [NUM_MICRO_BATCHES] * 4


def test_a_link_that_no_stages_send_over_is_no_hop() -> None:
    replicas = Layout(data_parallel_replicate_degree=4)
    found = link_timelines(replicas, job_with(late()))
    assert (found.hops, found.messages) == ((), ())
    assert "No neighbouring stages send over it." in found.cost


def test_a_message_leaves_as_its_pass_ends_and_is_late_where_its_receiver_has_nothing_else_to_do() -> None:
    messages = messages_over((slow_hop(0.06),), stepped(0.06), blocks_sends=False)
    first = messages[0]
    assert (first.action, first.from_rank, first.to_rank, first.is_late) == ("2F0", 2, 3, True)
    assert first.sent_s == pytest.approx(0.06)
    assert first.received_s == pytest.approx(0.12)
    assert {(one.from_rank, one.to_rank) for one in messages} == {(2, 3), (3, 2)}
    assert all(one.received_s >= one.sent_s + 0.06 - 1e-9 for one in messages)
    assert not all(one.is_late for one in messages)


def test_healthy_links_make_nobody_wait_but_for_the_first_micro_batches() -> None:
    messages = messages_over((slow_hop(0.0),), stepped(0.0), blocks_sends=False)
    assert not any(one.is_late for one in messages[4:])


def test_a_rank_that_its_own_send_holds_up_does_not_wait_for_what_is_there() -> None:
    blocked = messages_over((slow_hop(0.06),), stepped(0.06, blocks_sends=True), blocks_sends=True)
    assert sum(one.is_late for one in blocked) < 6


def test_the_cost_is_said_in_words_with_what_the_delay_is_multiplied_by() -> None:
    said = slow_links(0.06).cost
    assert "instead of 780 ms, 85 % more. That is 11 times the delay" in said
    assert "13 of 24 messages over it are waited for." in said


def test_sends_that_stand_in_the_way_are_said_of_the_stage_that_waits_longest() -> None:
    assert "stage 3 waits 720 ms for its own." in slow_links(0.06, blocks_sends=True).cost
    assert "stand in the way" not in slow_links(0.06).cost


def test_what_costs_nothing_is_said_to_take_as_long() -> None:
    assert "as long as with healthy links" in slow_links(0.0).cost


def test_delegated_sends_hold_nobody_up() -> None:
    delegated = replace(PIPELINE, p2p_transport=P2PTransport.DELEGATED)
    assert "stand in the way" not in link_timelines(delegated, job_with(late())).cost
