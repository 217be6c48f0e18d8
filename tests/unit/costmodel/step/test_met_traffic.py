"""What data-parallel collectives and the traffic that they meet cost each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.network import Network, Tier
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.step.met_traffic import MetTraffic, PassTraffic
from tests.builders import big_job, h100_cluster

CLOS = Network(name="clos", tiers=(Tier(name="leaf", nodes_per_switch=4),))


def met(sent_s: float) -> MetTraffic:
    """Shards of 8 nodes that meet sends between stages, both through the same ports."""
    layout = Layout(tensor_parallel_degree=8, data_parallel_shard_degree=4, pipeline_parallel_degree=2)
    x = LayoutColumns.from_layouts([layout])
    nothing = np.zeros(1)
    traffic = PassTraffic(tensor_s=nothing, context_s=nothing, expert_s=nothing, sent_s=np.array([sent_s]))
    return MetTraffic.of(x, replace(big_job(), cluster=h100_cluster(network=CLOS)), traffic)


def added_s(wire_s: float, window_s: float, sent_s: float) -> float:
    return float(met(sent_s).added_s(np.array([wire_s]), np.array([window_s]))[0])


def test_sends_beside_collectives_that_last_all_pass_take_twice_as_long() -> None:
    # collectives of 12 s get 10 s of links under computation, and 2 s worth in the 4 s that sends of 2 s then take
    assert added_s(12, 10, 2) == pytest.approx(0)  # 14 s, as many as when they hide under computation alone
    assert added_s(10, 10, 2) == pytest.approx(2 * 10 / 12)


def test_short_collectives_meet_as_many_sends_as_their_share_of_the_pass() -> None:
    assert added_s(1.2, 10, 2) == pytest.approx(0.2)


def test_collectives_much_longer_than_the_pass_are_bound_by_the_link_as_before() -> None:
    assert added_s(100, 10, 2) == pytest.approx(0)


def test_where_nothing_hides_collectives_they_meet_nothing() -> None:
    assert added_s(5, 0, 2) == 0


def job(network: Network | None) -> Job:
    return Job(
        model=load_model("mixtral-8x7b"),
        cluster=replace(load_cluster("h100:128"), num_nodes=32, accelerators_per_node=4, network=network),
        workload=Workload(seq_len=4096, global_batch_size=512),
    )


def test_experts_on_several_nodes_make_sharded_parameters_take_longer_and_experts_inside_a_node_do_not() -> None:
    wide = Layout(
        data_parallel_shard_degree=64,
        tensor_parallel_degree=2,
        expert_parallel_degree=8,
        micro_batch_size=8,
        shard_level=ShardLevel.PARAMETERS,
        sequence_parallel=True,
    )
    narrow = replace(wide, expert_parallel_degree=4)
    longer = {}
    for layout in (wide, narrow):
        seconds = [predict_one(layout, job(network)).step_time.data_communication_s for network in (None, CLOS)]
        longer[layout.expert_parallel_degree] = seconds[1] - seconds[0]
    assert longer[4] == pytest.approx(0, abs=1e-12)  # 4 expert ranks fill a node
    assert longer[8] > 0.01  # seconds, of a step of several
