"""How computation divides into passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.layout import Layout
from autotuner.costmodel.details import PassShares, pass_shares
from tests.builders import big_job

PIPELINE = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, sequence_parallel=True)
ZBV = replace(PIPELINE, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)


def total(shares: PassShares) -> float:
    return shares.forward + shares.backward + shares.weight


def test_a_backward_pass_computes_about_twice_what_a_forward_pass_does() -> None:
    shares = pass_shares(PIPELINE, big_job())
    assert shares.backward == pytest.approx(2 * shares.forward, rel=0.1)  # matrix products exactly, the rest nearly
    assert total(shares) == pytest.approx(1.0)  # floating-point addition


def test_what_is_computed_again_is_no_part_of_the_shares() -> None:
    again = replace(PIPELINE, recompute=Recompute.FULL)
    assert pass_shares(again, big_job()).forward == pytest.approx(pass_shares(PIPELINE, big_job()).forward)


def test_gradients_of_weights_are_told_apart_where_the_schedule_computes_them_apart() -> None:
    whole, deferred = pass_shares(PIPELINE, big_job()), pass_shares(ZBV, big_job())
    assert whole.weight == 0.0
    assert deferred.weight > 0.2
    assert deferred.backward + deferred.weight == pytest.approx(whole.backward, rel=0.01)  # ends lie on other ranks
