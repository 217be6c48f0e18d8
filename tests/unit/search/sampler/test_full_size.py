from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotuner.core.choices import AttentionKernel, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.search.sampler.full_size import FullSize, SmallTrial, full_size
from autotuner.search.sampler.stand_ins import StandIn
from tests.builders import h100_cluster, llama_70b

TARGET = Job(model=llama_70b(), cluster=h100_cluster(32), workload=Workload(seq_len=4096, global_batch_size=256))
SMALL = Job(
    model=replace(llama_70b(), num_layers=20),
    cluster=h100_cluster(2),
    workload=Workload(seq_len=4096, global_batch_size=64),
)


def layout(*, replicas: int, pipeline: int, tensor: int = 4) -> Layout:
    return Layout(
        data_parallel_shard_degree=replicas,
        pipeline_parallel_degree=pipeline,
        tensor_parallel_degree=tensor,
        sequence_parallel=True,
        shard_level=ShardLevel.OPTIMIZER,
        attention_kernel=AttentionKernel.FLASH,
    )


LARGE_LAYOUT, SMALL_LAYOUT = layout(replicas=8, pipeline=8), layout(replicas=2, pipeline=2)
STAND_IN = StandIn(job=SMALL, layout=SMALL_LAYOUT)


def small_trial(slower: float, *, fits: bool | None = True) -> SmallTrial:
    step_time_s = slower * predict_one(SMALL_LAYOUT, SMALL).step_time.total_s
    return SmallTrial(stands_for=LARGE_LAYOUT, stand_in=STAND_IN, step_time_s=step_time_s, fits=fits)


def test_without_a_small_trial_the_estimate_is_the_prediction_with_its_interval() -> None:
    predicted, estimate = predict_one(LARGE_LAYOUT, TARGET), full_size(LARGE_LAYOUT, TARGET, [])
    assert estimate.step_time_s == pytest.approx(predicted.step_time.total_s)
    assert estimate.relative_error == pytest.approx(predicted.relative_error)
    assert estimate.fit_probability == pytest.approx(predicted.fit_probability)
    assert estimate.peak_bytes == pytest.approx(predicted.memory.total_bytes)
    assert not estimate.measured_parts


def test_a_small_trial_that_was_slower_makes_the_full_size_slower_and_its_interval_narrower() -> None:
    before, after = full_size(LARGE_LAYOUT, TARGET, []), full_size(LARGE_LAYOUT, TARGET, [small_trial(1.2)])
    assert before.step_time_s < after.step_time_s < 1.2 * before.step_time_s
    assert after.relative_error < before.relative_error


def test_a_small_trial_of_the_very_job_and_layout_is_an_ordinary_observation() -> None:
    measured_s = 1.3 * predict_one(LARGE_LAYOUT, TARGET).step_time.total_s
    itself = StandIn(job=TARGET, layout=LARGE_LAYOUT)
    trial = SmallTrial(stands_for=LARGE_LAYOUT, stand_in=itself, step_time_s=measured_s)
    estimate = full_size(LARGE_LAYOUT, TARGET, [trial])
    assert estimate.step_time_s == pytest.approx(measured_s, rel=0.01)  # it is known to 1 %, and pulled by the model
    assert estimate.relative_error < 0.015


def test_every_part_of_the_step_is_said_to_be_measured_or_modelled() -> None:
    trial = replace(small_trial(1.0), measured_parts=("matrix_s", "attention_s", "expert_communication_s"))
    estimate = full_size(LARGE_LAYOUT, TARGET, [trial])
    assert estimate.measured_parts == ("matrix_s", "attention_s")  # it has no experts
    assert {"data_communication_s", "bubble_s"} <= {*estimate.modelled_parts}
    assert not {*estimate.measured_parts} & {*estimate.modelled_parts}
    assert 0.5 < estimate.measured_share < 1.0


def test_a_small_trial_of_another_layout_measures_no_part_and_still_teaches() -> None:
    other, trial = layout(replicas=8, pipeline=4, tensor=8), replace(small_trial(1.2), measured_parts=("matrix_s",))
    estimate = full_size(other, TARGET, [trial])
    assert estimate.measured_share == 0.0
    assert estimate.step_time_s > predict_one(other, TARGET).step_time.total_s


def test_a_small_trial_that_ran_out_of_memory_lowers_the_chance_of_the_full_size() -> None:
    trial = SmallTrial(stands_for=LARGE_LAYOUT, stand_in=STAND_IN, fits=False)
    before, after = full_size(LARGE_LAYOUT, TARGET, []), full_size(LARGE_LAYOUT, TARGET, [trial])
    assert after.peak_bytes > before.peak_bytes
    assert after.fit_probability < before.fit_probability
    assert math.isclose(after.step_time_s, before.step_time_s)


def test_a_measured_peak_of_a_small_trial_moves_that_of_the_full_size() -> None:
    small = predict_one(SMALL_LAYOUT, SMALL).memory
    peak_bytes = 0.8 * (small.total_bytes - small.allowance_bytes)
    trial = SmallTrial(stands_for=LARGE_LAYOUT, stand_in=STAND_IN, fits=True, peak_bytes=peak_bytes)
    before, after = full_size(LARGE_LAYOUT, TARGET, []), full_size(LARGE_LAYOUT, TARGET, [trial])
    assert 0.8 * before.peak_bytes < after.peak_bytes < before.peak_bytes


def test_estimates_of_many_layouts_are_those_of_each() -> None:
    layouts, trials = [LARGE_LAYOUT, layout(replicas=16, pipeline=4)], [small_trial(1.2), small_trial(1.1)]
    together = FullSize(TARGET).estimates(layouts, trials)
    for one, estimate in zip(layouts, together, strict=True):
        assert full_size(one, TARGET, trials).step_time_s == pytest.approx(estimate.step_time_s)
