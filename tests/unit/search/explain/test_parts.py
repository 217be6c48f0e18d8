from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from autotuner.core.choices import (
    CollectiveHierarchy,
    ContextExchange,
    P2PTransport,
    PipelineSchedule,
    Recompute,
    ShardLevel,
)
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.field_change import FieldChange
from autotuner.core.job import BF16_ON_CORES, Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import Link, LinkHealth
from autotuner.core.measurement import Breakdown, Measurement, PhaseTimes
from autotuner.core.network import Network, Tier
from autotuner.core.objective import Objective
from autotuner.core.option import CommunicationLayer
from autotuner.core.prediction import Memory, StepTime
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.rules.legality import reasons
from autotuner.core.space import default_space
from autotuner.core.stack import Stack
from autotuner.core.trial import Trial, TrialState
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.report.parts import PART_WORDS, limit_in_words, loss_in_words, part_limit, part_name, source_in_words
from autotuner.search.explain.explanation import stage_peaks, trial_parts
from autotuner.search.explain.layers import LayerReport, layer_report, measured_layers, options_of_layer
from autotuner.search.explain.step_parts import StepPart, StepParts, limit_of, measured_fields, step_parts
from autotuner.search.space.legal import legal_layouts
from autotuner.search.space.moves import arrange
from tests.builders import (
    big_job,
    breakdown,
    cpu_cluster,
    cpu_layout,
    measurement,
    prediction,
    present,
    proxy_trial,
    sweep_request,
    tiny_job,
    tiny_model,
    trial,
)
from tests.unit.search.results.trials import ran

# ---------------------------------------------------------------- step parts
GRID = Layout.parse("dp2 tp4 cp2 pp4 1f1b mb1 sp recompute-selective")
MEASURED = breakdown(
    forward_s=40.0,
    backward_s=90.0,
    all_reduce_s=2.0,
    all_gather_s=6.0,
    reduce_scatter_s=7.0,
    all_to_all_s=0.5,
    send_receive_s=0.25,
    pipeline_idle_s=1.5,
    optimizer_s=0.125,
    other_s=0.625,
)
PHASES = PhaseTimes(forward_backward_s=3.0, gradient_sync_s=0.5, optimizer_s=0.25)


def parts_of(layout: Layout, measured: Breakdown | PhaseTimes | None = None) -> StepParts:
    job = big_job()
    return step_parts(layout, job, predict_one(layout, job).step_time, measured)


def named(parts: StepParts) -> dict[str, StepPart]:
    return {part_name(part): part for part in parts.parts}


