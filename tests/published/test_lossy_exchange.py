"""Bytes that DeMo's authors report per step, against our count; formats and chunks as in their first code.

arXiv 2411.19870: OLMo with 300 million and with one billion parameters sends 7.49 MB (8 components of each chunk of
64 x 64) and 55.16 MB (16), where AdamW sends 636.9 MB for the smaller. Their indices take 8 bytes, their values 4.
"""

from __future__ import annotations

import pytest

from autotuner.core.choices import GradientSync
from autotuner.core.layout import Layout
from autotuner.core.stages import payload_elements

VOCABULARY = 50_304
"""Rows of OLMo's table, which is tied (its 1B configuration, 2024)."""


def olmo_parameters(hidden_size: int, num_layers: int) -> int:
    """Attention, a gated feed-forward block four times as wide, and the table; OLMo's norms have no weights."""
    layer = 4 * hidden_size**2 + 3 * hidden_size * 4 * hidden_size
    return num_layers * layer + VOCABULARY * hidden_size


@pytest.mark.parametrize(("hidden_size", "num_components", "reported_bytes"), [(1024, 8, 7.49e6), (2048, 16, 55.16e6)])
def test_a_step_of_demo_sends_what_its_authors_report(
    hidden_size: int, num_components: int, reported_bytes: float
) -> None:
    demo = Layout(
        data_parallel_replicate_degree=64,
        gradient_sync=GradientSync.DEMO,
        sync_chunk=64 * 64,
        sync_top_k=num_components,
    )
    counted_bytes = payload_elements(demo, olmo_parameters(hidden_size, 16)) * (8 + 4)
    assert counted_bytes == pytest.approx(reported_bytes, rel=0.01)  # as the reported digits allow


def test_adamw_sends_85_times_as_much_as_demo() -> None:
    """The ratio that they report; gradients in 16 bits, which are counted once."""
    demo = Layout(gradient_sync=GradientSync.DEMO, sync_chunk=64 * 64, sync_top_k=8)
    num_parameters = olmo_parameters(1024, 16)
    ratio = 2 * num_parameters / (payload_elements(demo, num_parameters) * (8 + 4))
    assert ratio == pytest.approx(636.9 / 7.49, rel=0.01)
