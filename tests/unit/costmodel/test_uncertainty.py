"""How sure a prediction is, and of which parts it is made."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import BITS_8, BITS_16, DENSE, comparisons, load_stack, pooled_scatter
from autotuner.core.choices import (
    ContextExchange,
    GradientClip,
    GradientSync,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Calibration, PartFactor
from autotuner.core.layout import Layout
from autotuner.core.prediction import StepTime
from autotuner.costmodel.details import PassShares, exchanges, overlapped_share, pass_shares, stage_memory
from autotuner.costmodel.evidence import Where
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.uncertainty import (
    CLUSTER,
    MEMORY_DEVIATION,
    PARTS,
    TRUST,
    Z80,
    fit_probability,
    interval_error,
    part_shares,
    relative_error,
    time_error,
)
from autotuner.search.space.legal import legal_layouts
from tests.builders import big_job, cpu_layout, tiny_job

# ---------------------------------------------------------------- uncertainty
ONE = LayoutColumns.from_layouts([Layout()])

FITTED = replace(big_job(), stack=load_stack("nanotron"))
"""A job whose software was compared on its device."""


def step(**parts: float) -> StepTime[Floats]:
    """A step of those parts and no others."""
    return StepTime(**{f.name: np.array([parts.get(f.name, 0.0)]) for f in fields(StepTime)})


def error_of(**parts: float) -> float:
    return float(relative_error(ONE, step(**parts), big_job())[0])


def test_independent_errors_cancel_in_part_and_intervals_hold_80_percent() -> None:
    assert set(PARTS) == {f.name for f in fields(StepTime)}
    assert all(0 < deviation < 1 for deviation in PARTS.values())
    assert NormalDist().cdf(Z80) - NormalDist().cdf(-Z80) == pytest.approx(0.8, abs=1e-4)  # four digits of it are given
    assert error_of(matrix_s=1.0, attention_s=1.0) < max(error_of(matrix_s=1.0), error_of(attention_s=1.0))
    errors = [error_of(matrix_s=1.0, tensor_communication_s=share) for share in (0.2, 0.5, 1.0, 5.0)]
    assert errors == sorted(errors)
    assert error_of(matrix_s=2.0, bubble_s=1.0) == error_of(matrix_s=1.0, bubble_s=0.5)
    error = time_error(big_job())
    (shares,) = part_shares(step(matrix_s=3.0, bubble_s=1.0), error)
    assert dict(zip(error.parts, shares.tolist(), strict=True)) == {
        **dict.fromkeys(PARTS, 0.0),
        "matrix_s": 0.75,
        "bubble_s": 0.25,
    }
    assert width(by_parts(0.01)) < width(by_parts(0.1)) < width(by_parts(0.3))
    assert width(by_parts(0.01)) < width(None)
    assert width(by_parts(0.1, -0.05)) < width(by_parts(0.1)) < width(by_parts(0.1, 0.5))
    known = by_parts(0.05)
    wider = width(replace(known, interval_scale=2.0))
    assert math.log1p(wider) == pytest.approx(2 * math.log1p(width(known)))
    slow = replace(FITTED, calibration=by_parts(0.01, tensor_communication_s=2.0))
    usual, slower = predict(SPLIT, FITTED).step_time, predict(SPLIT, slow).step_time
    assert slower.tensor_communication_s[0] == 2 * usual.tensor_communication_s[0]
    assert slower.matrix_s[0] == usual.matrix_s[0]


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_step_of_one_part_is_as_uncertain_as_that_part_and_the_rest_together(name: str) -> None:
    error = interval_error(ONE, big_job())
    deviation = np.sqrt(np.square(error.parts[name]) + error.residual**2 + error.common**2)[0]
    assert error_of(**{name: 3.0}) == pytest.approx(np.exp(Z80 * deviation) - 1, rel=1e-12)  # rounding


def test_compared_software_has_smaller_errors_and_its_own_scatter_of_runs() -> None:
    unknown, known = time_error(big_job()), time_error(FITTED)
    assert all(known.parts[name] < unknown.parts[name] for name in PARTS)
    layouts = LayoutColumns.from_layouts([Layout(), Layout(offload_activations=True)])
    parts = interval_error(layouts, FITTED).parts
    expected = [TRUST[where] * PARTS["offload_s"] for where in (Where.HERE, Where.NOWHERE)]
    assert np.asarray(parts["offload_s"]).tolist() == expected
    assert parts["bubble_s"] == TRUST[Where.HERE] * PARTS["bubble_s"]
    layouts = LayoutColumns.from_layouts([Layout(), Layout(precision=Precision.FP8)])
    said = comparisons()["nemo", "h100-sxm", DENSE].scatter
    expected = [said[BITS_16], said[BITS_8]]
    assert interval_error(layouts, replace(FITTED, stack=load_stack("nemo"))).residual.tolist() == expected
    noisy = replace(FITTED, stack=replace(FITTED.stack, scatter=0.2))
    assert interval_error(ONE, noisy).residual.tolist() == [0.2]
    assert interval_error(ONE, big_job()).residual.tolist() == [pooled_scatter(DENSE)[BITS_16]]


@pytest.mark.parametrize("cluster", ["mi300x:8", "v100:8"])
def test_all_is_less_certain_on_devices_that_nothing_was_compared_on(cluster: str) -> None:
    narrow, wide = time_error(big_job()), time_error(replace(big_job(), cluster=load_cluster(cluster)))
    assert (wide.residual, wide.common) == (2 * narrow.residual, 2 * narrow.common)
    assert dict(wide.parts) == {name: 2 * deviation for name, deviation in narrow.parts.items()}


def test_runs_narrow_what_they_were_measured_on_and_leave_the_rest_open() -> None:
    known = replace(FITTED, calibration=Calibration(factor=1.1, deviation=0.03, num_runs=2))
    assert (interval_error(ONE, FITTED).common, interval_error(ONE, known).common) == (CLUSTER, 0.03)
    assert time_error(known) == time_error(FITTED)
    layouts = LayoutColumns.from_layouts([Layout(), Layout(offload_activations=True)])
    parts = interval_error(layouts, replace(FITTED, calibration=by_parts(1e-6))).parts
    plain, offloaded = np.asarray(parts["offload_s"]).tolist()
    assert plain == 0.0
    assert offloaded > 0.5 * TRUST[Where.NOWHERE] * PARTS["offload_s"]


def test_a_layout_fits_by_the_curve_of_a_normal_distribution_through_a_half_at_the_limit() -> None:
    assert fit_probability(np.array([80e9]), 80e9).tolist() == [0.5]
    probabilities = fit_probability(np.geomspace(40e9, 160e9, 50), 80e9)
    assert all(more > less for more, less in pairwise(probabilities))
    assert np.all((probabilities > 0) & (probabilities < 1))
    assert fit_probability(np.array([1.0, 1e30]), 80e9) == pytest.approx([1.0, 0.0], abs=1e-20)
    deviations = np.linspace(-3, 3, 61)
    probabilities = fit_probability(80e9 * np.exp(-MEMORY_DEVIATION * deviations), 80e9)
    # 0.0095: how far the logistic curve lies from the normal distribution at most
    assert probabilities == pytest.approx([NormalDist().cdf(d) for d in deviations], abs=0.0096)


def by_parts(deviation: float, correlation: float = 0.0, **parts: float) -> Calibration:
    """Every part known so well, some with a factor of their own, and any two parts correlated so far."""
    correlations = np.full((len(PARTS) + 1,) * 2, correlation)
    correlations[-1] = correlations[:, -1] = 0.0
    np.fill_diagonal(correlations, 1.0)
    return Calibration(
        factor=1.0,
        deviation=0.01,
        num_runs=9,
        parts=tuple(PartFactor(part=name, factor=parts.get(name, 1.0), deviation=deviation) for name in PARTS),
        correlations=tuple(map(tuple, correlations.tolist())),
    )


SPLIT = LayoutColumns.from_layouts([Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8)])


def width(known: Calibration | None) -> float:
    return float(predict(SPLIT, replace(FITTED, calibration=known)).relative_error[0])


# ---------------------------------------------------------------- Tests of `autotuner.costmodel.details`
PIPELINE = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, sequence_parallel=True)


@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b", "deepseek-v3"])
def test_the_fullest_stage_is_that_of_the_prediction(name: str) -> None:
    job = replace(big_job(), model=load_model(name))
    layouts = legal_layouts(job)
    some = layouts.take(np.linspace(0, len(layouts) - 1, 100).astype(int))
    for row, predicted_bytes in enumerate(predict(some, job).memory.total_bytes):
        fullest = max(stage_memory(some.row(row), job), key=lambda memory: memory.total_bytes)
        assert fullest.total_bytes == pytest.approx(predicted_bytes, rel=1e-9)  # the same parts in another order


def test_the_last_stage_holds_logits_and_the_first_most_activations_but_in_a_v() -> None:
    stages = stage_memory(PIPELINE, big_job())
    assert [memory.worst_rank for memory in stages] == list(range(8))
    assert [memory.logits_bytes > 0 for memory in stages] == [False] * 7 + [True]
    kept = [memory.activations_bytes for memory in stages[:7]]
    assert kept == sorted(kept, reverse=True)
    layout = replace(PIPELINE, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)
    stages = stage_memory(layout, big_job())
    assert [memory.logits_bytes > 0 for memory in stages] == [True] + [False] * 7
    layout = Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8, sequence_parallel=True)
    (only,) = stage_memory(layout, big_job())
    assert only == predict_one(layout, big_job()).memory


LAYOUT = Layout.parse("zero2 tp4 cp2 pp4 sp")
JOB = big_job()
TOKENS = JOB.workload.seq_len // 2
HIDDEN_BYTES = 2 * TOKENS * JOB.model.hidden_size
MICRO_BATCHES = 512


def test_a_rank_sends_three_quarters_of_its_states_to_its_peers_and_all_to_its_neighbours() -> None:
    layers = JOB.model.num_layers // 4
    passed = 3 / 4 * HIDDEN_BYTES * 4 * 2  # two sums a pass, each scattered and gathered; forward and backward
    found = exchanges(LAYOUT, JOB, 1).tensor.sent_bytes
    assert found == pytest.approx(layers * MICRO_BATCHES * passed, rel=1e-9)  # computation stands beside the bytes
    sent = [exchanges(LAYOUT, JOB, rank).pipeline.sent_bytes for rank in range(4)]
    one_way = MICRO_BATCHES * HIDDEN_BYTES / 4
    assert sent == [one_way, 2 * one_way, 2 * one_way, one_way]


def test_groups_exchange_in_every_pass_and_wait_as_the_slowest_rank_is_predicted_to() -> None:
    again = exchanges(replace(LAYOUT, recompute=Recompute.FULL), JOB, 1).tensor.sent_bytes
    once = exchanges(LAYOUT, JOB, 1).tensor.sent_bytes
    assert again > 1.2 * once
    gathered = replace(LAYOUT, context_exchange=ContextExchange.ALL_GATHER)
    assert exchanges(LAYOUT, JOB, 1).context.sent_bytes > 0
    assert exchanges(gathered, JOB, 1).context.sent_bytes > 0
    alone = replace(LAYOUT, tensor_parallel_degree=1, context_parallel_degree=1, data_parallel_shard_degree=16)
    found = exchanges(alone, JOB, 0)
    assert found.tensor.sent_bytes == found.context.sent_bytes == found.expert.sent_bytes == 0
    assert found.tensor.exposed_s == found.context.exposed_s == 0
    layout = replace(LAYOUT, pipeline_parallel_degree=1, data_parallel_shard_degree=8)
    step, found = predict_one(layout, JOB).step_time, exchanges(layout, JOB, 0)
    assert found.tensor.exposed_s == step.tensor_communication_s
    assert found.data.exposed_s == step.data_communication_s
    assert found.pipeline.exposed_s == step.pipeline_communication_s == 0


SMALL: dict[str, Any] = {"data_parallel_replicate_degree": 2, "gradient_bucket_bytes": 2**14}


def test_shares_of_reductions_that_start_early_depend_on_buckets_shards_and_clipping() -> None:
    shares = [overlapped_share(cpu_layout(**SMALL, gradient_clip=clip), tiny_job()) for clip in GradientClip]
    assert shares[GradientClip.POST] == shares[GradientClip.BUCKET]
    assert shares[GradientClip.POST] == pytest.approx(1.0, abs=0.1)  # 1 - 1/29: seven matrices a layer, and the tables
    assert shares[GradientClip.PRE] == 0.0
    one_bucket = cpu_layout(data_parallel_replicate_degree=2)
    lossy = cpu_layout(**SMALL, gradient_sync=GradientSync.DEMO)
    assert [overlapped_share(layout, tiny_job()) for layout in (one_bucket, lossy)] == [0.0, 0.0]
    assert overlapped_share(cpu_layout(), tiny_job()) is None
    sharded = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS)
    assert overlapped_share(sharded, tiny_job()) == pytest.approx(0.8)  # 4 layers of 4, and the tables behind them


# ---------------------------------------------------------------- How computation divides into passes
ZBV = replace(PIPELINE, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)


def total(shares: PassShares) -> float:
    return shares.forward + shares.backward + shares.weight


def test_backward_passes_compute_twice_the_forward_and_weights_apart_where_deferred() -> None:
    shares = pass_shares(PIPELINE, big_job())
    assert shares.backward == pytest.approx(2 * shares.forward, rel=0.1)  # matrix products exactly, the rest nearly
    assert total(shares) == pytest.approx(1.0)  # floating-point addition
    again = replace(PIPELINE, recompute=Recompute.FULL)
    assert pass_shares(again, big_job()).forward == pytest.approx(pass_shares(PIPELINE, big_job()).forward)
    whole, deferred = pass_shares(PIPELINE, big_job()), pass_shares(ZBV, big_job())
    assert whole.weight == 0.0
    assert deferred.weight > 0.2
    assert deferred.backward + deferred.weight == pytest.approx(whole.backward, rel=0.01)  # ends lie on other ranks