def test_both_sides_sum_to_their_steps_whatever_the_layout() -> None:
    layouts = legal_layouts(big_job())
    for row in range(0, len(layouts), len(layouts) // 20):
        layout = layouts.row(row)
        step_time = predict_one(layout, big_job()).step_time
        for measured in (None, MEASURED, PHASES):
            found = step_parts(layout, big_job(), step_time, measured)
            predicted_s = sum(part.predicted_s or 0.0 for part in found.parts)
            assert predicted_s == pytest.approx(step_time.total_s)  # the same sum in another order
            if measured is not None:
                measured_s = sum(part.measured_s or 0.0 for part in found.parts)
                assert measured_s == pytest.approx(found.measured_s)  # the same sum in another order
                by_fields = measured_fields(layout, measured)
                assert sorted(name for names in by_fields for name in names) == sorted(f.name for f in fields(StepTime))
                step_s = sum(getattr(measured, f.name) for f in fields(measured) if f.name.endswith("_s"))
                assert sum(by_fields.values()) == pytest.approx(step_s)  # the same sum in another order


def test_predicted_passes_are_distinguished_by_recomputation_and_weights_and_set_beside_measured_ones() -> None:
    found = parts_of(GRID)
    assert list(named(found)) == [
        *("forward", "backward", "recomputation", "tensor collectives", "context collectives"),
        *("data collectives", "pipeline sends", "pipeline idle", "optimizer"),
    ]
    assert all(part.measured_s is None for part in found.parts)
    assert (found.measured_s, found.rank) == (None, None)
    beside = parts_of(GRID, MEASURED)
    alone, together = named(parts_of(GRID)), named(beside)
    predicted_s = (alone["backward"].predicted_s or 0) + (alone["recomputation"].predicted_s or 0)
    assert together["backward"].predicted_s == pytest.approx(predicted_s)  # other order
    assert "of it predicted for recompute selective" in part_limit(together["backward"], beside, GRID)
    assert "recomputation" not in together
    zbv = replace(GRID, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)
    assert named(parts_of(zbv))["weight gradients"].kind == "weight"
    assert "weight gradients" not in named(parts_of(zbv, MEASURED))


def test_groups_are_measured_apart_by_their_collectives_and_the_rest_is_anything_else() -> None:
    found = named(parts_of(GRID, MEASURED))
    assert found["tensor collectives"].measured_s == 13.0
    assert found["context collectives"].measured_s == 0.5
    assert found["data collectives"].measured_s == 2.0
    assert found["pipeline sends"].measured_s == 0.25
    assert found["pipeline idle"].measured_s == 1.5
    assert found["anything else"].predicted_s is None
    job = tiny_job(1)
    alone = step_parts(cpu_layout(), job, predict_one(cpu_layout(), job).step_time, MEASURED)
    assert named(alone)["anything else"].measured_s == 0.625 + 2 + 6 + 7 + 0.5 + 0.25 + 1.5


def test_groups_that_call_the_same_collectives_are_one_part_on_both_sides() -> None:
    sharded = replace(
        GRID, data_parallel_replicate_degree=1, data_parallel_shard_degree=2, shard_level=ShardLevel.OPTIMIZER
    )
    alone, together = named(parts_of(sharded)), named(parts_of(sharded, MEASURED))
    part = together["tensor and data collectives"]
    assert part.measured_s == 13.0
    assert part.predicted_s == pytest.approx(
        (alone["tensor collectives"].predicted_s or 0) + (alone["data collectives"].predicted_s or 0)
    )
    gathered = replace(sharded, context_exchange=ContextExchange.ALL_GATHER)
    assert "tensor, context and data collectives" in named(parts_of(gathered, MEASURED))


def test_phases_set_passes_with_all_that_interrupts_them_beside_gradients_and_optimizer() -> None:
    layout = Layout(data_parallel_replicate_degree=64)
    found = named(parts_of(layout, PHASES))
    assert {name: part.measured_s for name, part in found.items()} == {
        "forward and backward, with what interrupts them": 3.0,
        "data collectives": 0.5,
        "optimizer": 0.25,
    }
    assert parts_of(layout, PHASES).rank is None
    # a pipeline's last passes and gathered parameters are in both phases
    assert set(named(parts_of(GRID, PHASES))) == {"forward and backward, with what interrupts them", "optimizer"}


def test_a_step_that_loses_nothing_says_so() -> None:
    job, alone = tiny_job(1), breakdown(forward_s=1.0, backward_s=2.0)
    found = step_parts(cpu_layout(), job, predict_one(cpu_layout(), job).step_time, alone)
    assert loss_in_words(found) == "100 % of the step computes."


# ---------------------------------------------------------------- trial parts
PIPELINE = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, sequence_parallel=True)


def of_replicas(measured: Measurement | None, **layout: int) -> Trial:
    state = TrialState.COMPLETE if measured else TrialState.QUEUED
    return trial(cpu_layout(**{"data_parallel_replicate_degree": 2, **layout}), state=state, measurement=measured)


def test_peaks_and_overlaps_of_a_trial_stand_beside_what_was_predicted() -> None:
    peaks = tuple(1000 + rank for rank in range(64))
    found = stage_peaks(PIPELINE, big_job(), peaks)
    assert [(peak.stage, peak.rank, peak.measured_bytes) for peak in found[:2]] == [(0, 7, 1007), (1, 15, 1015)]
    assert found[7].predicted.logits_bytes > 0
    assert {peak.measured_bytes for peak in stage_peaks(PIPELINE, big_job(), (1000, 2000))} == {None}
    told = trial_parts(of_replicas(measurement(overlapped_share=0.875), gradient_bucket_bytes=2**14), sweep_request())
    assert told.measured_overlap == 0.875
    assert 0.5 < present(told.predicted_overlap) < 1.0


