"""What each layer of communication gives, by prediction and among trials."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from autotuner.core.choices import CollectiveHierarchy, Recompute
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS
from autotuner.core.link import Link
from autotuner.core.network import Network, Tier
from autotuner.core.objective import Objective
from autotuner.core.option import CommunicationLayer
from autotuner.core.rules.legality import reasons
from autotuner.core.space import default_space
from autotuner.core.workload import Workload
from autotuner.search.explain.layers import LayerReport, layer_report, measured_layers, options_of_layer
from tests.builders import big_job, cpu_cluster, cpu_layout, tiny_job, tiny_model
from tests.unit.search.results.trials import ran

THIN = Network(
    name="thin",
    tiers=(Tier(name="leaf", nodes_per_switch=2, oversubscription=4.0), Tier(name="spine", nodes_per_switch=8)),
    adapts_routes=False,
)


def two_slow_nodes() -> Cluster:
    """Two nodes of two cores each, which share a port of 200 Mbit/s."""
    inside = Link(name="memory", bandwidth_bytes_per_s=2e9, latency_s=5e-5, efficiency=1.0)
    port = Link(name="port", bandwidth_bytes_per_s=12.5e6, latency_s=1e-4, efficiency=1.0)
    return cpu_cluster(2, num_nodes=2, intra_node_link=inside, inter_node_link=port)


def replicas_alone() -> Job:
    """A model of one layer and one head, which nothing but its batch splits."""
    model = tiny_model(num_layers=1, num_heads=1, num_kv_heads=1, hidden_size=256, ffn_size=1024)
    return Job(model=model, cluster=two_slow_nodes(), workload=Workload(seq_len=64, global_batch_size=8))


def thin_job() -> Job:
    job = big_job(4)
    return replace(job, cluster=replace(job.cluster, network=THIN))


@cache
def report(job: Job) -> LayerReport:
    return layer_report(job)


def test_every_option_lies_in_one_of_five_layers() -> None:
    found = [name for layer in CommunicationLayer for name in options_of_layer(layer)]
    assert sorted(found) == sorted(OPTIONS)
    assert all(options_of_layer(layer) for layer in CommunicationLayer)


@pytest.mark.parametrize(
    "job",
    [tiny_job(), replicas_alone(), thin_job()],
    ids=["cores", "two nodes", "a thin network"],
)
def test_more_layers_are_never_worse_and_each_best_leaves_later_ones_alone(job: Job) -> None:
    gains = report(job).gains
    assert [gain.layer for gain in gains] == list(CommunicationLayer)
    assert [gain.value for gain in gains] == sorted(gain.value for gain in gains)
    for gain in gains:
        assert not reasons(gain.layout, job)
        later = [name for name, one in OPTIONS.items() if one.layer > gain.layer]
        assert all(getattr(gain.layout, name) == OPTIONS[name].default for name in later)


def test_between_slow_nodes_collectives_give_the_two_levels() -> None:
    by_layer = {gain.layer: gain for gain in report(replicas_alone()).gains}
    found = by_layer[CommunicationLayer.COLLECTIVES]
    assert found.layout.collective_hierarchy == CollectiveHierarchy.TWO_LEVEL
    assert found.gain > 0  # little: shards inside nodes and replicas across them send as much
    assert "hierarchy of collectives flat → two level" in found.sentence
    assert by_layer[CommunicationLayer.FLOWS].sentence == "flow scheduling: nothing found is better"


def test_hashed_routes_of_a_thin_network_are_evened_out_by_queue_pairs() -> None:
    job = big_job(8)
    by_layer = {
        gain.layer: gain for gain in layer_report(replace(job, cluster=replace(job.cluster, network=THIN))).gains
    }
    assert by_layer[CommunicationLayer.FLOWS].layout.queue_pairs > 1


def test_a_space_that_holds_an_option_at_one_value_has_it_in_every_layer() -> None:
    job = replicas_alone()
    space = default_space(job).with_axes(data_parallel_shard_degree=(1,), gradient_bucket_bytes=(2**25,))
    gains = layer_report(job, space).gains
    assert {gain.layout.gradient_bucket_bytes for gain in gains} == {2**25}
    # a flat ring leaves each node with 1.5 times the bytes, two levels with as many, and a step is little else
    assert gains[-1].value / gains[0].value == pytest.approx(1.5, rel=0.1)


def test_a_job_that_fits_nowhere_has_no_layers() -> None:
    job = big_job(1)
    small = replace(job.cluster, accelerator=replace(job.cluster.accelerator, memory_bytes=10**9))
    with pytest.raises(InvalidInput, match="predicted to fit in memory"):
        layer_report(replace(job, cluster=small))


def test_measured_layers_are_the_best_trials_that_leave_later_options_alone() -> None:
    plain = cpu_layout(data_parallel_replicate_degree=4)
    two_level = replace(plain, collective_hierarchy=CollectiveHierarchy.TWO_LEVEL)
    trials = [
        ran(0, plain, 2.0),
        ran(1, replace(plain, recompute=Recompute.FULL), 2.5),
        ran(2, two_level, 1.6),
    ]
    report = measured_layers(Objective(), trials)
    assert report is not None
    gains = {gain.layer: gain for gain in report.gains}
    assert gains[CommunicationLayer.STRATEGY].num_layouts == 2
    assert gains[CommunicationLayer.TASKS].gain == 0.0
    assert gains[CommunicationLayer.COLLECTIVES].layout == two_level
    assert gains[CommunicationLayer.COLLECTIVES].gain == pytest.approx(0.25)
    assert report.total_gain == pytest.approx(0.25)


def test_an_option_that_no_trial_varies_was_not_searched() -> None:
    one_bucket = cpu_layout(data_parallel_replicate_degree=4, gradient_bucket_bytes=2**25)
    two_level = replace(one_bucket, collective_hierarchy=CollectiveHierarchy.TWO_LEVEL)
    found = measured_layers(Objective(), [ran(0, one_bucket, 2.0), ran(1, two_level, 1.0)])
    assert found is not None
    assert [gain.layer for gain in found.gains] == list(CommunicationLayer)
    assert found.total_gain == pytest.approx(1.0)


def test_no_trial_no_measured_layers() -> None:
    assert measured_layers(Objective(), []) is None
