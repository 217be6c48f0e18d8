"""Breakdowns."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.builders import memory, step_time


def test_the_step_time_is_the_sum_of_its_parts() -> None:
    value = step_time(matrix_s=2.0)
    # another order of the same sum may differ in the last bit
    assert value.total_s == pytest.approx(sum(getattr(value, f.name) for f in fields(value)), rel=1e-12)
    assert value.total_s == pytest.approx(2.36, rel=1e-12)


def test_the_peak_is_the_sum_of_its_bytes_and_no_stage_number() -> None:
    assert memory(activations_bytes=1e6).total_bytes == pytest.approx(5.2e6, rel=1e-12)