def test_a_trial_is_divided_by_its_profile_or_phases_or_by_the_prediction_of_what_ran() -> None:
    profiled = measurement(breakdown=breakdown(forward_s=0.1, backward_s=0.3))
    assert trial_parts(of_replicas(profiled), sweep_request()).step.measured_s == 0.4
    timed = trial_parts(of_replicas(measurement()), sweep_request())
    assert (timed.step.measured_s, timed.step.rank) == (0.5, None)
    assert "data collectives" in named(timed.predicted_step)  # which phases do not always tell apart
    untried = trial_parts(of_replicas(None), sweep_request())
    assert untried.step.measured_s is None
    assert untried.step.predicted_s == prediction().step_time.total_s
    request = sweep_request(job=tiny_job(8), trial_cluster=cpu_cluster(2))
    ran = proxy_trial(num_layers=2, measurement=measurement())
    small = replace(of_replicas(None, data_parallel_replicate_degree=8), proxy=ran)
    found = trial_parts(small, request)
    assert found.is_small
    assert len(found.stages) == small.ran.pipeline_parallel_degree
    assert found.step.predicted_s != prediction().step_time.total_s


# ---------------------------------------------------------------- memory sources
JOB = big_job()


def said(words: str, part: str) -> str:
    return source_in_words(part, arrange(Layout.parse(words), JOB), JOB)


def test_every_part_of_a_prediction_has_a_name_and_one_of_memory_a_source() -> None:
    sizes = [f.name for f in fields(Memory) if f.name.endswith("_bytes")]
    assert all(said("zero2 tp8 pp4 1f1b mb1 flash bf16", part) for part in sizes)
    parts = {f.name for cls in (StepTime, Memory) for f in fields(cls)} - {"worst_rank"}
    assert PART_WORDS.keys() == parts | {BF16_ON_CORES}


# ---------------------------------------------------------------- bottlenecks
LAYOUT = Layout.parse("zero2 tp8 pp4 1f1b mb1 recompute-full")


@pytest.mark.parametrize("part", [f.name for f in fields(StepTime)])
def test_every_part_of_a_step_has_a_limit(part: str) -> None:
    assert said_limit(part, LAYOUT, big_job())
    assert limit_of(part, LAYOUT, big_job()).part == part


def said_limit(part: str, layout: Layout, job: Job) -> str:
    return limit_in_words(limit_of(part, layout, job), layout)


def test_recomputation_and_exchanges_are_described_by_their_method() -> None:
    selective = replace(LAYOUT, recompute=Recompute.SELECTIVE)
    assert "all but matrix products runs again" in said_limit("recompute_s", selective, big_job())
    megatron = replace(big_job(), stack=Stack(selective_recompute=(RecomputePolicy.CORE_ATTN,)))
    assert "the attention cores run again" in said_limit("recompute_s", selective, megatron)
    assert "on one layer in 4" in said_limit("recompute_s", replace(LAYOUT, recompute_every=4), big_job())
    for way, word in zip(ContextExchange, ("sent around a ring", "gathered before", "heads exchanged"), strict=True):
        layout = replace(LAYOUT, context_parallel_degree=2, context_exchange=way)
        assert word in said_limit("context_communication_s", layout, big_job())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "a rank that sends over it waits, and schedule 1f1b does not adapt to it"),
        (
            {"p2p_transport": P2PTransport.DELEGATED, "pipeline_schedule": PipelineSchedule.ADAPTIVE},
            "delegates (helper processes) send the data, and no rank waits until it is sent, and the schedule runs "
            "more forward passes ahead",
        ),
    ],
)
def test_the_pipeline_names_a_slow_link_between_its_stages_and_its_remedy(changes: dict[str, Any], said: str) -> None:
    links = (LinkHealth(ends=(2, 3), delay_s=0.06), LinkHealth(ends=(0, 1)))
    job = replace(big_job(), cluster=replace(big_job().cluster, link_health=links))
    layout = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, **changes)
    assert said_limit("pipeline_communication_s", layout, job).endswith(f"; link 2_3 60 ms late: {said}")
    away = replace(layout, stage_rotation=3)  # of a ring of eight nodes, no stages talk over the link from 2 to 3
    assert limit_of("pipeline_communication_s", away, job).slow_links == ()


