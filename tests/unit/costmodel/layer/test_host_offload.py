"""What copies of activations to the host take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import Recompute
from autotuner.core.layout import Layout
from autotuner.costmodel.layer.host_offload import HOST_LINK_EFFICIENCY, copies_s
from autotuner.costmodel.memory.activations import LayerBytes
from tests.builders import big_job, h100, h100_cluster
from tests.unit.costmodel.works import columns, first, layer

AWAY = Layout(offload_activations=True)


def copies(layout: Layout, forward_s: float = 0.0, backward_s: float = 0.0) -> list[float]:
    forward, backward = np.array([forward_s]), np.array([backward_s])
    return [first(s) for s in copies_s(columns(layout), big_job(), forward, backward, sparse=False)]


def test_what_stays_on_the_device_is_not_copied() -> None:
    assert copies(Layout()) == [0.0, 0.0]


def test_each_layer_is_copied_out_and_back_at_the_rate_of_the_host_link() -> None:
    moved = first(LayerBytes.of(columns(AWAY), big_job(), sparse=False).moved)
    wire_s = moved / (HOST_LINK_EFFICIENCY * big_job().cluster.accelerator.host_bandwidth_bytes_per_s)
    assert copies(AWAY) == [wire_s, wire_s]
    assert copies(AWAY, wire_s / 2, 2 * wire_s) == pytest.approx([wire_s / 2, 0.0], rel=1e-12)  # rounding


@pytest.mark.parametrize("recompute", [Recompute.SELECTIVE, Recompute.FULL])
def test_of_a_layer_that_recomputes_only_the_input_is_copied(recompute: Recompute) -> None:
    out_s, _ = copies(replace(AWAY, recompute=recompute))
    assert out_s == pytest.approx(2 * 8192 * 8192 / (HOST_LINK_EFFICIENCY * 31.5e9), rel=1e-12)  # rounding
    assert out_s < copies(AWAY)[0]


def test_a_slower_host_link_lengthens_a_layer_and_nothing_else_in_it() -> None:
    fast, slow = (
        layer(AWAY, replace(big_job(), cluster=h100_cluster(accelerator=h100(host_bandwidth_bytes_per_s=rate))))
        for rate in (450e9, 1e9)
    )
    assert first(fast.offload_s) < first(slow.offload_s)
    assert first(fast.total_s - fast.offload_s) == pytest.approx(first(slow.total_s - slow.offload_s), rel=1e-9)
