"""Breakdowns."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.builders import memory, prediction, step_time


def test_the_step_time_is_the_sum_of_its_parts() -> None:
    value = step_time(matrix_s=2.0)
    # another order of the same sum may differ in the last bit
    assert value.total_s == pytest.approx(sum(getattr(value, f.name) for f in fields(value)), rel=1e-12)
    assert value.total_s == pytest.approx(2.36, rel=1e-12)


def test_the_peak_is_the_sum_of_its_bytes_and_no_stage_number() -> None:
    assert memory(activations_bytes=1e6).total_bytes == pytest.approx(5.2e6, rel=1e-12)


def test_the_interval_is_as_many_times_shorter_as_longer() -> None:
    low, high = prediction(step_time=step_time(matrix_s=1.64), relative_error=0.25).step_time_interval_s or (0.0, 0.0)
    assert (low, high) == pytest.approx((1.6, 2.5), rel=1e-12)  # 2.0 divided by and times 1.25, rounded


def test_a_record_older_than_the_error_has_no_interval() -> None:
    assert prediction(relative_error=None).step_time_interval_s is None
