"""Our port of NCCL's tuning model against NCCL's own code.

``nccl_tuning.csv`` holds what src/graph/tuning.cc of NCCL 2.28.3, compiled by itself, answers for an all-reduce among
nodes of 8 A100 with a port of 200 Gbit/s each: 12 channels of 20 GB/s on one node; on several 8 of 24 GB/s, and trees
of 30 GB/s inside nodes. Its search of the topology is not run: the channels are those of ``wires_of``.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.costmodel.communication.nccl import NcclAlgorithm, NcclProtocol, Wires, bands, chosen, wires_of

NODES = (1, 2, 4, 8, 16, 32)


class Row(NamedTuple):
    num_ranks: int
    num_nodes: int
    num_bytes: int
    algorithm: str
    protocol: str
    microseconds: float


def rows() -> list[Row]:
    with (Path(__file__).parent / "nccl_tuning.csv").open() as file:
        return [
            Row(int(ranks), int(nodes), int(size), algorithm, protocol, float(microseconds))
            for ranks, nodes, size, algorithm, protocol, microseconds in list(csv.reader(file))[1:]
        ]


def a100_nodes(num_nodes: int) -> Wires:
    return wires_of(8 * num_nodes, 8, load_cluster(f"a100:{8 * num_nodes}"))


@pytest.mark.parametrize("row", rows(), ids=str)
def test_the_port_takes_what_nccl_s_own_code_takes(row: Row) -> None:
    way = chosen("all_reduce", row.num_bytes, a100_nodes(row.num_nodes))
    assert (str(way.algorithm), str(way.protocol)) == (row.algorithm, row.protocol)
    # the table has two decimals, and NCCL computes in single precision
    assert 1e6 * way.seconds(row.num_bytes) == pytest.approx(row.microseconds, rel=1e-5, abs=0.006)


def test_the_table_has_thirty_cases() -> None:
    assert len({(row.num_nodes, row.num_bytes) for row in rows()}) == 30


@pytest.mark.parametrize("num_nodes", NODES)
def test_short_messages_go_by_ll_and_long_ones_by_a_simple_ring(num_nodes: int) -> None:
    found = bands("all_reduce", a100_nodes(num_nodes))
    assert found[0].way.protocol is NcclProtocol.LL
    assert (found[-1].way.algorithm, found[-1].way.protocol) == (NcclAlgorithm.RING, NcclProtocol.SIMPLE)


@pytest.mark.parametrize("num_nodes", [nodes for nodes in NODES if nodes >= 4])
def test_trees_lie_between_from_four_nodes_on(num_nodes: int) -> None:
    found = [band.way for band in bands("all_reduce", a100_nodes(num_nodes))]
    assert any(way.algorithm is NcclAlgorithm.TREE and way.protocol is NcclProtocol.LL128 for way in found[1:-1])


@pytest.mark.parametrize("num_nodes", NODES)
def test_what_is_expected_rises_with_the_size(num_nodes: int) -> None:
    wires = a100_nodes(num_nodes)
    sizes = [2**power for power in range(3, 35)]
    expected = [chosen("all_reduce", size, wires).seconds(size) for size in sizes]
    assert expected == sorted(expected)
