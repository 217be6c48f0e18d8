"""How many tokens an expert takes, as tables say it."""

from __future__ import annotations

import pytest

from autotuner.backtest.models import with_capacity
from autotuner.core.blocks import MixtureOfExperts
from tests.builders import tiny_model

SPARSE = tiny_model(experts=MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=64))


@pytest.mark.parametrize(
    ("row", "usual", "capacity"),
    [
        ({}, None, None),
        ({}, 1.0, 1.0),
        ({"notes": "8 layers; capacity factor 1.25 with inputs padded to it"}, None, 1.25),
        ({"notes": "tokendrop; precision column absent"}, None, 1.0),
        ({"notes": "dropless"}, 1.0, None),
        ({"capacity_factor": "2"}, 1.0, 2.0),
    ],
)
def test_a_capacity_is_read_from_its_column_the_notes_or_what_is_usual(
    row: dict[str, str], usual: float | None, capacity: float | None
) -> None:
    experts = with_capacity(SPARSE, row, usual).experts
    assert experts is not None
    assert (experts.capacity_factor, experts.pads_to_capacity) == (capacity, capacity is not None)


def test_a_dense_model_has_no_capacity() -> None:
    assert with_capacity(tiny_model(), {"notes": "capacity factor 2"}, 1.0) == tiny_model()
