from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.jobs.link import Link
from autotuner.errors import InvalidInput


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bandwidth_bytes_per_s", 0.0),
        ("latency_s", -1e-6),
        ("start_s", -1e-6),
        ("ramp_s", -1e-6),
        ("efficiency", 0.0),
        ("efficiency", 1.1),
        ("multicast_efficiency", 1.1),
        ("congestion", -0.1),
    ],
)
def test_an_impossible_link_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(Link(name="none", bandwidth_bytes_per_s=1e9, latency_s=0.0), **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field
