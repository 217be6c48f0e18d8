"""Layers of communication in the terminal."""

from __future__ import annotations

from api.examples.layers import sweep_layers
from autotuner.cli.views.layers import layers_view
from autotuner.domain.wire import to_dict
from tests.unit.cli.views.printed import printed


def test_an_expected_mfu_above_the_reference_peak_is_a_share_as_the_others_are() -> None:
    answer = to_dict(sweep_layers())
    answer["predicted"]["gains"][0]["value"] = 1.123  # bf16 on cores whose reference is fp32
    text = printed(layers_view(answer), 160)
    assert "112 %" in text
    assert "1.123" not in text
