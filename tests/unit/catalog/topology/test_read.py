"""Files whose kind is seen by their look, our own JSON among them."""

from __future__ import annotations

import pytest

from autotuner.catalog.topology.read import read_topology
from autotuner.catalog.topology.topology import FileKind
from autotuner.core.errors import InvalidInput
from tests.unit.catalog.topology import published


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (published.DGX_H100, FileKind.NVIDIA_SMI),
        (published.IBM_H100, FileKind.NCCL_XML),
        ("\ufeff" + published.SLURM_TREE, FileKind.SLURM_CONF),
        (published.SLURM_BLOCKS, FileKind.SLURM_CONF),
        (published.SOPERATOR_YAML, FileKind.SLURM_YAML),
        ('{"torus": [2, 2], "name": "ours"}', FileKind.JSON),
    ],
)
def test_the_kind_of_a_file_is_seen_by_its_look(text: str, kind: FileKind) -> None:
    assert read_topology(text).kind is kind


def test_json_says_a_network_a_wiring_or_both() -> None:
    network = read_topology('{"name": "ours", "num_rails": 8, "tiers": []}')
    wiring = read_topology('{"name": "ours", "sockets": [[0, 1], [2, 3]]}')
    both = read_topology('{"network": {"name": "ours"}, "wiring": {"name": "ours"}}')
    assert [network.network is None, network.wiring is None] == [False, True]
    assert [wiring.network is None, wiring.wiring is None] == [True, False]
    assert both.network is not None
    assert both.wiring is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello", "line 1 = 'hello': must be what nvidia-smi topo -m prints"),
        ("", "line 1 = ''"),
        ('{"network": ', "line 1 = .*must be JSON"),
        ('{"network": {"name": "x", "tiers": [{"name": "leaf", "nodes": 3}]}}', r"network\.tiers\.0\.nodes = 3"),
        ('{"network": {"name": "x"}, "wires": 1}', "wires = 1: must be network or wiring"),
        ("x" * 2_000_001, "2,000,000 characters at most"),
    ],
)
def test_what_is_none_of_them_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_topology(text)
