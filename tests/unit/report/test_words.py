"""Words that every surface shows."""

from __future__ import annotations

import pytest

from autotuner.core.field_change import difference
from autotuner.core.layout import Layout
from autotuner.report.words import changes_in_words


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("tp4 dp8 mb1", "tp2 dp16 mb1", "tensor 4 → 2, replicate 8 → 16"),
        ("tp2 mb1", "tp2 sp mb1", "sequence parallel off → on"),
        ("dp8 mb1", "fsdp8 mb1", "sharding none → parameters"),
        ("dp8 mb1", "fsdp4 mb1", "shard 1 → 4, replicate 8 → 1, sharding none → parameters"),
        ("tp2 mb1", "tp2 mb1", ""),
    ],
)
def test_a_change_is_said_by_its_options_and_their_values(before: str, after: str, said: str) -> None:
    assert changes_in_words(difference(Layout.parse(before), Layout.parse(after))) == said