# ---------------------------------------------------------------- layers
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
    "job", [tiny_job(), replicas_alone(), thin_job()], ids=["cores", "two nodes", "a thin network"]
)
def test_more_layers_are_never_worse_and_each_best_leaves_later_ones_alone(job: Job) -> None:
    gains = report(job).gains
    assert [gain.layer for gain in gains] == list(CommunicationLayer)
    assert [gain.value for gain in gains] == sorted(gain.value for gain in gains)
    for gain in gains:
        assert not reasons(gain.layout, job)
        later = [name for name, one in OPTIONS.items() if one.layer > gain.layer]
        assert all(getattr(gain.layout, name) == OPTIONS[name].default for name in later)


def test_networks_give_what_their_collectives_or_hashed_routes_lack() -> None:
    by_layer = {gain.layer: gain for gain in report(replicas_alone()).gains}
    found = by_layer[CommunicationLayer.COLLECTIVES]
    assert found.layout.collective_hierarchy == CollectiveHierarchy.TWO_LEVEL
    assert found.gain > 0  # little: shards inside nodes and replicas across them send as much
    assert FieldChange(field="collective_hierarchy", before="flat", after="two_level") in found.changes
    assert by_layer[CommunicationLayer.FLOWS].changes == ()
    job = big_job(8)
    by_layer = {
        gain.layer: gain for gain in layer_report(replace(job, cluster=replace(job.cluster, network=THIN))).gains
    }
    assert by_layer[CommunicationLayer.FLOWS].layout.queue_pairs > 1


def test_layers_hold_what_a_space_names_and_a_job_that_fits_nowhere_has_none() -> None:
    job = replicas_alone()
    space = default_space(job).with_axes(data_parallel_shard_degree=(1,), gradient_bucket_bytes=(2**25,))
    gains = layer_report(job, space).gains
    assert {gain.layout.gradient_bucket_bytes for gain in gains} == {2**25}
    # a flat ring leaves each node with 1.5 times the bytes, two levels with as many, and a step is little else
    assert gains[-1].value / gains[0].value == pytest.approx(1.5, rel=0.1)
    job = big_job(1)
    small = replace(job.cluster, accelerator=replace(job.cluster.accelerator, memory_bytes=10**9))
    with pytest.raises(InvalidInput, match="predicted to fit into the memory"):
        layer_report(replace(job, cluster=small))


def test_measured_layers_are_the_best_trials_that_leave_later_options_alone() -> None:
    plain = cpu_layout(data_parallel_replicate_degree=4)
    two_level = replace(plain, collective_hierarchy=CollectiveHierarchy.TWO_LEVEL)
    trials = [ran(0, plain, 2.0), ran(1, replace(plain, recompute=Recompute.FULL), 2.5), ran(2, two_level, 1.6)]
    report = present(measured_layers(Objective(), trials))
    gains = {gain.layer: gain for gain in report.gains}
    assert gains[CommunicationLayer.STRATEGY].num_layouts == 2
    assert gains[CommunicationLayer.TASKS].gain == 0.0
    assert gains[CommunicationLayer.COLLECTIVES].layout == two_level
    assert gains[CommunicationLayer.COLLECTIVES].gain == pytest.approx(0.25)
    assert report.total_gain == pytest.approx(0.25)
    one_bucket = cpu_layout(data_parallel_replicate_degree=4, gradient_bucket_bytes=2**25)
    two_level = replace(one_bucket, collective_hierarchy=CollectiveHierarchy.TWO_LEVEL)
    found = present(measured_layers(Objective(), [ran(0, one_bucket, 2.0), ran(1, two_level, 1.0)]))
    assert [gain.layer for gain in found.gains] == list(CommunicationLayer)
    assert found.total_gain == pytest.approx(1.0)
    assert measured_layers(Objective(), []) is None
