"""Jobs, their phases and their sequences."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.codec import loads
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Calibration, JobPhase, PartFactor, PhasedJob, SwitchCost, checkpoint_bytes
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.workload import LengthDistribution, Workload
from tests.builders import big_job

SLOW_PRODUCTS = Calibration(
    factor=1.1,
    deviation=0.02,
    num_runs=9,
    parts=(PartFactor(part="matrix_s", factor=1.2, deviation=0.05),),
    correlations=((1.0, -0.5), (-0.5, 1.0)),
)


def test_a_part_takes_its_own_factor_and_that_of_the_whole_also_where_it_was_stored_before_parts_were_known() -> None:
    assert SLOW_PRODUCTS.of("matrix_s") == pytest.approx(1.32)
    assert SLOW_PRODUCTS.of("optimizer_s") == 1.1
    old = '{"schema_version":1,"factor":1.1,"deviation":0.02,"num_runs":9}'
    assert loads(Calibration, old) == Calibration(factor=1.1, deviation=0.02, num_runs=9)
    with pytest.raises(InvalidInput, match="2 rows of 2 numbers"):
        Calibration(factor=1.1, deviation=0.02, num_runs=9, parts=SLOW_PRODUCTS.parts)


def phased(*phases: JobPhase, **changes: Any) -> PhasedJob:
    return PhasedJob(job=big_job(), num_tokens=1e9, phases=phases, **changes)


def test_a_phase_changes_what_it_names_and_leaves_the_rest_of_the_job() -> None:
    whole = big_job()
    dead = LinkHealth(link_class="inter_node", delay_s=0.01)
    phase = JobPhase(name="long", token_share=0.5, seq_len=4096, bandwidth_bytes_per_s=1e9, link_health=(dead,))
    there = phase.job(whole)
    assert there.workload == replace(whole.workload, seq_len=4096)
    assert there.cluster.inter_node_link.bandwidth_bytes_per_s == 1e9
    assert there.cluster.link_health == (dead,)
    assert there.model == whole.model
    assert JobPhase(name="main", token_share=0.5).job(whole) == whole


def test_steps_of_a_phase_are_its_tokens_over_those_of_its_step() -> None:
    half = JobPhase(name="half", token_share=0.5, global_batch_size=2 * big_job().workload.global_batch_size)
    training = phased(half, JobPhase(name="rest", token_share=0.5))
    assert training.num_steps(half) == 0.5e9 / (2 * big_job().workload.tokens_per_step)


def test_a_switch_writes_and_reads_the_masters_and_both_moments_and_what_is_not_said_is_as_published() -> None:
    whole = big_job()
    assert checkpoint_bytes(whole) == 12 * whole.model.num_parameters
    narrow = replace(whole, workload=replace(whole.workload, optimizer_state_precision="bf16"))
    assert checkpoint_bytes(narrow) == 8 * whole.model.num_parameters
    cost = SwitchCost(restart_s=10.0, storage_bytes_per_s=checkpoint_bytes(whole))
    assert cost.seconds(whole) == 12.0
    known = SwitchCost().known_for(big_job())
    assert known.storage_bytes_per_s == pytest.approx(big_job().cluster.world_size * 2e12 / 24_000)  # to the last digit
    assert known.restart_s == 30.0


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        ((), "must be 1 to 32 phases"),
        ((JobPhase(name="a", token_share=0.5), JobPhase(name="a", token_share=0.5)), "another name"),
        ((JobPhase(name="a", token_share=0.5), JobPhase(name="b", token_share=0.4)), "nearest legal value: 0.5"),
        ((JobPhase(name="a", token_share=1.0, link_health=(LinkHealth(ends=(0, 999)),)),), "phases.0.link_health"),
    ],
)
def test_phases_that_no_job_goes_through_are_refused_with_what_would_do(
    phases: tuple[JobPhase, ...], said: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        phased(*phases)


def test_sequences_have_a_histogram_with_moments_and_quantiles() -> None:
    assert LengthDistribution.of([64, 16, 64]) == LengthDistribution(lengths=(16, 64), weights=(1.0, 2.0))
    lengths = LengthDistribution.of([16, 64, 64])
    assert (lengths.mean, lengths.moment(2)) == ((16 + 64 + 64) / 3, (16**2 + 64**2 + 64**2) / 3)
    lengths = LengthDistribution.of([16, 64, 64, 64])
    assert lengths.at_each([0.0, 0.24, 0.25, 0.99, 1.0]) == (16, 16, 64, 64, 64)
    assert lengths.at(0.24) == 16


@pytest.mark.parametrize(
    ("lengths", "weights"),
    [((), ()), ((0, 1), (1.0, 1.0)), ((2, 1), (1.0, 1.0)), ((1, 2), (1.0,)), ((1,), (0.0,)), ((1,), (float("inf"),))],
)
def test_what_is_no_distribution_is_refused(lengths: tuple[int, ...], weights: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput):
        LengthDistribution(lengths=lengths, weights=weights)


def test_micro_batches_are_per_replica_and_cover_accumulation() -> None:
    assert Workload(seq_len=4096, global_batch_size=512).tokens_per_step == 2_097_152
    layout = Layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=4, micro_batch_size=2)
    assert Workload(seq_len=128, global_batch_size=64).num_micro_batches(layout) == 4


LENGTHS = LengthDistribution(lengths=(16, 64), weights=(3.0, 1.0))


def test_tokens_of_sequences_that_differ_are_those_of_an_average_step() -> None:
    workload = Workload(seq_len=128, global_batch_size=8, lengths=LENGTHS)
    assert workload.tokens_per_step == 8 * (3 * 16 + 64) // 4
    assert workload.keys_per_token == round((3 * 16**2 + 64**2) / (3 * 16 + 64))
    assert workload.of_longest == Workload(seq_len=128, global_batch_size=8)
