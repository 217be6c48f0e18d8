"""What NCCL is told of a layout."""

from __future__ import annotations

import pytest

from autotuner.domain.layouts.choice import CollectiveAlgorithm
from autotuner.domain.layouts.collectives import collective_environment
from autotuner.domain.layouts.layout import Layout


def test_what_is_left_to_nccl_sets_nothing() -> None:
    assert collective_environment(Layout()) == {}


@pytest.mark.parametrize("algorithm", [way for way in CollectiveAlgorithm if way != CollectiveAlgorithm.AUTO])
def test_an_algorithm_is_asked_of_all_reduces_alone(algorithm: CollectiveAlgorithm) -> None:
    asked = collective_environment(Layout(collective_algorithm=algorithm))["NCCL_ALGO"]
    assert asked.startswith(f"allreduce:{algorithm.label}")
    assert ";" not in asked
