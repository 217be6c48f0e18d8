"""What NCCL is told of a layout."""

from __future__ import annotations

import pytest

from autotuner.core.choices import CollectiveAlgorithm
from autotuner.core.layout import Layout
from autotuner.core.rules.collectives import collective_environment


def test_what_is_left_to_nccl_sets_nothing() -> None:
    assert collective_environment(Layout()) == {}


@pytest.mark.parametrize("algorithm", [way for way in CollectiveAlgorithm if way != CollectiveAlgorithm.AUTO])
def test_an_algorithm_is_asked_of_all_reduces_alone(algorithm: CollectiveAlgorithm) -> None:
    asked = collective_environment(Layout(collective_algorithm=algorithm))["NCCL_ALGO"]
    assert asked.startswith(f"allreduce:{algorithm.label}")
    assert ";" not in asked


def test_switches_of_the_network_are_turned_on_where_they_are_asked_to_add() -> None:
    asked = collective_environment(Layout(collective_algorithm=CollectiveAlgorithm.COLLNET))
    assert asked == {"NCCL_ALGO": "allreduce:collnetdirect,collnetchain,ring", "NCCL_COLLNET_ENABLE": "1"}


def test_what_is_asked_of_the_network_is_said_in_variables_of_its_own() -> None:
    assert collective_environment(Layout(pxn=False, queue_pairs=4)) == {
        "NCCL_PXN_DISABLE": "1",
        "NCCL_IB_QPS_PER_CONNECTION": "4",
        "NCCL_IB_SPLIT_DATA_ON_QPS": "1",
    }
