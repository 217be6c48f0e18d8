"""A trial's time and memory with what was measured of each part."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.trial import Trial, TrialState
from autotuner.search.explain.trial_parts import stage_peaks, trial_parts
from tests.builders import (
    big_job,
    breakdown,
    cpu_cluster,
    cpu_layout,
    measurement,
    prediction,
    small_trial,
    sweep_request,
    tiny_job,
)

PIPELINE = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, sequence_parallel=True)


def trial(measured: Measurement | None, layout: Layout | None = None) -> Trial:
    return Trial(
        id="sw-a-0000",
        sweep_id="sw-a",
        number=0,
        state=TrialState.COMPLETE if measured else TrialState.QUEUED,
        layout=layout or cpu_layout(data_parallel_replicate_degree=2),
        prediction=prediction(),
        measurement=measured,
    )


def test_peaks_of_ranks_stand_beside_the_stage_that_they_hold() -> None:
    peaks = tuple(1000 + rank for rank in range(64))
    found = stage_peaks(PIPELINE, big_job(), peaks)
    assert [(peak.stage, peak.rank, peak.measured_bytes) for peak in found[:2]] == [(0, 7, 1007), (1, 15, 1015)]
    assert found[7].predicted.logits_bytes > 0


def test_peaks_that_only_some_ranks_told_belong_to_no_stage() -> None:
    assert {peak.measured_bytes for peak in stage_peaks(PIPELINE, big_job(), (1000, 2000))} == {None}


def test_a_trial_is_divided_by_its_profile_and_without_one_by_the_phases_of_its_steps() -> None:
    profiled = measurement(breakdown=breakdown(forward_s=0.1, backward_s=0.3))
    assert trial_parts(trial(profiled), sweep_request()).step.measured_s == 0.4
    timed = trial_parts(trial(measurement()), sweep_request())
    assert (timed.step.measured_s, timed.step.rank) == (0.5, None)
    assert "data collectives" in timed.largest_loss  # phases tell no loss, so the prediction does
    untried = trial_parts(trial(None), sweep_request())
    assert untried.step.measured_s is None
    assert untried.step.predicted_s == prediction().step_time.total_s


def test_a_small_trial_is_set_beside_the_prediction_of_what_ran() -> None:
    request = sweep_request(job=tiny_job(8), trial_cluster=cpu_cluster(2))
    small = replace(
        trial(measurement(), cpu_layout(data_parallel_replicate_degree=8)), scaled=small_trial(num_layers=2)
    )
    found = trial_parts(small, request)
    assert found.is_small
    assert len(found.stages) == small.ran.pipeline_parallel_degree
    assert found.step.predicted_s != prediction().step_time.total_s


def test_what_is_reduced_under_backward_stands_beside_what_was_predicted_to_be() -> None:
    layout = cpu_layout(data_parallel_replicate_degree=2, gradient_bucket_bytes=2**14)
    found = trial_parts(trial(measurement(overlapped_share=0.875), layout), sweep_request())
    assert found.measured_overlap == 0.875
    assert found.predicted_overlap is not None
    assert 0.5 < found.predicted_overlap < 1.0
